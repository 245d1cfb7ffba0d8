//! The temporary cache of `larder try`: a `larder mount` of this very program, as a process of its
//! own, so that it has the memory and the threads that it would have elsewhere, and so that its end
//! is not ours.
//!
//! Invariants: it ends when this process does, however that comes about, since it ends with its
//! standard input; Ctrl-C reaches this process alone, which then ends it in order; when
//! [`Cache::stop`] is back it is gone and nothing is mounted.

use super::scratch::Scratch;
use crate::commands::ctl::Client;
use anyhow::{Context, Result, anyhow, bail};
use larder_core::mode::FlushMode;
use larder_host::processes;
use larder_io::front::fuse::detach_ours;
use larder_report::control::{Files, Stats, VolumeRequest};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to write everything when it ends. What it has is ours and of no use to
/// anybody any more, so then it is killed.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How it is mounted.
#[derive(Clone, Debug)]
pub(super) struct Mounting {
    pub(super) memory: u64,
    pub(super) flush: FlushMode,
    pub(super) files: PathBuf,
    pub(super) mount: PathBuf,
    control: PathBuf,
    said: PathBuf,
}

impl Mounting {
    pub(super) fn new(memory: u64, flush: FlushMode, scratch: &Scratch) -> Self {
        let (files, mount) = (scratch.files(), scratch.mount());
        Mounting {
            memory,
            flush,
            files,
            mount,
            control: scratch.control(),
            said: scratch.log_path(),
        }
    }
}

fn ended_with(status: ExitStatus) -> String {
    format!("the cache ended in the middle of it ({status})")
}

/// The cache, which runs or does not.
#[derive(Debug)]
pub(super) struct Cache {
    how: Mounting,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    client: Client,
}

impl Cache {
    pub(super) fn new(how: Mounting) -> Self {
        Cache { how, running: None }
    }

    /// Mounts it anew, with nothing in it.
    pub(super) fn start(&mut self) -> Result<()> {
        self.stop()?;
        let what = "start the cache";
        let program = std::env::current_exe().context(what)?;
        let said = File::create(&self.how.said).context(what)?;
        let mut command = Command::new(program);
        command.arg("mount").arg(&self.how.files).arg(&self.how.mount).arg("--while-input");
        command.args(["--memory", &self.how.memory.to_string()]);
        command.args(["--flush", self.how.flush.name()]);
        command.arg("--control").arg(&self.how.control);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        // In a group of its own, so that a terminal does not stop it together with us.
        let mut child = command.process_group(0).spawn().context(what)?;
        let out = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        // It says where it is mounted, or ends.
        let heard = BufReader::new(out).read_line(&mut line);
        let client = Client::at(&self.how.control)?;
        self.running = Some(Running { child, client });
        if heard.context(what)? == 0 {
            self.end()?;
            bail!("{}", self.why_it_ended());
        }
        Ok(())
    }

    /// The last sentence that it said, as one that can follow "failed to".
    fn why_it_ended(&self) -> String {
        let said = std::fs::read_to_string(&self.how.said).unwrap_or_default();
        let last = said.lines().rev().find_map(|line| line.strip_prefix("larder: failed to "));
        last.unwrap_or("start the cache: it ended without a word").to_owned()
    }

    /// Ends it, if it runs: everything is written and nothing is mounted any more. One that does
    /// not end is killed.
    ///
    /// # Errors
    /// It had ended before, on its own, or was killed by somebody else.
    pub(super) fn stop(&mut self) -> Result<()> {
        let before = self.ended();
        let after = self.end()?.filter(|status| !status.success()).map(ended_with);
        before.or(after).map_or(Ok(()), |how| Err(anyhow!("go on: {how}")))
    }

    /// Ends it in any case; how it ended, if it did when it was asked to.
    fn end(&mut self) -> Result<Option<ExitStatus>> {
        let Some(Running { mut child, .. }) = self.running.take() else { return Ok(None) };
        let asked = kill_process(Pid::from_child(&child), Signal::TERM);
        let begun = Instant::now();
        let mut ended = child.try_wait().context("end the cache")?;
        while ended.is_none() && asked.is_ok() && begun.elapsed() < END_PATIENCE {
            std::thread::sleep(LOOK_EVERY);
            ended = child.try_wait().context("end the cache")?;
        }
        if ended.is_none() {
            child.kill().and_then(|()| child.wait().map(drop)).context("end the cache")?;
        }
        // One that was killed leaves a dead mount.
        detach_ours(&self.how.mount)?;
        Ok(ended)
    }

    /// How it ended, if it did so on its own.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status: ExitStatus = self.running.as_mut()?.child.try_wait().ok()??;
        Some(ended_with(status))
    }

    fn client(&self) -> Result<&Client> {
        let running =
            self.running.as_ref().ok_or_else(|| anyhow!("ask the cache: it has ended"))?;
        Ok(&running.client)
    }

    /// What it has counted since it was mounted.
    pub(super) fn stats(&self) -> Result<Stats> {
        self.client()?.get("stats")
    }

    /// Has it write everything that it has not yet.
    pub(super) fn flush(&self) -> Result<()> {
        let asked = VolumeRequest::default();
        let (_, failures) = self.client()?.follow("flush", &asked, |_| ())?;
        if let Some(failure) = failures.into_iter().next() {
            bail!("write everything: {failure}");
        }
        Ok(())
    }

    /// Bytes of all files that are in it, those that no name leads to as well.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let files: Files = self.client()?.get("files")?;
        Ok(files.files.iter().map(|file| file.resident_bytes).sum())
    }

    /// Bytes that it asked disks to move since it began.
    pub(super) fn disk_bytes(&self) -> u64 {
        let io = self.running.as_ref().and_then(|running| processes::of(running.child.id()));
        io.map_or(0, |io| io.disk_read_bytes + io.dirtied_bytes)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("larder: note: failed to {error:#}");
        }
    }
}
