//! `cargo xtask test --stress ROUNDS [FILTER]`: repeats all tests, or those that a nextest filter
//! selects, under load and with scarce resources.
//!
//! In every round process IDs wrap and TMPDIR is a nearly full file system. In every second round
//! stress-ng keeps all processors and the disk busy; in the others the tests have half a processor.
//! A test that fails in any round depends on timing or on resources that it must not rely on.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Line;
use super::skips::Skips;
use crate::cleanup::{Cleanup, Scratch};
use crate::disk::FileSystem;
use crate::image::MIB;
use crate::processor_group::HalfProcessor;
use crate::table::Verdict;
use crate::{TaskStatus, image, nextest, packages, run, table};

/// The number of concurrent tests: more than usual, which makes a round shorter and its load
/// larger.
const THREADS: &str = "--test-threads=8";

/// The size of the file system of TMPDIR, and its free space. The largest test uses half of that.
const DISK_MIB: u64 = 6144;
const FREE_MIB: u64 = 2560;
/// The space in MiB that stays free on the disk under TMPDIR.
const SPARE_MIB: u64 = 1024;

/// The interval at which process IDs wrap.
const WRAP_EVERY: Duration = Duration::from_secs(10);

/// The number of process IDs left before they wrap.
const LEFT: u32 = 300;

const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

/// The rounds in which each test failed.
type Failures = BTreeMap<String, Vec<u32>>;

/// Runs `rounds` rounds of the tests that `filter` selects; prints those that failed in any.
pub(super) fn command(rounds: u32, filter: &str) -> Result<TaskStatus> {
    ensure!(run::is_root(), "run tests under stress: needs root, for process IDs and limits");
    // Checked here, so that the results of the first round are not lost.
    if let Some(reason) = HalfProcessor::unavailable_reason().filter(|_| rounds > 1) {
        bail!(
            "cannot limit the CPU time of round 2: {reason} (run one round, or boot with cgroup v1)"
        );
    }
    if let Err(error) = packages::install() {
        println!("{error:#}; tests that need them are skipped");
    }
    packages::install_these(&[("stress-ng", "stress-ng")])?;
    nextest::install()?;
    nextest::build()?;
    let scratch = Scratch::new()?;
    let disk = NearlyFull::new(scratch.path())?;
    let skips = Skips::collect();
    let mut failures = Failures::new();
    let mut table = Vec::new();
    for round in 1..=rounds {
        let condition = if round % 2 == 1 { "busy" } else { "half a processor" };
        println!("\n== round {round} of {rounds}: {condition}");
        let begun = Instant::now();
        let failed = under_stress(round, filter, disk.path(), &skips)?;
        let seconds = begun.elapsed().as_secs().to_string();
        table.push(vec![round.to_string(), condition.into(), seconds, failed.len().to_string()]);
        for test in failed {
            failures.entry(test).or_default().push(round);
        }
    }
    println!();
    table::print(&["round", "machine", "seconds", "failed"], &table);
    for (test, rounds) in &failures {
        println!("{test}: failed in rounds {rounds:?}");
    }
    let mut lines = Vec::new();
    skips.report(&mut lines);
    for Line { name, note, verdict } in &lines {
        println!("{name}: {} ({note})", verdict.word());
    }
    let (failed, skipped) = (failures.len(), lines.len());
    println!("\n{failed} flaky tests in {rounds} rounds, {skipped} skips");
    let is_refused = lines.iter().any(|line| line.verdict == Verdict::Fails);
    Ok(if failed == 0 && !is_refused { TaskStatus::Passed } else { TaskStatus::Failed })
}

/// Runs one round; returns the names of the tests that failed.
fn under_stress(round: u32, filter: &str, tmp: &Path, skips: &Skips) -> Result<Vec<String>> {
    let _wrapping = Wrapping::start()?;
    let mut tests = nextest::command(filter)?;
    tests.arg(THREADS);
    let status = if round % 2 == 1 {
        let mut load = Load::start(tmp)?;
        let status = tests.env("TMPDIR", tmp).env("LARDER_SKIPS", skips.file()).status();
        load.check_alive()?;
        status
    } else {
        let group = HalfProcessor::new()?;
        group.wrap(&tests).env("TMPDIR", tmp).env("LARDER_SKIPS", skips.file()).status()
    };
    let status = status.context("run the tests")?;
    let failed = nextest::failed_tests()?;
    ensure!(status.success() || !failed.is_empty(), "the tests did not run: {status}");
    Ok(failed)
}

/// A nearly full file system for TMPDIR.
#[derive(Debug)]
struct NearlyFull(FileSystem);

impl NearlyFull {
    fn new(scratch: &Path) -> Result<Self> {
        let space = rustix::fs::statvfs(scratch).context("read the free space under TMPDIR")?;
        let (free_mib, least) = (space.f_bavail * space.f_frsize / MIB, FREE_MIB + SPARE_MIB);
        ensure!(
            free_mib >= least,
            "cannot make a nearly full file system under TMPDIR: {free_mib} MiB are free, and \
             {least} MiB are needed; set TMPDIR to a larger disk"
        );
        let file = image::create_sparse(&scratch.join("nearly-full.img"), DISK_MIB * MIB)?;
        let disk = FileSystem::new(scratch, &file)?;
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(disk.point(), all).context("open TMPDIR to all users")?;
        let filler = std::fs::File::create(disk.point().join("filler")).context("fill TMPDIR")?;
        rustix::fs::fallocate(
            &filler,
            rustix::fs::FallocateFlags::empty(),
            0,
            (DISK_MIB - FREE_MIB) * MIB,
        )
        .context("fill TMPDIR")?;
        Ok(NearlyFull(disk))
    }

    fn path(&self) -> &Path {
        self.0.point()
    }
}

/// A thread that makes process IDs wrap repeatedly.
struct Wrapping {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Wrapping {
    fn start() -> Result<Self> {
        let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").context("read pid_max")?;
        let most: u32 = most.trim().parse().context("read pid_max")?;
        let (stop, stopped) = channel::<()>();
        let wrap = move || std::fs::write(LAST_NUMBER, most.saturating_sub(LEFT).to_string());
        // A container may refuse it.
        if let Err(error) = wrap() {
            println!("process IDs do not wrap in this round: write {LAST_NUMBER}: {error}");
        }
        let thread = std::thread::spawn(move || {
            loop {
                drop(wrap());
                if stopped.recv_timeout(WRAP_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Ok(Wrapping { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Wrapping {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// stress-ng on all processors and on the disk.
struct Load {
    child: Child,
    cleanup: Cleanup,
}

impl Load {
    fn start(tmp: &Path) -> Result<Self> {
        let child = Command::new("stress-ng")
            .args(["--cpu", "4", "--io", "2", "--quiet", "--temp-path"])
            .arg(tmp)
            .stdin(Stdio::null())
            .spawn()
            .context("start stress-ng")?;
        let cleanup = Cleanup::start("kill \"$1\"", &[&child.id().to_string()])?;
        Ok(Load { child, cleanup })
    }

    /// Fails if stress-ng has ended, since the tests then ran without its load.
    fn check_alive(&mut self) -> Result<()> {
        let ended = self.child.try_wait().context("look for stress-ng")?;
        ensure!(ended.is_none(), "stress-ng ended during the round: {ended:?}");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // After the wait the process ID may belong to another process.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _gone = kill_process(Pid::from_child(&self.child), Signal::TERM);
            drop(self.child.wait());
        }
        self.cleanup.cancel();
    }
}
