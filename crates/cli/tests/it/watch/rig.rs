//! Test file systems, the `watch` command, and its result.

use larder_host::residency;
use larder_host::scratch::{KINDS, Scratch, ScratchOptions};
use larder_host::tracefs::Tracefs;
use larder_schema::watch::{Counts, Watch};
use larder_testing::{MachineLock, budget, skip};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// XFS needs at least 300 MiB; the image is sparse.
const IMAGE_BYTES: u64 = 512 << 20;
/// Pages of the file that most workloads read.
pub(crate) const FILE_PAGES: u64 = 15_360;

/// Maximum time for the command to end.
pub(crate) const END_MAX: Duration = Duration::from_mins(5);

/// Returns `full`, or a quarter of it with the short budget.
pub(crate) fn requests(full: u64) -> u64 {
    budget(full / 4, full)
}

pub(crate) fn file_systems() -> &'static [&'static str] {
    &["ext4", "xfs", "btrfs"]
}

/// Returns the program under test.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("LARDER_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into())
}

/// Returns the values of `--bpf` that work on this machine.
pub(crate) fn bpf_modes() -> &'static [&'static str] {
    static MODES: std::sync::OnceLock<&[&str]> = std::sync::OnceLock::new();
    MODES.get_or_init(|| {
        let _tracefs = MachineLock::shared("tracefs");
        let mut command = Command::new(program());
        let output = command.args(["watch", "--bpf", "on", "--for", "100ms"]).output().unwrap();
        if output.status.success() {
            return &["on", "off"];
        }
        skip(format_args!("{}", String::from_utf8_lossy(&output.stderr).trim()));
        &["off"]
    })
}

/// A file system with a large file.
pub(crate) struct TestFs {
    pub(crate) kind: &'static str,
    scratch: Scratch,
    _directory: tempfile::TempDir,
}

/// Hits and misses as the workload itself determined them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroundTruth {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// A running `larder watch`.
pub(crate) struct Watcher {
    child: Child,
    result: PathBuf,
    _directory: tempfile::TempDir,
    /// Other tests count the instances in tracefs, and each start removes those of killed
    /// processes.
    _tracefs: MachineLock,
}

