//! An upstream server that fails flushes: later writes reach it, and every later flush reports the
//! loss. And one that supports no FUA any more.

use super::{Downstream, MIB};
use crate::common::rig;
use larder_io::front::nbd::handshake::{
    BlockSizes, ExportInfo, Handshake, HandshakeLimits, Negotiated, Progress,
};
use larder_io::nbd_client::{Client, ClientError, NbdUri};
use larder_io::nbd_wire::{self as wire, Errno};
use larder_io::store::NbdOptions;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard};
use tempfile::TempDir;

const LENGTH: u64 = 20 * MIB;
const PAGE: usize = 4096;

/// The replies of the server to flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushes {
    Succeed,
    /// The next one fails, the others succeed.
    FailOnce,
    Fail,
    /// The server answers the next one after the following one has arrived. Then it fails, and the
    /// other one succeeds.
    FailFirstOfTwo,
}

/// The state of the server.
struct Disk {
    /// The bytes that reads return.
    current: Vec<u8>,
    /// The bytes that survive a restart.
    stable: Vec<u8>,
    flushes: Flushes,
    /// The cookie of the flush whose reply waits for another flush.
    delayed: Option<u64>,
    connections: Vec<UnixStream>,
    /// True if it supports FUA, for connections from now on.
    fua: bool,
    /// True if it ends the connection that brings the next write with FUA, and supports none after
    /// that.
    ends_fua: bool,
}

impl Disk {
    /// Returns the replies to send.
    fn flush(&mut self, cookie: u64) -> Vec<u8> {
        let failed = Err(Errno::Io);
        match (self.flushes, self.delayed) {
            (Flushes::FailFirstOfTwo, None) => {
                self.delayed = Some(cookie);
                Vec::new()
            }
            (Flushes::FailFirstOfTwo, Some(first)) => {
                self.flushes = Flushes::Succeed;
                let replies =
                    [wire::simple_reply(first, failed), wire::simple_reply(cookie, Ok(()))];
                replies.concat()
            }
            (Flushes::FailOnce, _) => {
                self.flushes = Flushes::Succeed;
                wire::simple_reply(cookie, failed).to_vec()
            }
            (Flushes::Fail, _) => wire::simple_reply(cookie, failed).to_vec(),
            (Flushes::Succeed, _) => {
                self.stable.clone_from(&self.current);
                wire::simple_reply(cookie, Ok(())).to_vec()
            }
        }
    }
}

/// A server in this process, which serves until the process ends.
struct Upstream {
    disk: Arc<Mutex<Disk>>,
    uri: NbdUri,
    _dir: TempDir,
}

