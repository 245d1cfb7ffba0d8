//! Other servers as upstreams: missing features, failures, slowness.

use super::{Downstream, MIB, connect};
use crate::common::{Random, TIMEOUT, rig, spawn::starting};
use larder_io::nbd_client::{Client, NbdUri, ZeroFlags};
use larder_io::nbd_wire::Errno;
use larder_io::store::NbdOptions;
use larder_testing::has_tool;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server of another project on a Unix socket.
struct OtherServer {
    child: Child,
    uri: NbdUri,
    dir: TempDir,
}

impl OtherServer {
    fn start(program: &str, args: impl FnOnce(&TempDir) -> Vec<String>) -> Option<Self> {
        let dir = TempDir::new().expect("nothing fails here");
        let socket = dir.path().join("socket");
        let uri = format!("nbd+unix:///?socket={}", socket.display())
            .parse()
            .expect("nothing fails here");
        let args = args(&dir);
        if !has_tool(program) {
            return None;
        }
        let guard = starting();
        let started = Command::new(program).args(args).stdin(Stdio::null()).spawn();
        drop(guard);
        let child = started.expect("it is installed");
        let mut other = OtherServer { child, uri, dir };
        let started = Instant::now();
        while Client::connect(&other.uri).is_err() {
            assert_eq!(
                other.child.try_wait().expect("nothing fails here"),
                None,
                "{program} stays up"
            );
            assert!(started.elapsed() < TIMEOUT, "{program} listens in time");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(other)
    }

    fn nbdkit(args: &[&str]) -> Option<Self> {
        OtherServer::start("nbdkit", |dir| {
            let socket = dir.path().join("socket");
            let base = [
                "--foreground",
                "--exit-with-parent",
                "-U",
                socket.to_str().expect("nothing fails here"),
            ];
            base.iter().chain(args).map(|&arg| arg.to_owned()).collect()
        })
    }

    fn qemu_nbd(length: u64) -> Option<Self> {
        OtherServer::start("qemu-nbd", |dir| {
            let image = dir.path().join("image");
            std::fs::File::create(&image)
                .expect("nothing fails here")
                .set_len(length)
                .expect("nothing fails here");
            let socket = dir.path().join("socket");
            let socket = format!("--socket={}", socket.display());
            let image = image.to_str().expect("nothing fails here").to_owned();
            ["--persistent", "--shared=8", "--format=raw", "--cache=writeback", "--discard=unmap"]
                .map(str::to_owned)
                .into_iter()
                .chain([socket, image])
                .collect()
        })
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

/// Random writes, zeroings and trims through a cache; then the content of the server is compared.
fn is_written_through(other: &OtherServer, length: u64, seed: u64) {
    let downstream =
        Downstream::new(&other.uri, NbdOptions::default()).expect("nothing fails here");
    let mut client = downstream.connect();
    let mut random = Random::new(seed);
    let mut model = vec![0; usize::try_from(length).expect("nothing fails here")];
    for _ in 0..150 {
        let len = 1 + random.below(200_000);
        let start = random.below(model.len() - len);
        let (offset, short) = (start as u64, u32::try_from(len).expect("nothing fails here"));
        match random.below(8) {
            0 => {
                model[start..start + len].fill(0);
                let no_hole = random.below(2) == 0;
                let zero = ZeroFlags { fua: false, no_hole, fast: false };
                client.write_zeroes(offset, short, zero).expect("nothing fails here");
            }
            1 => client.flush().expect("nothing fails here"),
            2 | 3 => {
                let mut bytes = vec![1; len];
                client.read_at(offset, &mut bytes).expect("nothing fails here");
                assert!(bytes == model[start..start + len], "{len} bytes at {start}");
            }
            n => {
                let bytes = random.bytes(len);
                model[start..start + len].copy_from_slice(&bytes);
                client.write_at(offset, &bytes, n == 4).expect("nothing fails here");
            }
        }
    }
    client.flush().expect("nothing fails here");
    let mut bytes = vec![1; model.len()];
    connect(&other.uri).read_at(0, &mut bytes).expect("nothing fails here");
    assert!(bytes == model, "as the server has it");
    drop(client);
    downstream.end();
}

#[test]
fn servers_that_know_less_are_written_through_all_the_same() {
    let cases: [&[&str]; 8] = [
        &["memory", "12M"],
        &["--filter=fua", "memory", "12M"],
        &["--filter=fua", "memory", "12M", "fuamode=native"],
        &["--filter=nozero", "memory", "12M", "zeromode=none"],
        &["--no-sr", "memory", "12M"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "12M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ],
        &[
            "--filter=blocksize-policy",
            "memory",
            "12M",
            "blocksize-minimum=1K",
            "blocksize-preferred=4096",
            "blocksize-maximum=1M",
            "blocksize-error-policy=error",
        ],
        &["--filter=delay", "memory", "12M", "rdelay=3ms", "wdelay=5ms"],
    ];
    for (seed, args) in cases.iter().enumerate() {
        let Some(other) = OtherServer::nbdkit(args) else { return };
        is_written_through(&other, 12 * MIB, seed as u64);
    }
}

#[test]
fn qemu_nbd_is_written_through() {
    let Some(other) = OtherServer::qemu_nbd(12 * MIB) else { return };
    is_written_through(&other, 12 * MIB, 77);
}

#[test]
fn a_server_without_flush_is_refused_unless_nothing_is_promised() {
    let Some(other) = OtherServer::nbdkit(&[
        "eval",
        "get_size=echo 1M",
        "pread=dd if=/dev/zero count=$3 iflag=count_bytes status=none",
        "pwrite=cat > /dev/null",
        "can_write=exit 0",
        "can_flush=exit 3",
    ]) else {
        return;
    };
    let opened = Downstream::new(&other.uri, NbdOptions::default()).map(|_| ());
    let text = opened.unwrap_err().to_string();
    assert!(text.contains("the server knows no flush"), "{text}");
    for options in [
        NbdOptions { ignore_flushes: true, ..NbdOptions::default() },
        NbdOptions { read_only: true, ..NbdOptions::default() },
    ] {
        let downstream = Downstream::new(&other.uri, options).unwrap();
        downstream.connect().read_at(0, &mut [0; 4096]).unwrap();
        downstream.end();
    }
}

#[test]
fn servers_with_blocks_of_no_use_are_refused() {
    let Some(other) = OtherServer::nbdkit(&[
        "--filter=blocksize-policy",
        "memory",
        "12M",
        "blocksize-minimum=8K",
        "blocksize-preferred=8K",
        "blocksize-maximum=1M",
        "blocksize-error-policy=error",
    ]) else {
        return;
    };
    let opened = Downstream::new(&other.uri, NbdOptions::default()).map(|_| ());
    let text = opened.unwrap_err().to_string();
    assert!(text.contains("it takes requests of 8192 to 1048576 bytes"), "{text}");
    let Some(odd) = OtherServer::nbdkit(&["memory", "1000001"]) else { return };
    let text = Downstream::new(&odd.uri, NbdOptions::default()).map(|_| ()).unwrap_err();
    assert!(text.to_string().contains("is not a multiple of 512"), "{text}");
}

/// While the files exist, all writes fail with ENOSPC, and all reads with EIO.
#[test]
fn what_the_server_fails_is_told_and_written_when_it_works_again() {
    let dir = TempDir::new().unwrap();
    let (writes, reads) = (dir.path().join("writes"), dir.path().join("reads"));
    let args = [
        "--filter=error".to_owned(),
        "memory".to_owned(),
        "12M".to_owned(),
        "error-pwrite=ENOSPC".to_owned(),
        "error-pwrite-rate=100%".to_owned(),
        format!("error-pwrite-file={}", writes.display()),
        "error-pread=EIO".to_owned(),
        "error-pread-rate=100%".to_owned(),
        format!("error-pread-file={}", reads.display()),
    ];
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let Some(other) = OtherServer::nbdkit(&args) else { return };
    let downstream = Downstream::new(&other.uri, NbdOptions::default()).unwrap();
    let mut client = downstream.connect();
    std::fs::write(&reads, "").unwrap();
    let error = client.read_at(0, &mut [0; 4096]).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::Io), "{error}");
    std::fs::remove_file(&reads).unwrap();
    client.read_at(0, &mut [0; 4096]).unwrap();
    std::fs::write(&writes, "").unwrap();
    client.write_at(0, &vec![9; 1 << 20], false).unwrap();
    let error = client.flush().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NoSpace), "{error}");
    assert!(error.to_string().contains("nbd+unix://"), "it says where: {error}");
    std::fs::remove_file(&writes).unwrap();
    rig::eventually("a flush succeeds again", || client.flush().is_ok());
    let mut bytes = vec![0; 1 << 20];
    connect(&other.uri).read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 9));
    drop(client);
    downstream.end();
}

/// A stopped server neither replies nor closes: hits continue, other requests wait.
#[test]
fn a_server_that_stands_still_is_waited_for() {
    let Some(other) = OtherServer::nbdkit(&["memory", "12M"]) else { return };
    let downstream = Downstream::new(&other.uri, NbdOptions::default()).unwrap();
    let mut client = downstream.connect();
    client.write_at(0, &[4; 4096], false).unwrap();
    let signal = |name: &str| {
        let pid = other.child.id().to_string();
        let _guard = starting();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    let stands_still = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", other.child.id())).unwrap();
        threads.into_iter().all(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        })
    };
    rig::eventually("all its threads stand still", stands_still);
    let mut second = downstream.connect();
    let flush = second.submit(larder_io::nbd_client::Request::flush()).unwrap();
    let mut bytes = [0; 4096];
    client.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [4; 4096]);
    assert!(second.wait_for(Duration::from_millis(300)).unwrap().is_none(), "it waits");
    signal("-CONT");
    let completion = second.wait().unwrap();
    assert_eq!((completion.cookie, completion.result), (flush, Ok(())));
    drop((client, second));
    downstream.end();
    assert!(other.dir.path().exists());
}