impl Watcher {
    /// Starts the command, and waits until it watches everything.
    pub(crate) fn start(args: &[&str]) -> Watcher {
        let tracefs = MachineLock::shared("tracefs");
        let directory = tempfile::tempdir().unwrap();
        let result = directory.path().join("watch.json");
        let mut child = Command::new(program())
            .arg("watch")
            .args(args)
            .args(["--rows", "1000", "-o"])
            .arg(&result)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let ready = lines.lines().map_while(Result::ok).any(|line| line.starts_with("watching "));
        assert!(ready, "it does not watch");
        Watcher { child, result, _directory: directory, _tracefs: tracefs }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the command as Ctrl-C does, and returns its result. No event may be lost.
    pub(crate) fn end(self) -> Watch {
        let watch = self.end_within(END_MAX);
        assert_eq!(watch.total.lost_events, 0, "events were lost");
        watch
    }

    /// As [`Watcher::end`], but events may be lost, as on a busy machine. If the command takes
    /// longer than `limit`, the test fails and kills it.
    pub(crate) fn end_within(mut self, limit: Duration) -> Watch {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begun.elapsed() < limit, "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
        let watch = Watch::from_json(&std::fs::read_to_string(&self.result).unwrap()).unwrap();
        for pair in watch.intervals.windows(2) {
            let end_ns = pair[0].begin_ns + pair[0].duration_ns;
            assert_eq!(end_ns, pair[1].begin_ns, "nothing lies between intervals");
        }
        watch
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // After a panic the command still runs. If it has ended, these calls have no effect.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the counts of a process on a file.
pub(crate) fn counts(watch: &Watch, file: &Path, pid: u32) -> Counts {
    let mut sum = Counts::default();
    let name = file.display().to_string();
    for row in watch.total.rows.iter().filter(|row| row.file == name && row.pid == pid) {
        sum += row.counts;
    }
    sum
}

/// Returns the number of pages of a file that left the cache while it was watched; a later read of
/// one of them misses.
pub(crate) fn gone_pages(watch: &Watch, file: &Path) -> u64 {
    let name = file.display().to_string();
    let rows = watch.total.rows.iter().filter(|row| row.file == name);
    rows.map(|row| row.counts.evicted_pages + row.counts.dropped_pages).sum()
}

/// Returns true if the kernel has written back dirty pages, for another process's sync(2) or by
/// age. Later writes make these pages dirty again.
pub(crate) fn is_written_back(watch: &Watch) -> bool {
    watch.total.rows.iter().any(|row| row.counts.lazy_flushes > 0)
}

impl TestFs {
    /// Creates the file system. Reports a skip and returns `None` if this machine cannot.
    pub(crate) fn on(kind: &'static str) -> Option<TestFs> {
        if let Err(error) = Tracefs::open() {
            skip(error);
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let metadata: &[&str] = if kind == "btrfs" { &["-m", "single"] } else { &[] };
        let options = ScratchOptions {
            kind: KINDS.iter().find(|it| it.name == kind).unwrap(),
            bytes: IMAGE_BYTES,
            scheduler: "none".to_owned(),
            // With a single copy of the metadata, syncs are a small part of all writes.
            make_options: metadata.iter().map(ToString::to_string).collect(),
            mount_options: String::new(),
        };
        match Scratch::make(directory.path(), &options) {
            Ok(scratch) => {
                let test_fs = TestFs { kind, scratch, _directory: directory };
                test_fs.fill("file", FILE_PAGES);
                Some(test_fs)
            }
            Err(error) => {
                skip(format_args!("{kind}: {error}"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path().join("file")
    }

    /// Creates a file of `pages` pages.
    pub(crate) fn fill(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.path().join(name);
        let bytes = usize::try_from(pages * residency::page_bytes()).unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at / 512 % 251).to_le_bytes()[0]).collect();
        std::fs::write(&path, content).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        path
    }

    /// Drops the file from memory and runs the workload. The command must report the hits and
    /// misses that the workload determined.
    pub(crate) fn compare(&self, name: &str, workload: fn(&File) -> GroundTruth) {
        for mode in bpf_modes() {
            self.compare_with_mode(mode, name, workload);
        }
    }

    fn compare_with_mode(&self, mode: &str, name: &str, workload: fn(&File) -> GroundTruth) {
        let path = self.file();
        residency::drop::file(&path).unwrap();
        let watcher = Watcher::start(&[self.path().to_str().unwrap(), "--bpf", mode]);
        let truth = workload(&File::open(&path).unwrap());
        let watch = watcher.end();
        let found = counts(&watch, &path, std::process::id());
        let mapped = found.map_touches > 0;
        let (misses, pages) = if mapped {
            (found.map_misses, found.map_touches)
        } else {
            (found.miss_pages, found.read_pages)
        };
        // A page that leaves and comes back within a request is missed twice.
        let reported = GroundTruth { hits: pages.saturating_sub(misses), misses };
        let all = truth.hits + truth.misses;
        let errors = reported.misses.abs_diff(truth.misses).max(reported.hits.abs_diff(truth.hits));
        println!(
            "shown: {}, --bpf {mode}, {name}: {} hits and {} misses, told {} and {} ({} ahead)",
            self.kind,
            truth.hits,
            truth.misses,
            reported.hits,
            reported.misses,
            found.read_ahead_hit_pages
        );
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let share = errors as f64 / all as f64;
        assert!(
            share <= super::WRONG_MAX,
            "{} {mode} {name}: {truth:?} {reported:?} {found:?} {:#?}",
            self.kind,
            watch.total.rows
        );
    }
}

/// Returns the number of tracefs instances of a process. Other tests have theirs at the same time.
fn instances(pid: u32) -> usize {
    let tracefs = Tracefs::open().unwrap();
    let entries = std::fs::read_dir(tracefs.root().join("instances")).unwrap();
    let name = format!("larder-{pid}-");
    entries.flatten().filter(|it| it.file_name().to_string_lossy().starts_with(&name)).count()
}

/// A killed run leaves a tracefs instance, which the next run removes.
pub(crate) fn check_cleanup_after_kill() {
    let watcher = Watcher::start(&[]);
    let killed = watcher.child.id();
    assert!(instances(killed) >= 1);
    // The instance is gone already if another test has started a run since.
    watcher.kill();
    let watcher = Watcher::start(&[]);
    let next = watcher.child.id();
    assert_eq!(instances(killed), 0, "the next one has removed it");
    assert!(instances(next) >= 1);
    watcher.end_within(END_MAX);
    assert_eq!(instances(next), 0, "and itself");
}
