//! The client against Debian's nbdkit, an independent implementation of the protocol.

use crate::nbd_client::{
    Client, ClientError, ConnectOptions, NbdAddress, NbdUri, Request, ZeroFlags, list_exports,
};
use crate::nbd_wire::{self as wire, Errno};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_mins(4);

struct Nbdkit {
    child: Child,
    uri: NbdUri,
    /// Directory of the socket.
    _dir: TempDir,
}

impl Nbdkit {
    /// Starts a server on a Unix socket; `None` if nbdkit is not installed.
    fn start(args: &[&str]) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let address = NbdAddress::Unix(dir.path().join("socket"));
        Self::start_at(dir, address, args)
    }

    fn start_at(dir: TempDir, address: NbdAddress, args: &[&str]) -> Option<Self> {
        if !larder_testing::has_tool("nbdkit") {
            return None;
        }
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent"]).stdin(Stdio::null());
        match &address {
            NbdAddress::Unix(path) => command.arg("-U").arg(path),
            NbdAddress::Tcp { host, port } => command.args(["-i", host, "-p", &port.to_string()]),
        };
        let child = command.args(args).spawn().unwrap();
        let mut server =
            Self { child, uri: NbdUri { address, export: String::new(), tls: None }, _dir: dir };
        let started = Instant::now();
        while Client::connect(&server.uri).is_err_and(|e| matches!(e, ClientError::Connect { .. }))
        {
            assert_eq!(server.child.try_wait().unwrap(), None, "nbdkit stays up");
            assert!(started.elapsed() < TIMEOUT, "nbdkit listens in time");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(server)
    }

    fn client(&self, structured: bool) -> Client {
        let options = ConnectOptions { structured, base_allocation: true, timeout: Some(TIMEOUT) };
        Client::connect_with(&self.uri, options).unwrap()
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.child.kill().expect("nbdkit is our child");
        self.child.wait().expect("nbdkit ends when killed");
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

#[test]
fn every_call_works_with_structured_and_simple_replies() {
    let Some(server) = Nbdkit::start(&["memory", "64M"]) else {
        return;
    };
    for structured in [true, false] {
        let mut client = server.client(structured);
        let info = client.info().clone();
        assert_eq!((info.length, info.structured), (64 << 20, structured));
        assert_eq!(info.base_allocation.is_some(), structured);
        assert!(info.has(wire::FLAG_SEND_FLUSH | wire::FLAG_SEND_FUA | wire::FLAG_SEND_TRIM));
        let data = noise(1, 3 << 20);
        client.write_at(4097, &data, false).unwrap();
        client.write_at(4097, &data[..10], true).unwrap();
        client.flush().unwrap();
        let mut back = vec![1; data.len() + 2];
        client.read_at(4096, &mut back).unwrap();
        assert!(back[0] == 0 && back[1..=data.len()] == data[..] && back[data.len() + 1] == 0);
        client.cache(0, 4096).unwrap();
        let zero = ZeroFlags { fua: true, no_hole: true, fast: false };
        client.write_zeroes(4096, 512, zero).unwrap();
        client.read_at(4096, &mut back[..513]).unwrap();
        assert_eq!(back[..512], [0; 512]);
        assert_eq!(back[512], data[511]);
        client.trim(0, 64 << 20, true).unwrap();
        client.read_at(0, &mut back).unwrap();
        assert!(back.iter().all(|&byte| byte == 0));
        match client.block_status(0, 1 << 20) {
            Ok(extents) => assert_eq!(extents[0].state, wire::STATE_HOLE | wire::STATE_ZERO),
            Err(ClientError::NotOffered(_)) => assert!(!structured),
            Err(error) => panic!("{error}"),
        }
        client.read_at(0, &mut []).unwrap();
        client.disconnect().unwrap();
    }
}

#[test]
fn holes_and_data_of_one_read_come_together() {
    // The data plugin is sparse, and nbdkit may split a read of hole, data and hole into any
    // chunks.
    let args = ["data", "@0x8000 1 2 3 @0x20000 4", "size=1M"];
    let Some(server) = Nbdkit::start(&args) else {
        return;
    };
    let mut client = server.client(true);
    let mut back = vec![9; 1 << 20];
    client.read_at(0, &mut back).unwrap();
    assert_eq!(back[0x8000..0x8004], [1, 2, 3, 0]);
    assert_eq!(back[0x20000], 4);
    assert_eq!(back.iter().map(|&byte| u32::from(byte)).sum::<u32>(), 10);
    let extents = client.block_status(0, 1 << 20).unwrap();
    assert!(extents.len() > 2, "{extents:?}");
    assert_eq!(extents.iter().map(|e| u64::from(e.len)).sum::<u64>(), 1 << 20);
}

#[test]
fn depth_32_is_answered_in_any_order_with_the_right_data() {
    let filters = ["--filter=delay", "memory", "16M", "rdelay=1ms"];
    let Some(server) = Nbdkit::start(&filters) else {
        return;
    };
    for structured in [true, false] {
        let mut client = server.client(structured);
        let image = noise(2, 16 << 20);
        client.write_at(0, &image, false).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut offsets = std::collections::HashMap::new();
        let mut buffers: Vec<Vec<u8>> = (0..32).map(|_| vec![0; 4096]).collect();
        let mut left = 2000;
        while left > 0 || !offsets.is_empty() {
            while let Some(buffer) = buffers.pop_if(|_| left > 0) {
                let offset = u64::from(random.next_u32() % 4095) * 4096 + 7;
                let cookie = client.submit(Request::read(offset, buffer)).unwrap();
                assert_eq!(offsets.insert(cookie, offset), None);
                left -= 1;
            }
            assert!(client.in_flight() <= 32);
            let done = client.wait().unwrap();
            let offset = usize::try_from(offsets.remove(&done.cookie).unwrap()).unwrap();
            assert_eq!(done.result, Ok(()));
            assert_eq!(done.data, image[offset..offset + 4096]);
            buffers.push(done.data);
        }
        assert!(matches!(client.wait(), Err(ClientError::NothingInFlight)));
    }
}

#[test]
fn large_reads_and_writes_in_flight_do_not_wait_for_each_other_for_ever() {
    let Some(server) = Nbdkit::start(&["memory", "64M"]) else {
        return;
    };
    let mut client = server.client(true);
    for number in 0..64 {
        let offset = u64::from(number % 32_u8) << 20;
        let buffer = vec![number; 1 << 20];
        let request = if number % 2 == 0 {
            Request::write(offset, buffer)
        } else {
            Request::read(offset, buffer)
        };
        client.submit(request).unwrap();
    }
    for _ in 0..64 {
        let done = client.wait().unwrap();
        assert_eq!((done.result, done.data.len()), (Ok(()), 1 << 20));
    }
}

#[test]
fn an_error_of_one_request_has_its_errno_and_leaves_the_rest_alone() {
    for (name, errno) in [("ENOSPC", Errno::NoSpace), ("EIO", Errno::Io), ("EPERM", Errno::Perm)] {
        let error = format!("error-pread={name}");
        let args = ["--filter=error", "memory", "1M", &error, "error-pread-rate=100%"];
        let Some(server) = Nbdkit::start(&args) else {
            return;
        };
        for structured in [true, false] {
            let mut client = server.client(structured);
            for _ in 0..3 {
                let error = client.read_at(512, &mut [0; 512]).unwrap_err();
                assert_eq!(error.errno(), Some(errno), "{error}");
                client.write_at(512, &[1; 512], false).unwrap();
            }
            client.disconnect().unwrap();
        }
    }
}

#[test]
fn a_range_beyond_the_end_is_the_servers_to_refuse() {
    let Some(server) = Nbdkit::start(&["--readonly", "memory", "1M"]) else {
        return;
    };
    let mut client = server.client(true);
    assert!(client.info().has(wire::FLAG_READ_ONLY));
    let end = client.read_at(1 << 20, &mut [0; 1]).unwrap_err();
    assert_eq!(end.errno(), Some(Errno::Inval));
    let write = client.write_at(0, &[0; 512], false).unwrap_err();
    assert_eq!(write.errno(), Some(Errno::Perm));
    let trim = client.trim(0, 512, false).unwrap_err();
    assert_eq!(trim.to_string(), "the NBD server does not offer trim");
}

#[test]
fn exports_are_listed_and_an_unknown_one_is_refused() {
    let files = TempDir::new().unwrap();
    for name in ["alpha", "beta gamma"] {
        std::fs::write(files.path().join(name), [7; 1024]).unwrap();
    }
    let dir = format!("dir={}", files.path().display());
    let Some(mut server) = Nbdkit::start(&["file", &dir]) else {
        return;
    };
    let mut names: Vec<_> =
        list_exports(&server.uri).unwrap().into_iter().map(|export| export.name).collect();
    names.sort();
    assert_eq!(names, ["alpha", "beta gamma"]);
    server.uri.export = "beta gamma".to_owned();
    let uri: NbdUri = server.uri.to_string().parse().unwrap();
    let client = Client::connect(&uri).unwrap();
    assert_eq!((client.info().length, client.info().name.as_str()), (1024, "beta gamma"));
    server.uri.export = "delta".to_owned();
    let error = Client::connect(&server.uri).unwrap_err();
    assert!(matches!(error, ClientError::Refused { option: wire::OPT_GO, .. }), "{error}");
}

#[test]
fn a_killed_server_is_a_closed_connection() {
    let args = ["--filter=delay", "memory", "1M", "rdelay=60"];
    let Some(mut server) = Nbdkit::start(&args) else {
        return;
    };
    let mut client = server.client(true);
    let cookie = client.submit(Request::write(0, vec![1; 4096])).unwrap();
    assert_eq!(client.wait().unwrap().cookie, cookie);
    client.submit(Request::read(0, vec![0; 4096])).unwrap();
    assert!(client.wait_for(Duration::from_millis(20)).unwrap().is_none());
    server.child.kill().unwrap();
    assert!(matches!(client.wait(), Err(ClientError::Closed)));
    assert!(matches!(client.wait(), Err(ClientError::Failed)));
    assert!(matches!(client.flush(), Err(ClientError::Failed)));
    assert_eq!(client.in_flight(), 1);
}

#[test]
fn a_silent_server_is_given_up_when_a_timeout_was_asked_for() {
    let args = ["--filter=delay", "memory", "1M", "rdelay=60"];
    let Some(server) = Nbdkit::start(&args) else {
        return;
    };
    let timeout = Some(Duration::from_secs(3));
    let options = ConnectOptions { timeout, ..ConnectOptions::default() };
    let mut client = Client::connect_with(&server.uri, options).unwrap();
    assert!(matches!(client.read_at(0, &mut [0; 512]), Err(ClientError::TimedOut)));
}

#[test]
fn tcp_and_a_server_without_structured_replies_work_as_well() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = NbdAddress::Tcp { host: "127.0.0.1".to_owned(), port };
    let args = ["--no-sr", "--mask-handshake=1", "memory", "1M"];
    let Some(server) = Nbdkit::start_at(TempDir::new().unwrap(), address, &args) else {
        return;
    };
    let mut client = server.client(true);
    assert!(!client.info().structured);
    client.write_at(1, b"tcp", true).unwrap();
    let mut back = [0; 5];
    client.read_at(0, &mut back).unwrap();
    assert_eq!(&back, b"\0tcp\0");
    client.disconnect().unwrap();
}