impl Upstream {
    fn start(fua: bool) -> Self {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("the address is free");
        let uri = format!("nbd+unix:///disk?socket={}", socket.display());
        let bytes = vec![0; usize::try_from(LENGTH).expect("megabytes")];
        let disk = Disk {
            current: bytes.clone(),
            stable: bytes,
            flushes: Flushes::Succeed,
            delayed: None,
            connections: Vec::new(),
            fua,
            ends_fua: false,
        };
        let disk = Arc::new(Mutex::new(disk));
        let served = Arc::clone(&disk);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let disk = Arc::clone(&served);
                std::thread::spawn(move || {
                    let mut stream = stream?;
                    // A client that leaves in the middle of a message does not fail the test.
                    let served = serve(&mut stream, &disk);
                    // The disk has a second descriptor of the connection, which stays open.
                    stream.shutdown(Shutdown::Both).and(served)
                });
            }
        });
        Upstream { disk, uri: uri.parse().expect("an address"), _dir: dir }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no holder panics")
    }

    fn set(&self, flushes: Flushes) {
        self.disk().flushes = flushes;
    }

    /// Loses unflushed data, and closes all connections.
    fn restart(&self) {
        let mut disk = self.disk();
        let disk = &mut *disk;
        disk.current.clone_from(&disk.stable);
        for connection in disk.connections.drain(..) {
            // It fails if the client has left.
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    /// A cache with the smallest buffers: 2 MiB of writes are kept until a flush.
    fn downstream(&self) -> Downstream {
        let options = NbdOptions { memory_bytes: 6 << 20, ..NbdOptions::default() };
        Downstream::new(&self.uri, options).expect("a good export")
    }
}

pub(super) fn negotiate(stream: &mut UnixStream, fua: bool) -> io::Result<Negotiated> {
    let fua = if fua { wire::FLAG_SEND_FUA } else { 0 };
    let export = ExportInfo {
        name: "disk".into(),
        description: String::new(),
        length: LENGTH,
        read_only: false,
        block_sizes: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
        features: wire::FLAG_SEND_FLUSH | fua,
        default: true,
    };
    let mut handshake = Handshake::new(&[export], HandshakeLimits::default());
    let mut input = Vec::new();
    loop {
        let mut output = Vec::new();
        let (used, progress) = handshake.feed(&input, &mut output).map_err(io::Error::other)?;
        assert_eq!(used, input.len(), "the client waits for each reply");
        stream.write_all(&output)?;
        match progress {
            Progress::Transmission(negotiated) => return Ok(negotiated),
            Progress::NeedMore => {}
            other => return Err(io::Error::other(format!("{other:?}"))),
        }
        input.resize(4096, 0);
        let bytes = stream.read(&mut input)?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.truncate(bytes);
    }
}

fn serve(stream: &mut UnixStream, disk: &Mutex<Disk>) -> io::Result<()> {
    let lock = || disk.lock().expect("no holder panics");
    lock().connections.push(stream.try_clone()?);
    let fua = lock().fua;
    let negotiated = negotiate(stream, fua)?;
    assert!(negotiated.structured, "the client asks for structured replies");
    loop {
        let mut header = [0; wire::REQUEST_BYTES];
        stream.read_exact(&mut header)?;
        let request = wire::Request::parse(&header).map_err(io::Error::other)?;
        let wire::Request { flags, command, cookie, offset, len } = request;
        let start = usize::try_from(offset).expect("inside the export");
        let range = start..start + len as usize;
        let reply = match command {
            wire::CMD_READ => {
                let bytes = &lock().current[range];
                [&wire::chunk_data(cookie, true, offset, len)[..], bytes].concat()
            }
            wire::CMD_WRITE => {
                let mut bytes = vec![0; range.len()];
                stream.read_exact(&mut bytes)?;
                let mut disk = lock();
                if flags & wire::CMD_FLAG_FUA != 0 {
                    assert!(fua, "the server of this connection does not support it");
                    if disk.ends_fua {
                        disk.fua = false;
                        return Ok(());
                    }
                    disk.stable[range.clone()].copy_from_slice(&bytes);
                }
                disk.current[range].copy_from_slice(&bytes);
                wire::simple_reply(cookie, Ok(())).to_vec()
            }
            wire::CMD_FLUSH => lock().flush(cookie),
            _ => return Ok(()),
        };
        stream.write_all(&reply)?;
    }
}

fn errno(result: Result<(), ClientError>) -> Option<Errno> {
    result.expect_err("it reports the loss").errno()
}

/// Writes `range` without FUA, and waits until all of it has reached the upstream server.
fn write_and_wait(downstream: &Downstream, client: &mut Client, range: &Range<usize>, byte: u8) {
    client.write_at(range.start as u64, &vec![byte; range.len()], false).expect("it is accepted");
    let is_written = || downstream.volume.unclean_blocks() == 0;
    rig::eventually("all dirty pages are written", is_written);
}

/// Stops, which writes everything and reports the loss.
fn end(downstream: Downstream) {
    downstream.server.close();
    let failures = downstream.engine.drain(|_| {}).expect_err("the loss is reported");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].starts_with("cannot flush nbd+unix:///disk"), "{failures:?}");
    assert_eq!(downstream.volume.unclean_blocks(), 0);
    rig::end(&downstream.engine);
}

/// Much more is written after the failure than the store keeps between two flushes.
fn is_written_after_a_failed_flush(flushes: Flushes, fua: bool) {
    let upstream = Upstream::start(fua);
    let downstream = upstream.downstream();
    let mut client = downstream.connect();
    client.write_at(0, &[1; PAGE], false).expect("it is accepted");
    upstream.set(flushes);
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    for at in (0..LENGTH).step_by(1 << 20) {
        client.write_at(at, &vec![2; 1 << 20], false).expect("it is accepted");
    }
    assert_eq!(errno(client.flush()), Some(Errno::Io), "this one reports it too");
    assert_eq!(errno(downstream.connect().flush()), Some(Errno::Io), "and that of another client");
    drop(client);
    end(downstream);
    assert!(upstream.disk().current.iter().all(|&byte| byte == 2), "it is written");
}

