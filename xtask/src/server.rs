//! The servers under test: Larder and its peers, started, watched and ended in one way.
//!
//! A [`Recipe`] says how to start one; a [`Server`] is one that answers on its unix socket. It dies
//! with its value, and with this process.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::run;
use crate::undo::Undo;

/// How long a server may take from start to the first connection.
const START_MAX: Duration = Duration::from_secs(30);

/// How long a server may take from SIGTERM to its end.
const STOP_MAX: Duration = Duration::from_mins(2);

/// How a server is started.
pub(crate) trait Recipe {
    /// Its name in tables and records.
    fn name(&self) -> String;

    /// The command that serves in the foreground on a unix socket until SIGTERM.
    fn command(&self, socket: &Path, scratch: &Path) -> Command;

    /// Whether it prints a line with each URI once it serves.
    fn announces(&self) -> bool {
        false
    }
}

/// Larder, the product.
#[derive(Debug, Clone)]
pub(crate) struct Larder {
    /// The binary.
    pub(crate) binary: PathBuf,
    /// Volumes, each `PATH` or `NAME=PATH`.
    pub(crate) volumes: Vec<String>,
    /// Further options of `serve`.
    pub(crate) options: Vec<String>,
}

impl Larder {
    /// A server of one image with options given as one line.
    pub(crate) fn serving(binary: &Path, image: &Path, options: &str) -> Self {
        Self {
            binary: binary.to_path_buf(),
            volumes: vec![image.to_string_lossy().into_owned()],
            options: options.split_whitespace().map(str::to_owned).collect(),
        }
    }
}

impl Recipe for Larder {
    fn name(&self) -> String {
        "larder".into()
    }

    fn command(&self, socket: &Path, _scratch: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("serve").args(&self.volumes).args(&self.options);
        command.arg("--listen").arg(format!("unix:{}", socket.display()));
        command
    }

    fn announces(&self) -> bool {
        true
    }
}

/// The servers that Larder is compared with.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// `nbdkit memory` of so many bytes.
    NbdkitMemory(u64),
    /// `nbdkit --filter=cache file` with reads cached.
    NbdkitCache(PathBuf),
    /// `qemu-nbd --cache=writeback`.
    QemuNbd(PathBuf),
    /// `nbdkit null` of so many bytes, where each read and write takes so long.
    NbdkitSlow(u64, Duration),
    /// The same, one read or write after the other.
    NbdkitDisk(u64, Duration),
}

impl Recipe for Peer {
    fn name(&self) -> String {
        match self {
            Self::NbdkitMemory(_) => "nbdkit memory".into(),
            Self::NbdkitCache(_) => "nbdkit cache filter".into(),
            Self::QemuNbd(_) => "qemu-nbd writeback".into(),
            Self::NbdkitSlow(..) => "nbdkit delay filter".into(),
            Self::NbdkitDisk(..) => "nbdkit delay filter, one at a time".into(),
        }
    }

    fn command(&self, socket: &Path, scratch: &Path) -> Command {
        let mut command = Command::new(match self {
            Self::QemuNbd(_) => "qemu-nbd",
            _ => "nbdkit",
        });
        match self {
            Self::NbdkitMemory(bytes) => {
                command.args(["--foreground", "--unix"]).arg(socket);
                command.arg("memory").arg(bytes.to_string());
            }
            Self::NbdkitSlow(bytes, time) | Self::NbdkitDisk(bytes, time) => {
                if matches!(self, Self::NbdkitDisk(..)) {
                    command.arg("--threads=1");
                }
                command.args(["--foreground", "--unix"]).arg(socket).arg("--filter=delay");
                let time = format!("{}ms", time.as_millis());
                command.arg("null").arg(format!("size={bytes}"));
                command.args([format!("rdelay={time}"), format!("wdelay={time}")]);
            }
            Self::NbdkitCache(image) => {
                command.args(["--foreground", "--unix"]).arg(socket).arg("--filter=cache");
                command.arg("file").arg(image).arg("cache-on-read=true");
                // The filter keeps its copy in a file there.
                command.env("TMPDIR", scratch);
            }
            Self::QemuNbd(image) => {
                command.args(["--persistent", "--shared=0", "--format=raw", "--cache=writeback"]);
                command.arg(format!("--socket={}", socket.display())).arg(image);
            }
        }
        command
    }
}

