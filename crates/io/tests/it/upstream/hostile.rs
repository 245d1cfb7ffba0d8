//! Upstream servers that complete the handshake and then close, violate the protocol, or send a
//! reply byte by byte.

use super::failed_flush::negotiate;
use super::{Downstream, MIB};
use larder_io::nbd_client::{NbdUri, Request};
use larder_io::nbd_wire::{self as wire, Errno};
use larder_io::store::NbdOptions;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// Number of connections that the server accepts, so that a failing test ends.
const CONNECTIONS_MAX: usize = 100;
/// Time limit of a stop; one that waits for the server takes longer.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);
/// Pause between two bytes of a reply: 4 KiB take minutes.
const PAUSE: Duration = Duration::from_millis(100);

struct Hostile {
    uri: NbdUri,
    connections: Arc<AtomicUsize>,
    _dir: TempDir,
}

impl Hostile {
    /// Starts a server that serves each connection with `serve` after the handshake.
    fn start(serve: fn(&mut UnixStream) -> io::Result<()>) -> Self {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("the address is free");
        let uri = format!("nbd+unix:///disk?socket={}", socket.display());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().take(CONNECTIONS_MAX) {
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let mut stream = stream?;
                    negotiate(&mut stream, true)?;
                    serve(&mut stream)
                });
            }
        });
        Hostile { uri: uri.parse().expect("an address"), connections, _dir: dir }
    }

    fn downstream(&self, away_after: Duration) -> Downstream {
        let options = NbdOptions { away_after, ..NbdOptions::default() };
        Downstream::new(&self.uri, options).expect("a good export")
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn receive(stream: &mut UnixStream) -> io::Result<wire::Request> {
    let mut header = [0; wire::REQUEST_BYTES];
    stream.read_exact(&mut header)?;
    wire::Request::parse(&header).map_err(io::Error::other)
}

/// Stops with nothing dirty, within a time.
fn stop(downstream: Downstream) {
    let (ended, end) = channel();
    std::thread::spawn(move || {
        downstream.server.close();
        let drained = downstream.engine.drain(|_| {});
        downstream.engine.shut_down();
        drop(ended.send(drained));
    });
    end.recv_timeout(STOP_TIME_MAX).expect("the stop does not wait").expect("all is written");
}

#[test]
fn a_read_of_a_server_that_closes_at_each_read_fails_and_reconnections_are_few() {
    let upstream = Hostile::start(|stream| receive(stream).map(drop));
    let downstream = upstream.downstream(Duration::from_secs(1));
    let mut client = downstream.connect();
    let error = client.read_at(0, &mut [0; 4096]).expect_err("no connection brings it");
    assert_eq!(error.errno(), Some(Errno::Io));
    assert!(upstream.connections() < 20, "{} connections", upstream.connections());
    drop(client);
    stop(downstream);
}

/// The other replies are valid.
#[test]
fn a_read_of_a_block_at_which_the_server_closes_fails_and_others_succeed() {
    /// Further away than the cache reads ahead of the others.
    const BAD: u64 = 16 * MIB;
    let upstream = Hostile::start(|stream| {
        loop {
            let wire::Request { cookie, offset, len, .. } = receive(stream)?;
            if offset >= BAD {
                return Ok(());
            }
            let data = wire::chunk_data(cookie, true, offset, len);
            stream.write_all(&[&data[..], &vec![1; len as usize]].concat())?;
        }
    });
    let downstream = upstream.downstream(Duration::from_secs(1));
    let mut client = downstream.connect();
    let mut other = downstream.connect();
    std::thread::scope(|scope| {
        let bad = scope.spawn(move || client.read_at(BAD, &mut [0; 4096]));
        let mut at = 0;
        while !bad.is_finished() {
            other.read_at(at % (8 * MIB), &mut [0; 4096]).expect("it succeeds");
            at += 64 * 4096;
        }
        let error = bad.join().expect("no panic").expect_err("it fails");
        assert_eq!(error.errno(), Some(Errno::Io));
    });
    assert!(upstream.connections() < 30, "{} connections", upstream.connections());
    drop(other);
    stop(downstream);
}

#[test]
fn a_stop_with_nothing_dirty_does_not_wait_for_a_server_that_breaks_the_protocol() {
    let upstream = Hostile::start(|stream| {
        stream.write_all(&wire::simple_reply(5, Ok(())))?;
        receive(stream).map(drop)
    });
    let downstream = upstream.downstream(Duration::from_secs(1));
    // The client learns of it with the first request.
    let mut client = downstream.connect();
    assert!(client.read_at(0, &mut [0; 4096]).is_err());
    assert!(upstream.connections() < 20, "{} connections", upstream.connections());
    drop(client);
    stop(downstream);
}

#[test]
fn a_stop_with_nothing_dirty_does_not_wait_for_an_answer_that_drips() {
    let upstream = Hostile::start(|stream| {
        let wire::Request { cookie, offset, len, .. } = receive(stream)?;
        let data = wire::chunk_data(cookie, true, offset, len);
        for byte in [&data[..], &vec![1; len as usize]].concat() {
            stream.write_all(&[byte])?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    });
    let downstream = upstream.downstream(Duration::from_secs(20));
    let mut client = downstream.connect();
    client.submit(Request::read(0, vec![0; 4096])).expect("the cache takes it");
    let answered = client.wait_for(Duration::from_secs(1)).expect("the connection is good");
    assert!(answered.is_none(), "the server has begun to answer, and has not ended");
    stop(downstream);
}
