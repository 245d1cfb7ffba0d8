//! A program in the background. It ends, with its process group, when its [`Daemon`] is dropped,
//! and when this process ends.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::cleanup::Cleanup;
use crate::run;

/// The maximum time from the start until the program is ready, and from a signal to its end.
const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_mins(2);
/// The time from SIGTERM to SIGKILL for a program that is no longer needed.
const DROP_MAX: Duration = Duration::from_secs(5);

/// Ends the process group `$1`. SIGTERM comes first: `timeout` and `mpirun` forward it to processes
/// in other groups.
const END_GROUP: &str = "
kill -s TERM -- \"-$1\"
for try in 1 2 3 4 5 6 7 8 9 10; do kill -s 0 -- \"-$1\" || exit; sleep 0.2; done
kill -s KILL -- \"-$1\"";

/// Waits up to `limit` until `condition` returns true.
pub(crate) fn poll_until(
    description: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while !condition()? {
        ensure!(begun.elapsed() < limit, "timed out after {} s: {description}", limit.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The result of a program that has ended.
pub(crate) struct ProgramResult {
    /// The exit code, or `None` if a signal ended the program.
    pub(crate) code: Option<i32>,
    /// The time from the signal to the end.
    pub(crate) took: Duration,
    pub(crate) stderr: String,
}

/// A running program, whose output goes to its own directory.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) name: String,
    child: Child,
    cleanup: Cleanup,
    dir: tempfile::TempDir,
}

impl Daemon {
    /// Starts the command that `make` returns for the directory of the program.
    pub(crate) fn start(
        name: &str,
        scratch: &Path,
        make: impl FnOnce(&Path) -> Command,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("run-").tempdir_in(scratch);
        let dir = dir.context("make a directory for a program")?;
        let log = |name: &str| File::create(dir.path().join(name)).context("create a log");
        let mut command = make(dir.path());
        command.stdin(Stdio::null()).stdout(log("stdout")?).stderr(log("stderr")?);
        command.process_group(0);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let cleanup = Cleanup::start(END_GROUP, &[&child.id().to_string()])?;
        Ok(Self { name: name.to_owned(), child, cleanup, dir })
    }

    /// Waits until the program is ready; fails if it ends before.
    pub(crate) fn wait_until(&mut self, is_ready: impl Fn(&Self) -> bool) -> Result<()> {
        let description = format!("{} is ready", self.name);
        let ready =
            poll_until(&description, START_MAX, || self.check_alive().map(|()| is_ready(self)));
        ready.with_context(|| format!("start {}: {}", self.name, run::tail(&self.stderr())))
    }

    /// Returns the path of a file in the directory of the program.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the standard output so far.
    pub(crate) fn stdout(&self) -> String {
        std::fs::read_to_string(self.file("stdout")).unwrap_or_default()
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.file("stderr")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().with_context(|| format!("wait for {}", self.name))?.is_some())
    }

    /// Fails, with the last lines of its errors, if the program has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        ensure!(!self.has_ended()?, "{} ended\n{}", self.name, run::tail(&self.stderr()));
        Ok(())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.with_context(|| format!("signal {}", self.name))
    }

    /// Waits up to `limit` for the end of the program.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<ProgramResult> {
        let (begun, name) = (Instant::now(), self.name.clone());
        poll_until(&format!("{name} ends"), limit, || self.has_ended())?;
        let status = self.child.wait().with_context(|| format!("wait for {name}"))?;
        Ok(ProgramResult { code: status.code(), took: begun.elapsed(), stderr: self.stderr() })
    }

    /// Ends the program with a signal, and waits for its end.
    pub(crate) fn end(self, signal: Signal) -> Result<ProgramResult> {
        self.signal(signal)?;
        self.wait(STOP_MAX)
    }

    /// Ends the program with a signal; fails unless its exit code is 0.
    pub(crate) fn end_with_success(self, signal: Signal) -> Result<ProgramResult> {
        let name = self.name.clone();
        let ended = self.end(signal)?;
        let (code, last_lines) = (ended.code, run::tail(&ended.stderr));
        ensure!(code == Some(0), "{name}: exit code {code:?} after a signal\n{last_lines}");
        Ok(ended)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let group = Pid::from_child(&self.child);
            // A process group that has ended needs no signal.
            let _gone = kill_process_group(group, Signal::TERM);
            if poll_until("the end of a program", DROP_MAX, || self.has_ended()).is_err() {
                let _gone = kill_process_group(group, Signal::KILL);
                drop(self.child.wait());
            }
        }
        self.cleanup.cancel();
    }
}
