//! Hostile clients: the memory of the server stays bounded, and another client is served.
//!
//! The server runs in a separate process (this test program, started again), so that its memory is
//! measured without that of the clients.

use super::{MIB, Service};
use crate::common::TIMEOUT;
use crate::common::rig::{Memory, engine, volume};
use crate::common::spawn;
use larder_io::front::nbd::{ListenAddress, ServerLimits};
use larder_io::nbd_client::{Client, ClientError, ConnectOptions, NbdUri, UriTls};
use larder_io::store::SolidMap;
use larder_testing::budget;
use larder_testing::hostile::{Counts, Endpoint, Kind, Target, attack};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Listening mode of the server process: `unix`, `tcp` or `tls`.
const LISTEN_MODE: &str = "LARDER_TEST_HOSTILE";
const EXPORT_BYTES: u64 = 32 * MIB;
const MEMORY_BYTES: u64 = 16 * MIB;
/// Time within which another client must be served, however busy the machine is.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// Time between two connections of the other client.
const CLIENT_PAUSE: Duration = Duration::from_millis(10);
/// Number of attacking connections: all but two that the server accepts.
const CONNECTIONS: usize = 62;

/// Serves with a full cache until standard input ends.
#[test]
fn the_process_that_serves_hostile_clients() {
    let Ok(mode) = std::env::var(LISTEN_MODE) else { return };
    let engine = engine(MEMORY_BYTES);
    let volume = volume(&engine, "disk", EXPORT_BYTES, Memory::new(EXPORT_BYTES));
    let service = if mode == "tls" {
        Service::start_tls(engine, volume, true, false)
    } else {
        Service::start(engine, volume, Arc::new(SolidMap), ServerLimits::default(), mode == "tcp")
    };
    let mut client = service.connect(true);
    client.read_at(0, &mut vec![0; 32 << 20]).expect("it is served");
    client.disconnect().expect("it is served");
    let certificates = service.certificates.as_ref().map(|directory| directory.path().display());
    let certificates = certificates.map_or_else(String::new, |directory| directory.to_string());
    let address = match service.server.address() {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => path.display().to_string(),
    };
    println!("serving {}|{address}|{certificates}", service.server.uri("disk"));
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
    service.end();
}

/// The server process.
struct Process {
    child: Child,
    /// Its standard output, which must be read to the end.
    _output: BufReader<ChildStdout>,
    uri: NbdUri,
    target: Target,
}

impl Process {
    fn start(mode: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", "nbd_server::hostile::the_process_that_serves_hostile_clients"]);
        command
            .arg("--nocapture")
            .env(LISTEN_MODE, mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let starting = spawn::starting();
        let mut child = command.spawn().expect("this program can be started");
        drop(starting);
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = output.by_ref().lines().map(|line| line.expect("text"));
        let line = lines.find_map(|line| Some(line.split_once("serving ")?.1.to_owned()));
        let line = line.expect("it serves");
        let [uri, address, directory] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let endpoint = match address.parse() {
            Ok(address) => Endpoint::Tcp(address),
            Err(_) => Endpoint::Unix(address.into()),
        };
        let uri: NbdUri = uri.parse().expect("an address");
        let directory = PathBuf::from(directory);
        let target = match mode {
            "tls" => Target::with_tls(endpoint, "disk", &directory.join("ca-cert.pem")),
            _ => Target::in_clear(endpoint, "disk"),
        };
        let tls =
            (mode == "tls").then_some(UriTls { certificates: Some(directory), hostname: None });
        Process { child, _output: output, uri: NbdUri { tls, ..uri }, target }
    }

    /// Returns its resident memory in bytes.
    fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        let kib = line.trim().strip_suffix(" kB").expect("in kB").trim();
        kib.parse::<u64>().expect("a number") << 10
    }

    /// Connects, reads, writes and disconnects.
    fn serve_another(&self) -> Result<(), ClientError> {
        let options = ConnectOptions { timeout: Some(SERVED_WITHIN), ..ConnectOptions::default() };
        let mut client = Client::connect_with(&self.uri, options)?;
        client.read_at(MIB, &mut [0; 4096])?;
        client.write_at(2 * MIB, &[1; 4096], false)?;
        client.disconnect()
    }

    /// Lets clients of one kind attack until `enough` holds. Returns the most memory that the
    /// server added, and the longest time that another client waited.
    fn resist(
        &self,
        kind: Kind,
        connections: usize,
        enough: impl Fn(&Counts, Duration) -> bool,
    ) -> (u64, Duration) {
        let (stop, counts) = (AtomicBool::new(false), Counts::default());
        let before = self.resident_bytes();
        let (mut most, mut slowest) = (before, Duration::ZERO);
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            scope.spawn(|| attack(kind, &self.target, connections, &stop, &counts));
            let begun = Instant::now();
            let (mut last, mut last_at) = (0, begun);
            while !enough(&counts, begun.elapsed()) {
                let started = Instant::now();
                let done = counts.attacks.load(Ordering::Relaxed)
                    + counts.received_bytes.load(Ordering::Relaxed);
                if done > last {
                    (last, last_at) = (done, started);
                }
                assert!(started - last_at < TIMEOUT, "{kind:?}: no progress: {counts:?}");
                // The server may also end this handshake, while the attackers keep starting new
                // ones.
                while let Err(error) = self.serve_another() {
                    let waited = started.elapsed();
                    assert!(waited < SERVED_WITHIN, "{kind:?}: not served: {error}; {counts:?}");
                }
                slowest = slowest.max(started.elapsed());
                most = most.max(self.resident_bytes());
                // Without the pause the other client takes the processor from the attackers.
                std::thread::sleep(CLIENT_PAUSE);
            }
        });
        (most - before, slowest)
    }

    /// Ends the server, which must hold no frames then.
    fn end(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Closing standard input ends it, if it still runs.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Ends the attack even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn replies_free_their_memory_as_they_are_sent() {
    let server = Process::start("tcp");
    // Replies that the server has sent must not stay in memory.
    let least_bytes = budget(6, 64) * MIB;
    let enough = |counts: &Counts, _| counts.received_bytes.load(Ordering::Relaxed) > least_bytes;
    for kind in [Kind::UnreadError, Kind::UnreadStatus] {
        let (grown, _) = server.resist(kind, 3, enough);
        assert!(grown < least_bytes / 2, "{kind:?}: {} KiB more", grown >> 10);
    }
    server.end();
}

/// Runs each kind of attack briefly, with as many clients as the server accepts.
fn every_kind_is_bounded(mode: &str) {
    let server = Process::start(mode);
    for kind in Kind::ALL {
        let enough = |counts: &Counts, elapsed: Duration| {
            elapsed > Duration::from_millis(400) && counts.attacks.load(Ordering::Relaxed) > 50
        };
        let (grown, slowest) = server.resist(kind, CONNECTIONS, enough);
        let figures = format!("{kind:?}: {} KiB more, {slowest:?}", grown >> 10);
        assert!(grown < 32 * MIB, "{figures}");
    }
    server.end();
}

#[test]
fn every_kind_of_hostile_client_is_bounded_on_a_unix_socket() {
    every_kind_is_bounded("unix");
}

#[test]
fn every_kind_of_hostile_client_is_bounded_on_tcp() {
    every_kind_is_bounded("tcp");
}

#[test]
fn every_kind_of_hostile_client_is_bounded_by_tls() {
    every_kind_is_bounded("tls");
}
