//! The NBD servers under test, Larder and its peers: each listens on a separate unix socket.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::{Daemon, ProgramResult};
use crate::run::{self, cmd};

/// The name of a server's control socket in its directory.
const CONTROL: &str = "socket.control";

/// A server that Larder is compared with: its name in tables and records, and the command line that
/// serves on SOCKET in the foreground until SIGTERM.
pub(crate) struct Peer(pub(crate) &'static str, String);

impl Peer {
    pub(crate) fn new(name: &'static str, line: impl Into<String>) -> Self {
        Self(name, line.into())
    }

    /// Returns `nbdkit null` of `bytes` bytes with `threads` threads, where each read and write
    /// takes `time`.
    pub(crate) fn nbdkit_slow(bytes: u64, time: Duration, threads: u32) -> Self {
        let (line, ms) = ("nbdkit --foreground --unix SOCKET --filter=delay", time.as_millis());
        let arguments =
            format!("--threads={threads} null size={bytes} rdelay={ms}ms wdelay={ms}ms");
        Self::new("nbdkit delay filter", format!("{line} {arguments}"))
    }

    pub(crate) fn start(&self, scratch: &Path) -> Result<Server> {
        let command = |dir: &Path| {
            let line = self.1.replace("SOCKET", &dir.join("socket").to_string_lossy());
            let mut words = line.split(' ');
            let mut command = Command::new(words.next().unwrap_or_default());
            // The cache filter keeps its copy in a file there.
            command.args(words).env("TMPDIR", dir);
            command
        };
        Server::start(self.0, scratch, command, false)
    }
}

/// `larder serve` with volumes, each `PATH` or `NAME=PATH`, and options in one line.
pub(crate) struct Larder<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) volumes: Vec<String>,
    pub(crate) options: String,
}

impl Larder<'_> {
    /// Returns the command that serves on `dir/socket`.
    fn command(&self, dir: &Path) -> Command {
        let (binary, volumes, socket) = (self.binary, &self.volumes, dir.join("socket"));
        let options = self.options.split_whitespace();
        let control = dir.join(CONTROL);
        let listen = format!("unix:{}", socket.display());
        cmd!("{binary} serve {volumes...} {options...} --listen {listen} --control {control}")
    }

    pub(crate) fn start(&self, scratch: &Path) -> Result<Server> {
        self.start_as(scratch, |command| command)
    }

    /// Starts the command that `wrap` returns for the command of the server.
    pub(crate) fn start_as(
        &self,
        scratch: &Path,
        wrap: impl FnOnce(Command) -> Command,
    ) -> Result<Server> {
        Server::start("larder", scratch, |dir| wrap(self.command(dir)), true)
    }
}

/// A server that accepts connections.
pub(crate) struct Server(pub(crate) Daemon);

impl Server {
    /// Starts a server and waits until it accepts connections and, if it `announces` its address,
    /// has printed it.
    fn start(
        name: &str,
        scratch: &Path,
        command: impl FnOnce(&Path) -> Command,
        announces: bool,
    ) -> Result<Self> {
        let mut server = Self(Daemon::start(name, scratch, command)?);
        server.0.wait_until(|daemon| {
            let has_announced = !announces || !announced(&daemon.stdout()).is_empty();
            has_announced && UnixStream::connect(daemon.file("socket")).is_ok()
        })?;
        Ok(server)
    }

    /// Returns the URIs that it printed, in order.
    pub(crate) fn announced(&self) -> Vec<String> {
        announced(&self.0.stdout())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.file("socket")
    }

    /// Returns the path of Larder's control socket.
    pub(crate) fn control(&self) -> PathBuf {
        self.0.file(CONTROL)
    }

    /// Returns the URI of its default export.
    pub(crate) fn uri(&self) -> String {
        self.uri_of("")
    }

    /// Returns the URI of an export.
    pub(crate) fn uri_of(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// Returns the volume of this name in the reply to `larder ctl SUBCOMMAND`, or the first one if
    /// `name` is empty.
    pub(crate) fn volume(&self, larder: &Path, subcommand: &str, name: &str) -> Result<Value> {
        let control = self.control();
        let answer =
            run::json_of(cmd!(30, "{larder} ctl {subcommand} --format json --control {control}"))?;
        let volumes = answer["volumes"].as_array().context("no volumes in an answer")?;
        let matches = |it: &&Value| name.is_empty() || it["name"] == name || it["volume"] == name;
        volumes.iter().find(matches).cloned().with_context(|| format!("no volume {name}"))
    }

    pub(crate) fn stop(self) -> Result<ProgramResult> {
        self.0.end(Signal::TERM)
    }

    pub(crate) fn kill(self) -> Result<ProgramResult> {
        self.0.end(Signal::KILL)
    }

    /// Ends it with SIGTERM; fails unless its exit code is 0.
    pub(crate) fn stop_clean(self) -> Result<ProgramResult> {
        self.0.end_with_success(Signal::TERM)
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0.pid());
        std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }

    /// Returns in bytes a field of `/proc/PID/status` that is given in kB.
    pub(crate) fn memory_bytes(&self, field: &str) -> Result<u64> {
        let text = self.proc("status")?;
        kib_field(&text, field).with_context(|| format!("no {field} in /proc/PID/status"))
    }

    /// Returns its processor time, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let text = self.proc("stat")?;
        // The name, in parentheses, may contain blanks; utime and stime are fields 14 and 15.
        let fields = text.rsplit_once(") ").context("/proc/PID/stat has an unknown format")?.1;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
        let ticks = ticks.sum::<Result<u64, _>>().context("read /proc/PID/stat")?;
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
    }
}

/// Returns in bytes a field that a file such as `/proc/meminfo` gives in kB.
pub(crate) fn kib_field(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn announced(stdout: &str) -> Vec<String> {
    let words = stdout.split_whitespace();
    words
        .filter(|word| word.starts_with("nbd+unix:///") || word.starts_with("nbds+unix:///"))
        .map(|word| word.trim_matches(['\'', '"', ',']).to_owned())
        .collect()
}
