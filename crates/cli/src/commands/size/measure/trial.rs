//! One run of the command through a newly mounted cache.
//!
//! Invariants: each run begins with an empty cache and without pages of the files in the kernel,
//! which is checked. The command has a process group of its own: Ctrl-C reaches only this process,
//! which then ends the group, so that no process of it keeps the mount in use.

use crate::commands::temporary_cache::Cache;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use larder_host::residency::files_below;
use larder_host::residency::prefetch::Files;
use larder_report::escape;
use larder_schema::control::VolumeStats;
use larder_schema::format;
use larder_schema::measured::MeasuredRun;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The variable with the path of the mounted directory.
const VARIABLE: &str = "LARDER_MOUNT";
/// Interval at which the command is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Time that the command has to end after SIGTERM.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Work that a signal has stopped.
#[derive(Debug)]
pub(super) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("measure the command: a signal stopped it")
    }
}

impl Error for Stopped {}

/// The work of the cache in a run, and the size of the directory after it.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) run: MeasuredRun,
    /// Bytes of data that the cache can hold.
    pub(super) data_bytes: u64,
    /// The store during the run: the number of reads and writes, and their time in nanoseconds.
    pub(super) store_reads: (u64, u64),
    pub(super) store_writes: (u64, u64),
    pub(super) directory: DirectoryState,
}

/// The files of a directory: their number and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryState {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl DirectoryState {
    pub(super) fn of(directory: &Path) -> Result<DirectoryState> {
        let mut state = DirectoryState { files: 0, bytes: 0 };
        for file in files_below(directory)? {
            state.files += 1;
            state.bytes += file.symlink_metadata().map_or(0, |metadata| metadata.len());
        }
        Ok(state)
    }

    fn describe(self) -> String {
        format!("{}, {}", format::counted(self.files, "file"), format::bytes(self.bytes))
    }
}

/// Returns a note if the directory is not the same after each run as before the first.
pub(super) fn describe_change(
    before: DirectoryState,
    mut after: impl Iterator<Item = DirectoryState>,
) -> Option<String> {
    let changed = after.find(|&state| state != before)?;
    Some(format!(
        "The command changes the directory: {} before the first run, {} after another one. Its \
         runs do different work; let it remove what it makes.",
        before.describe(),
        changed.describe()
    ))
}

/// Runs the command once through a new cache, and ends the cache.
pub(super) fn run(
    cache: &mut Cache,
    (directory, mount): (&Path, &Path),
    command: &[OsString],
    stop: &Stop,
) -> Result<Trial> {
    cache.stop()?;
    drop_pages(directory, stop)?;
    cache.start()?;
    let resident = cache.resident_bytes()?;
    ensure!(resident == 0, "begin with an empty cache: it holds {}", format::bytes(resident));
    let before = cache.stats()?;
    let elapsed = run_command(command, mount, stop)?;
    if let Some(reason) = cache.exit_description() {
        bail!("run the command: {reason}");
    }
    // The number of bytes written is complete only after a flush.
    cache.flush()?;
    let (stats, _) = cache.stats()?.since(&before);
    cache.stop()?;
    let volume = stats.volumes.into_iter().next().context("read the counters of the cache")?;
    let data_bytes = stats.pool.get("memory_target_bytes").copied().unwrap_or(0);
    let directory = DirectoryState::of(directory)?;
    Ok(trial(&volume, elapsed, data_bytes, directory))
}

fn trial(
    volume: &VolumeStats,
    elapsed: Duration,
    data_bytes: u64,
    directory: DirectoryState,
) -> Trial {
    let count = |name: &str| volume.counters.get(name).copied().unwrap_or(0);
    let times = |name: &str| volume.latencies.get(name).map_or((0, 0), |it| (it.count, it.sum));
    let run = MeasuredRun {
        number: 0,
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        read_pages: volume.read_pages,
        read_hit_pages: volume.read_hits,
        read_hit_ratio: volume.read_hit_ratio.unwrap_or(0.0),
        read_bytes: count("store_read_bytes"),
        written_bytes: count("store_write_bytes"),
    };
    let store_reads = times("store_read_service_ns");
    let store_writes = times("store_write_service_ns");
    Trial { run, data_bytes, store_reads, store_writes, directory }
}

/// Drops the pages of all files from the kernel's page cache.
fn drop_pages(directory: &Path, stop: &Stop) -> Result<()> {
    let keep_going = || !stop.flag().load(Ordering::Acquire);
    let files = Files::open(files_below(directory)?)?;
    files.drop(keep_going)?;
    if !keep_going() {
        return Err(Stopped.into());
    }
    let resident = files.residency()?.sum.resident;
    ensure!(
        resident == 0,
        "begin with a cold directory {}: the kernel keeps {} of its files in memory; stop the \
         programs that use it",
        escape::path(directory),
        format::counted(resident, "page")
    );
    Ok(())
}

/// Runs the command to its end, and returns its time.
fn run_command(command: &[OsString], mount: &Path, stop: &Stop) -> Result<Duration> {
    let (program, arguments) = command.split_first().context("run the command: none is given")?;
    let shown = escape::path(program.as_ref()).into_owned();
    let mut process = Command::new(program);
    process.args(arguments).current_dir(mount).env(VARIABLE, mount).process_group(0);
    process.stdin(Stdio::null()).stdout(Stdio::null());
    let started_at = Instant::now();
    let mut child = process.spawn().with_context(|| format!("run {shown}"))?;
    let is_stopped = wait_for_end(&child, stop)?;
    let elapsed = started_at.elapsed();
    if is_stopped {
        end_group(&child, Signal::TERM);
        wait_at_most(&child, END_TIME_MAX)?;
    }
    // Processes that the command has left behind would keep the mount in use. The command is not
    // reaped yet, so that no other group has its number.
    end_group(&child, Signal::KILL);
    let status = child.wait().with_context(|| format!("wait for {shown}"))?;
    if is_stopped {
        return Err(Stopped.into());
    }
    ensure!(
        status.success(),
        "measure the command: {shown} {}; make it succeed without --measure first",
        describe(status)
    );
    Ok(elapsed)
}

/// Waits for the end of the command; returns true if a signal came before it.
fn wait_for_end(child: &Child, stop: &Stop) -> Result<bool> {
    while !has_ended(child)? {
        if stop.flag().load(Ordering::Acquire) {
            return Ok(true);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    Ok(false)
}

fn wait_at_most(child: &Child, time: Duration) -> Result<()> {
    let started_at = Instant::now();
    while !has_ended(child)? && started_at.elapsed() < time {
        std::thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}

/// Returns true if a process has ended, and does not reap it.
fn has_ended(child: &Child) -> Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_child(child)), options);
    Ok(status.context("wait for the command")?.is_some())
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "failed".to_owned(),
    }
}

/// Sends a signal to the process group of the command, which may be empty.
fn end_group(child: &Child, signal: Signal) {
    let _is_empty = kill_process_group(Pid::from_child(child), signal).is_err();
}
