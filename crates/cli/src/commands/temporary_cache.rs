//! A temporary cache in front of a directory, for `larder try` and `larder size --measure`: a
//! `larder mount` of this program in a separate process, so that it has the same memory and threads
//! as in production, and its failure does not end this process.
//!
//! Invariants: it ends when this process does, for any reason, since it ends with its standard
//! input; Ctrl-C reaches only this process, which then ends the cache in an orderly way; when
//! [`Cache::stop`] returns, the cache has ended and nothing is mounted.

pub(crate) mod scratch;

use crate::own_program::own_program;
use anyhow::{Context, Result, anyhow, bail};
use larder_host::processes;
use larder_io::front::fuse::detach_ours;
use larder_report::escape;
use larder_schema::control::{Files, Stats, VolumeRequest};
use larder_server::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use scratch::Scratch;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time limit for writing all dirty data at the end, if the data is not needed any more. The
/// process is killed after it.
const END_TIME_MAX: Duration = Duration::from_secs(30);
/// Time after which a cache that writes data of the user is reported.
const SLOW_END: Duration = Duration::from_secs(3);
/// Interval at which the process is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Configuration of the mount.
#[derive(Clone, Debug)]
pub(crate) struct MountConfig {
    /// The directory to cache.
    pub(crate) source: PathBuf,
    /// Memory of the cache, in bytes.
    pub(crate) memory: u64,
    /// Further options of `larder mount`.
    pub(crate) options: Vec<OsString>,
    /// True if the files belong to the user, so that the cache is not ended before it has written
    /// all data.
    pub(crate) keeps_data: bool,
}

fn describe_exit(status: ExitStatus) -> String {
    format!("the cache ended in the middle of it ({status})")
}

/// The cache, running or not.
#[derive(Debug)]
pub(crate) struct Cache {
    config: MountConfig,
    mount: PathBuf,
    control: PathBuf,
    log: PathBuf,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    client: Client,
}

impl Cache {
    /// Returns a cache that does not run yet; `scratch` has its mount point and its socket.
    pub(crate) fn new(config: MountConfig, scratch: &Scratch) -> Self {
        let (mount, control, log) = (scratch.mount(), scratch.control(), scratch.log_path());
        Cache { config, mount, control, log, running: None }
    }

    /// Mounts a new, empty cache.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.stop()?;
        let context = "start the cache";
        let program = own_program().context(context)?;
        let log = File::create(&self.log).context(context)?;
        let mut command = Command::new(program);
        command.arg("mount").arg(&self.config.source).arg(&self.mount).arg("--while-input");
        command.args(["--memory", &self.config.memory.to_string()]).args(&self.config.options);
        command.arg("--control").arg(&self.control);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // A separate process group: Ctrl-C on the terminal signals only this process.
        let mut child = command.process_group(0).spawn().context(context)?;
        let out = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        // The cache prints its mount point, or ends.
        let read = BufReader::new(out).read_line(&mut line);
        let client = Client::at(&self.control)?;
        self.running = Some(Running { child, client });
        if read.context(context)? == 0 {
            self.end()?;
            bail!("{}", self.last_error());
        }
        Ok(())
    }

    /// Returns the last error message of the cache, without "cannot".
    fn last_error(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find_map(|line| line.strip_prefix("larder: cannot "));
        last.unwrap_or("start the cache: it ended without a word").to_owned()
    }

    /// Ends the cache, if it runs: all data is written and nothing is mounted any more. A cache
    /// that does not end is killed, unless the data belongs to the user.
    ///
    /// # Errors
    /// The cache had ended before, or was killed by another process.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let before = self.exit_description();
        let after = self.end()?.filter(|status| !status.success()).map(describe_exit);
        before.or(after).map_or(Ok(()), |description| Err(anyhow!("go on: {description}")))
    }

    /// Ends the cache in any case; returns its exit status, if it ended in time.
    fn end(&mut self) -> Result<Option<ExitStatus>> {
        let Some(Running { mut child, .. }) = self.running.take() else { return Ok(None) };
        let signaled = kill_process(Pid::from_child(&child), Signal::TERM);
        let started_at = Instant::now();
        let mut status = child.try_wait().context("end the cache")?;
        let mut is_reported = false;
        while status.is_none() && signaled.is_ok() {
            let elapsed = started_at.elapsed();
            if !self.config.keeps_data && elapsed >= END_TIME_MAX {
                break;
            }
            if self.config.keeps_data && elapsed >= SLOW_END && !is_reported {
                is_reported = true;
                let source = escape::path(&self.config.source);
                eprintln!(
                    "larder: the cache writes the rest of the data to {source}; SIGQUIT (Ctrl-\\) \
                     ends larder, and the cache continues alone"
                );
            }
            std::thread::sleep(CHECK_INTERVAL);
            status = child.try_wait().context("end the cache")?;
        }
        if status.is_none() {
            child.kill().and_then(|()| child.wait().map(drop)).context("end the cache")?;
        }
        // A killed process leaves a dead mount.
        detach_ours(&self.mount)?;
        Ok(status)
    }

    /// Returns a description of its end, if it ended on its own.
    pub(crate) fn exit_description(&mut self) -> Option<String> {
        let status: ExitStatus = self.running.as_mut()?.child.try_wait().ok()??;
        Some(describe_exit(status))
    }

    fn client(&self) -> Result<&Client> {
        let running =
            self.running.as_ref().ok_or_else(|| anyhow!("ask the cache: it has ended"))?;
        Ok(&running.client)
    }

    /// Returns its counters since it was mounted.
    pub(crate) fn stats(&self) -> Result<Stats> {
        self.client()?.get("stats")
    }

    /// Makes it write all dirty data.
    pub(crate) fn flush(&self) -> Result<()> {
        let request = VolumeRequest::default();
        let failures = self.client()?.follow("flush", &request, |_| ())?.failures;
        if let Some(failure) = failures.into_iter().next() {
            bail!("write everything: {failure}");
        }
        Ok(())
    }

    /// Returns the resident bytes of all files, including unlinked ones.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let files: Files = self.client()?.get("files")?;
        Ok(files.files.iter().map(|file| file.resident_bytes).sum())
    }

    /// Returns the bytes that it has read from and written to disks since it started.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let io = self.running.as_ref().and_then(|running| processes::of(running.child.id()));
        io.map_or(0, |io| io.disk_read_bytes + io.dirtied_bytes)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("larder: note: cannot {error:#}");
        }
    }
}
