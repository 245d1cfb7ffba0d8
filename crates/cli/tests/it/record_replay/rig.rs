//! A directory with images and traces, a server, and the program itself.

use larder_core::counters::Counter;
use larder_lab::random::Random;
use larder_lab::trace::ltr::{Writer, WriterOptions};
use larder_lab::trace::{NameKind, Op, OpenOptions, Record, open};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of one step, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

pub(crate) const MIB: u64 = 1 << 20;

/// Returns a command that runs the program under test.
pub(crate) fn larder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.stdin(Stdio::null());
    command
}

/// Waits until `condition` returns true.
pub(crate) fn eventually(event: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "in vain: {event}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Self {
        Directory(TempDir::new().expect("a directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        path
    }

    /// Writes a trace of volumes with these names.
    pub(crate) fn trace(&self, name: &str, volumes: &[&str], records: &[Record]) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).expect("a file");
        let mut writer = Writer::new(file, WriterOptions::default()).expect("a trace");
        for (number, volume) in (0..).zip(volumes) {
            writer.name(NameKind::Volume, number, volume).expect("a name");
        }
        writer.append(records).expect("records");
        writer.finish().expect("an end");
        path
    }
}

/// Returns the records of a trace, and the notes of its reader.
pub(crate) fn read(path: &Path) -> (Vec<Record>, Vec<String>) {
    let mut source = open(path, &OpenOptions::default()).expect("a trace");
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while source.next_batch(&mut batch).expect("a trace that can be read") {
        records.append(&mut batch);
    }
    (records, source.notes())
}

/// Returns the fields of a record that a replay repeats.
pub(crate) fn request_fields(record: &Record) -> (u32, Op, u64, u64) {
    (record.volume, record.op, record.offset, record.len)
}

/// Returns random requests of whole blocks within `bytes`, one per microsecond.
pub(crate) fn requests(seed: u64, count: u64, bytes: u64) -> Vec<Record> {
    let mut random = Random::from_seed(seed);
    let request = |number| {
        let op = match random.below(20) {
            0 => Op::Flush,
            1 => Op::Discard,
            2 => Op::Zero,
            3..=8 => Op::Write,
            _ => Op::Read,
        };
        let (offset, len) = (random.below(bytes / 4096) * 4096, 4096);
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, len) };
        Record { time_ns: number * 1000, op, offset, len, ..Record::default() }
    };
    (0..count).map(request).collect()
}

/// A running server.
pub(crate) struct RunningServer {
    child: Child,
    /// The URI of each volume.
    pub(crate) uris: Vec<String>,
}

impl RunningServer {
    /// Serves images with these options.
    pub(crate) fn start(directory: &Directory, images: &[&Path], options: &[&str]) -> Self {
        let mut command = larder();
        command.arg("serve").args(images).args(options);
        RunningServer::spawn(directory, command, images.len())
    }

    /// Starts a command that serves `volumes` volumes on the socket of the directory.
    pub(crate) fn spawn(directory: &Directory, mut command: Command, volumes: usize) -> Self {
        let listen = format!("unix:{}", directory.path("socket").display());
        command.args(["--memory", "16MiB", "--listen", &listen, "--control", "none"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let uri = |_| {
            let line = lines.next().expect("the server serves").expect("text");
            line.split_once(" at ").expect("an address").1.to_owned()
        };
        let uris = (0..volumes).map(uri).collect();
        RunningServer { child, uris }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// Stops the server, which must succeed, and returns its standard error.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut log).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{log}");
        log
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // The server has ended already, unless the test failed.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
        }
    }
}

/// Returns the command that replays `trace` with these arguments.
pub(crate) fn replay_command(trace: &Path, arguments: &[&str]) -> Command {
    let mut command = larder();
    command.args(["trace", "replay"]).arg(trace).args(arguments);
    command
}

/// Runs a replay, which must succeed, and returns its JSON output.
pub(crate) fn run_replay(trace: &Path, arguments: &[&str]) -> serde_json::Value {
    let output =
        replay_command(trace, arguments).arg("--json").output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the one-line error message of a program that failed.
pub(crate) fn error_message(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("larder: cannot "), "{stderr}");
    stderr
}

/// Runs a command with `input` on its standard input.
pub(crate) fn run_with_input(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that finds an error early does not read all of its input.
    let result = child.stdin.take().expect("a pipe").write_all(input);
    drop(result);
    child.wait_with_output().expect("it ends")
}

/// Returns a counter from the tables that a server prints, which leave out zeros.
pub(crate) fn counter(log: &str, counter: Counter) -> u64 {
    let name = counter.meaning().name;
    let row = log.lines().find(|line| line.split_whitespace().next() == Some(name));
    let value = row.and_then(|row| row.split_whitespace().nth(1)).unwrap_or("0");
    value.replace(',', "").parse().expect("a number")
}

/// Returns the 16 bytes at an offset of an image.
pub(crate) fn bytes_at(image: &Path, offset: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let file = File::open(image).expect("an image");
    file.read_exact_at(&mut bytes, offset).expect("bytes");
    bytes
}

/// Returns the payload that record `number` of a trace writes at `offset`.
pub(crate) fn replay_payload(offset: u64, number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}
