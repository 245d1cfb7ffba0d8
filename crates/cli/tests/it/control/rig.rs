//! A server of the program itself, a client of its exports, and HTTP by hand.

use larder_io::nbd_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes, even on a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

pub(crate) const MIB: u64 = 1 << 20;

/// Returns a command that runs the program under test, or the one that `LARDER_BINARY` names.
pub(crate) fn larder() -> Command {
    let named = std::env::var_os("LARDER_BINARY");
    let mut command = Command::new(named.unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into()));
    command.stdin(Stdio::null());
    command
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A directory with images, and a server of them.
pub(crate) struct Server {
    pub(crate) directory: TempDir,
    pub(crate) uris: Vec<String>,
    child: Child,
    /// True if the test has told the program to panic.
    may_panic: bool,
}

impl Server {
    /// Serves images `NAME.img` of 16 MiB each.
    pub(crate) fn start(names: &[&str], options: &[&str]) -> Self {
        Server::start_in(TempDir::new().expect("a directory"), names, options)
    }

    pub(crate) fn start_in(directory: TempDir, names: &[&str], options: &[&str]) -> Self {
        let mut command = larder();
        command.arg("serve").args(images(directory.path(), names));
        command.args(["--memory", "16MiB", "--listen"]);
        command.arg(format!("unix:{}", directory.path().join("nbd.sock").display())).args(options);
        Server::spawn(directory, command, names.len())
    }

    /// Runs a command that serves this many volumes. Its runtime directory is the directory of the
    /// test.
    pub(crate) fn spawn(directory: TempDir, mut command: Command, volumes: usize) -> Self {
        command.env("RUNTIME_DIRECTORY", directory.path());
        let may_panic = command.get_envs().any(|(name, _)| name == "LARDER_FAULT");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let uri = |_| {
            let Some(line) = lines.next() else {
                let mut said = String::new();
                child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
                panic!("the server did not start: {said}");
            };
            line.expect("text").split_once(" at ").expect("an address").1.to_owned()
        };
        let uris = (0..volumes).map(uri).collect();
        Server { directory, uris, child, may_panic }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its control socket, where the default is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("nbd.control")
    }

    pub(crate) fn client(&self, volume: usize) -> Client {
        Client::connect(&self.uris[volume].parse().expect("an address")).expect("a connection")
    }

    /// `larder ctl` with these words.
    pub(crate) fn ctl(&self, words: &[&str]) -> Output {
        self.ctl_command(words).output().expect("the program runs")
    }

    pub(crate) fn ctl_command(&self, words: &[&str]) -> Command {
        let mut command = larder();
        command.args(["ctl", "--control"]).arg(self.socket()).args(words);
        command
    }

    /// What `larder ctl` with these words prints, as it must succeed.
    pub(crate) fn ctl_text(&self, words: &[&str]) -> String {
        let output = self.ctl(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(&format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n\
             {body}",
            body.len()
        ))
    }

    /// Sends bytes to the control socket; the answer until the server closes.
    pub(crate) fn ask(&self, request: &str) -> Answer {
        talk(UnixStream::connect(self.socket()).expect("a connection"), request)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Closes the pipe to which it says what it says.
    pub(crate) fn hear_no_more(&mut self) {
        drop(self.child.stderr.take());
    }

    /// Waits for its end, which is a good one; what it said on standard error, if that is heard.
    pub(crate) fn wait(mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).expect("text");
        }
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{said}");
        assert!(self.may_panic || !said.contains(" panicked at "), "{said}");
        said
    }

    /// Stops it with SIGTERM; its directory, and what it said.
    pub(crate) fn stop_and_keep(mut self) -> (TempDir, String) {
        let directory =
            std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (directory, self.stop())
    }

    /// Kills it; its directory, and what it had said.
    pub(crate) fn kill_and_keep(mut self) -> (TempDir, String) {
        self.signal(Signal::KILL);
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        self.child.wait().expect("it ends");
        let directory =
            std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (directory, said)
    }

    /// Sends a signal and waits for the end; returns the directory, the exit code if there is one,
    /// and the output.
    pub(crate) fn end_with(mut self, signal: Signal) -> (TempDir, Option<i32>, String) {
        // The process may have ended already.
        let _still_runs = kill_process(Pid::from_child(&self.child), signal).is_ok();
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        let ended = self.child.wait().expect("it ends");
        let directory =
            std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (directory, ended.code(), said)
    }

    /// Stops it with SIGTERM.
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number of its file descriptors.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// A line of what it says on standard error that `wanted` takes.
    pub(crate) fn hear(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            stderr.read_exact(&mut byte).expect("it says something");
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            let said = String::from_utf8(std::mem::take(&mut line)).expect("text");
            if wanted(&said) {
                return said;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
        // What it printed may be the cause of the failure.
        if std::thread::panicking()
            && let Some(stderr) = &mut self.child.stderr
        {
            let mut printed = Vec::new();
            // What has been read until an error is shown.
            let _all = stderr.read_to_end(&mut printed);
            let printed = String::from_utf8_lossy(&printed);
            drop(writeln!(std::io::stdout(), "the server printed:\n{printed}"));
        }
    }
}

/// Empty images of 16 MiB.
pub(crate) fn images(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    let image = |name: &&str| {
        let path = directory.join(format!("{name}.img"));
        File::create(&path).and_then(|file| file.set_len(16 * MIB)).expect("an image");
        path
    };
    names.iter().map(image).collect()
}

/// An answer by HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The sentence of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().expect("a refusal").to_owned()
    }

    /// The objects of an answer that comes line by line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Sends a request and reads until the other side closes.
pub(crate) fn talk(mut stream: impl Read + Write, request: &str) -> Answer {
    let sent = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    // A server that refuses a request may close the connection before it has read all of it, and
    // reset it after its answer.
    if let Err(error) = sent {
        let known = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
        assert!(known.contains(&error.kind()), "{error}");
    }
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    let all = String::from_utf8(bytes).expect("text");
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {all:?}"));
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { joined(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

/// The chunks of a body, put together.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        body.push_str(&rest[..length]);
        chunks = rest[length..].strip_prefix("\r\n").expect("the end of a chunk");
        if length == 0 {
            break;
        }
    }
    body
}
