//! A server process of the program, clients of its exports, and a minimal HTTP client.

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

/// Time limit of one step, also on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(4);

pub(crate) const MIB: u64 = 1 << 20;

/// Returns a command that runs the program under test, or the program that `LARDER_BINARY` names.
pub(crate) fn larder() -> Command {
    let binary = std::env::var_os("LARDER_BINARY");
    let mut command = Command::new(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into()));
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

/// Returns the output of a program as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A server process and the directory of its images.
pub(crate) struct Server {
    pub(crate) directory: TempDir,
    pub(crate) uris: Vec<String>,
    child: Child,
    /// True if the test makes the program panic.
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

    /// Starts a command that serves this many volumes. Its runtime directory is the directory of
    /// the test.
    pub(crate) fn spawn(directory: TempDir, mut command: Command, volumes: usize) -> Self {
        command.env("RUNTIME_DIRECTORY", directory.path());
        let may_panic = command.get_envs().any(|(name, _)| name == "LARDER_FAULT");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let uri = |_| {
            let Some(line) = lines.next() else {
                let mut log = String::new();
                child.stderr.take().expect("a pipe").read_to_string(&mut log).expect("text");
                panic!("the server did not start: {log}");
            };
            line.expect("text").split_once(" at ").expect("an address").1.to_owned()
        };
        let uris = (0..volumes).map(uri).collect();
        Server { directory, uris, child, may_panic }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path of the control socket, at its default location.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("nbd.control")
    }

    pub(crate) fn client(&self, volume: usize) -> Client {
        Client::connect(&self.uris[volume].parse().expect("an address")).expect("a connection")
    }

    /// Runs `larder ctl` with `args`.
    pub(crate) fn ctl(&self, args: &[&str]) -> Output {
        self.ctl_command(args).output().expect("the program runs")
    }

    pub(crate) fn ctl_command(&self, args: &[&str]) -> Command {
        let mut command = larder();
        command.args(["ctl", "--control"]).arg(self.socket()).args(args);
        command
    }

    /// Returns the output of `larder ctl` with `args`, which must succeed.
    pub(crate) fn ctl_text(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send_raw(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Response {
        self.send_raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n\
             {body}",
            body.len()
        ))
    }

    /// Sends `request` to the control socket, and returns the response up to the end of the
    /// connection.
    pub(crate) fn send_raw(&self, request: &str) -> Response {
        send_request(UnixStream::connect(self.socket()).expect("a connection"), request)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Closes the read end of the server's standard error.
    pub(crate) fn close_stderr(&mut self) {
        drop(self.child.stderr.take());
    }

    /// Waits until the server exits, which must be with success. Returns its standard error, unless
    /// that is closed.
    pub(crate) fn wait(mut self) -> String {
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).expect("text");
        }
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{log}");
        assert!(self.may_panic || !log.contains(" panicked at "), "{log}");
        log
    }

    /// Stops the server with SIGTERM. Returns its directory and its standard error.
    pub(crate) fn stop_and_keep(mut self) -> (TempDir, String) {
        let directory =
            std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (directory, self.stop())
    }

    /// Kills the server. Returns its directory and its standard error.
    pub(crate) fn kill_and_keep(mut self) -> (TempDir, String) {
        self.signal(Signal::KILL);
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut log).expect("text");
        self.child.wait().expect("it ends");
        let directory =
            std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (directory, log)
    }

    /// Sends a signal and waits for the end of the server. Returns its directory, its exit code if
    /// there is one, and its standard error.
    pub(crate) fn end_with(mut self, signal: Signal) -> (TempDir, Option<i32>, String) {
        // The process may have ended already.
        let _still_runs = kill_process(Pid::from_child(&self.child), signal).is_ok();
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut log).expect("text");
        let status = self.child.wait().expect("it ends");
        let directory =
            std::mem::replace(&mut self.directory, TempDir::new().expect("a directory"));
        (directory, status.code(), log)
    }

    /// Stops the server with SIGTERM and returns its standard error.
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number of file descriptors of the server.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Reads the standard error of the server up to a line for which `matches` returns true, and
    /// returns that line.
    pub(crate) fn wait_for_line(&mut self, matches: impl Fn(&str) -> bool) -> String {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        let (mut bytes, mut byte) = (Vec::new(), [0]);
        loop {
            stderr.read_exact(&mut byte).expect("it says something");
            if byte[0] != b'\n' {
                bytes.push(byte[0]);
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut bytes)).expect("text");
            if matches(&line) {
                return line;
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
        // The output of the server may show the cause of the failure.
        if std::thread::panicking()
            && let Some(stderr) = &mut self.child.stderr
        {
            let mut printed = Vec::new();
            // On a read error, the bytes read before it are shown.
            let _all = stderr.read_to_end(&mut printed);
            let printed = String::from_utf8_lossy(&printed);
            drop(writeln!(std::io::stdout(), "the server printed:\n{printed}"));
        }
    }
}

/// Creates empty images of 16 MiB.
pub(crate) fn images(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    let image = |name: &&str| {
        let path = directory.join(format!("{name}.img"));
        File::create(&path).and_then(|file| file.set_len(16 * MIB)).expect("an image");
        path
    };
    names.iter().map(image).collect()
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the message of an error response.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().expect("a refusal").to_owned()
    }

    /// Returns the JSON objects of a response that has one per line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Sends a request, and reads the response until the other side closes the connection.
pub(crate) fn send_request(mut stream: impl Read + Write, request: &str) -> Response {
    let sent = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    // A server that refuses a request may close the connection before it has read all of it, and
    // reset it after its answer.
    if let Err(error) = sent {
        let expected = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
        assert!(expected.contains(&error.kind()), "{error}");
    }
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    let all = String::from_utf8(bytes).expect("text");
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {all:?}"));
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { decode_chunks(body) } else { body.to_owned() };
    Response { status, head: head.to_owned(), body }
}

/// Decodes a chunked body.
fn decode_chunks(mut chunks: &str) -> String {
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