#[test]
fn after_a_failed_flush_writes_reach_the_upstream_and_each_flush_fails() {
    for fua in [false, true] {
        is_written_after_a_failed_flush(Flushes::FailOnce, fua);
    }
}

#[test]
fn writes_reach_an_upstream_that_fails_each_flush() {
    is_written_after_a_failed_flush(Flushes::Fail, true);
}

/// No client has requested this flush.
#[test]
fn a_flush_by_the_store_itself_that_fails_is_reported_to_clients() {
    let upstream = Upstream::start(true);
    upstream.set(Flushes::FailOnce);
    let downstream = upstream.downstream();
    let mut client = downstream.connect();
    write_and_wait(&downstream, &mut client, &(0..3 << 20), 1);
    rig::eventually("the store flushes", || upstream.disk().flushes == Flushes::Succeed);
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    drop(client);
    end(downstream);
}

/// Data written after the failure must not vanish with a restart of the upstream server: no read
/// would report that.
#[test]
fn what_is_written_after_a_failed_flush_is_sent_again_after_a_restart() {
    let upstream = Upstream::start(true);
    let downstream = upstream.downstream();
    let mut client = downstream.connect();
    client.write_at(0, &[1; PAGE], false).unwrap();
    upstream.set(Flushes::FailOnce);
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    let range = 1 << 20..3 << 19;
    write_and_wait(&downstream, &mut client, &range, 2);
    upstream.restart();
    client.read_at(10 * MIB, &mut [0; PAGE]).unwrap();
    assert!(upstream.disk().current[range].iter().all(|&byte| byte == 2), "it is sent again");
    assert_eq!(errno(client.flush()), Some(Errno::Io), "the first loss is still reported");
    drop(client);
    end(downstream);
}

/// The server supports no FUA, so the store flushes after the write.
#[test]
fn after_a_failed_flush_a_write_with_fua_is_stable() {
    for fua in [false, true] {
        let upstream = Upstream::start(fua);
        let downstream = upstream.downstream();
        let mut client = downstream.connect();
        client.write_at(0, &[1; PAGE], false).unwrap();
        upstream.set(Flushes::FailOnce);
        assert_eq!(errno(client.flush()), Some(Errno::Io));
        client.write_at(MIB, &[2; PAGE], true).unwrap();
        assert_eq!(upstream.disk().stable[1 << 20..][..PAGE], [2; PAGE]);
        drop(client);
        end(downstream);
    }
}

/// The flush of the store is in flight and fails; the one of the client succeeds after that.
fn fails_with_the_flush_before(request: impl FnOnce(&mut Client) -> Result<(), ClientError>) {
    let upstream = Upstream::start(false);
    upstream.set(Flushes::FailFirstOfTwo);
    let downstream = upstream.downstream();
    let mut client = downstream.connect();
    write_and_wait(&downstream, &mut client, &(0..3 << 19), 1);
    rig::eventually("the store flushes", || upstream.disk().delayed.is_some());
    assert_eq!(errno(request(&mut client)), Some(Errno::Io));
    assert_eq!(upstream.disk().flushes, Flushes::Succeed, "the second one arrived");
    drop(client);
    end(downstream);
}

#[test]
fn a_flush_that_succeeds_after_one_that_failed_meanwhile_reports_the_loss() {
    fails_with_the_flush_before(Client::flush);
}

#[test]
fn a_write_with_fua_fails_if_a_flush_fails_before_the_one_that_makes_it_stable() {
    fails_with_the_flush_before(|client| client.write_at(10 * MIB, &[2; PAGE], true));
}

#[test]
fn a_write_with_fua_is_stable_on_a_server_that_supports_no_fua_any_more() {
    let upstream = Upstream::start(true);
    let downstream = upstream.downstream();
    let mut client = downstream.connect();
    upstream.disk().ends_fua = true;
    client.write_at(MIB, &[2; PAGE], true).unwrap();
    assert!(!upstream.disk().fua, "the first connection has ended");
    assert_eq!(upstream.disk().stable[1 << 20..][..PAGE], [2; PAGE]);
    drop(client);
    downstream.server.close();
    downstream.engine.drain(|_| {}).unwrap();
    rig::end(&downstream.engine);
}