/// How a server ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    /// From the signal to the end.
    pub(crate) took: Duration,
    /// Everything it said on standard error.
    pub(crate) stderr: String,
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    undo: Undo,
    scratch: tempfile::TempDir,
}

impl Server {
    /// Starts a server and waits until it accepts connections (and has said so, if it does).
    pub(crate) fn start(recipe: &dyn Recipe, dir: &Path) -> Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("server-")
            .tempdir_in(dir)
            .context("make a directory for the server")?;
        let log = |name: &str| File::create(scratch.path().join(name)).context("create a log");
        let mut command = recipe.command(&scratch.path().join("socket"), scratch.path());
        command.stdin(Stdio::null()).stdout(log("stdout")?).stderr(log("stderr")?);
        let name = recipe.name();
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let undo = Undo::with("kill -9 \"$1\"", &[&child.id().to_string()])?;
        let mut server = Self { name, child, undo, scratch };
        server.wait_until_it_answers(recipe.announces())?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self, announces: bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("look after the server")? {
                bail!("{} ended at its start: {status}\n{}", self.name, run::tail(&self.stderr()));
            }
            let said = !announces || !self.announced().is_empty();
            if said && UnixStream::connect(self.socket()).is_ok() {
                return Ok(());
            }
            if begun.elapsed() > START_MAX {
                bail!(
                    "{} does not answer after {} s (URI printed: {said})\n{}",
                    self.name,
                    START_MAX.as_secs(),
                    run::tail(&self.stderr())
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The URIs it printed, in order.
    pub(crate) fn announced(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.scratch.path().join("stdout")).unwrap_or_default();
        text.split_whitespace()
            .filter(|word| word.starts_with("nbd+unix:///") || word.starts_with("nbds+unix:///"))
            .map(|word| word.trim_matches(['\'', '"', ',']).to_owned())
            .collect()
    }

    /// The socket it answers on.
    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.path().join("socket")
    }

    /// The socket that it is controlled by, if it is Larder.
    pub(crate) fn control(&self) -> PathBuf {
        self.scratch.path().join("socket.control")
    }

    /// The address of its default export.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said on standard error so far.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("stderr")).unwrap_or_default()
    }

    /// An error, with its last words, if it has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("look after the server")? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}\n{}", self.name, run::tail(&self.stderr())),
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process id out of range")?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Ends it with SIGTERM and waits.
    pub(crate) fn stop(self) -> Result<Ended> {
        self.end(Signal::TERM)
    }

    /// Ends it with SIGKILL and waits.
    pub(crate) fn kill(self) -> Result<Ended> {
        self.end(Signal::KILL)
    }

    fn end(mut self, signal: Signal) -> Result<Ended> {
        let begun = Instant::now();
        self.signal(signal)?;
        loop {
            if let Some(status) = self.child.try_wait().context("wait for the server")? {
                let stderr = self.stderr();
                return Ok(Ended { code: status.code(), took: begun.elapsed(), stderr });
            }
            if begun.elapsed() > STOP_MAX {
                bail!("{} does not end within {} s", self.name, STOP_MAX.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it with SIGTERM; an error unless its exit code is 0.
    pub(crate) fn stop_clean(self) -> Result<Ended> {
        let name = self.name.clone();
        let ended = self.stop()?;
        if ended.code != Some(0) {
            bail!("{name}: exit code {:?} after SIGTERM\n{}", ended.code, run::tail(&ended.stderr));
        }
        Ok(ended)
    }

    /// A field of `/proc/PID/status` that is given in kB, in bytes.
    pub(crate) fn memory_bytes(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid());
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse().ok());
        kib.map(|kib: u64| kib * 1024).with_context(|| format!("no {field} in {path}"))
    }

    /// Processor time it has used, user and system.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        // The name, in brackets, may hold blanks; utime and stime are fields 14 and 15.
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: Vec<u64> =
            fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse().ok()).collect();
        let [user, system] = ticks[..] else { bail!("{path} has an unknown form") };
        let ms = (user + system) * 1000 / rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis(ms))
    }

    /// How many files and sockets it holds open.
    pub(crate) fn open_files(&self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.pid());
        Ok(std::fs::read_dir(&path).with_context(|| format!("read {path}"))?.count())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
        self.undo.cancel();
    }
}
