//! File systems to work on, the command that watches, and what it said.

use larder_host::residency;
use larder_host::scratch::{KINDS, Scratch, ScratchOptions};
use larder_host::tracefs::Tracefs;
use larder_report::watch::{Counts, Watch};
use larder_testing::{MachineLock, budget, skip};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// XFS wants 300 MiB at least; the image is sparse.
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

/// The program that is tried.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("LARDER_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into())
}

/// The ways to learn of look-ups that this machine has, as `--bpf` takes them.
pub(crate) fn ways() -> &'static [&'static str] {
    static WAYS: std::sync::OnceLock<&[&str]> = std::sync::OnceLock::new();
    WAYS.get_or_init(|| {
        let _tracefs = MachineLock::shared("tracefs");
        let mut command = Command::new(program());
        let tried = command.args(["watch", "--bpf", "on", "--for", "100ms"]).output().unwrap();
        if tried.status.success() {
            return &["on", "off"];
        }
        skip(format_args!("{}", String::from_utf8_lossy(&tried.stderr).trim()));
        &["off"]
    })
}

/// A file system, with a large file on it.
pub(crate) struct Bench {
    pub(crate) kind: &'static str,
    scratch: Scratch,
    _directory: tempfile::TempDir,
}

/// What happened, as the workload saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// A command that watches.
pub(crate) struct Watching {
    child: Child,
    result: PathBuf,
    _directory: tempfile::TempDir,
    /// Other tests count the instances in tracefs, and each start removes those of killed
    /// processes.
    _tracefs: MachineLock,
}

impl Watching {
    /// Starts it, and waits until it sees everything.
    pub(crate) fn start(words: &[&str]) -> Watching {
        let tracefs = MachineLock::shared("tracefs");
        let directory = tempfile::tempdir().unwrap();
        let result = directory.path().join("watch.json");
        let mut child = Command::new(program())
            .arg("watch")
            .args(words)
            .args(["--rows", "1000", "-o"])
            .arg(&result)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let ready = lines.lines().map_while(Result::ok).any(|line| line.starts_with("watching "));
        assert!(ready, "it does not watch");
        Watching { child, result, _directory: directory, _tracefs: tracefs }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as Ctrl-C does and returns its result; no event may be lost.
    pub(crate) fn end(self) -> Watch {
        let watch = self.end_within(END_MAX);
        assert_eq!(watch.total.lost_events, 0, "events were lost");
        watch
    }

    /// As [`Watching::end`], but events may be lost, as on a busy machine. If it takes longer than
    /// `limit`, it is killed and the test fails.
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
        for two in watch.intervals.windows(2) {
            let end_ns = two[0].begin_ns + two[0].duration_ns;
            assert_eq!(end_ns, two[1].begin_ns, "nothing lies between intervals");
        }
        watch
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // After a panic nobody else ends it; one that has ended cannot be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a process did to a file.
pub(crate) fn counts(watch: &Watch, file: &Path, pid: u32) -> Counts {
    let mut sum = Counts::default();
    let name = file.display().to_string();
    for row in watch.total.rows.iter().filter(|row| row.file == name && row.pid == pid) {
        sum += row.counts;
    }
    sum
}

/// Returns how many pages of a file left the cache while it was watched; a later read of one of
/// them misses.
pub(crate) fn gone_pages(watch: &Watch, file: &Path) -> u64 {
    let name = file.display().to_string();
    let rows = watch.total.rows.iter().filter(|row| row.file == name);
    rows.map(|row| row.counts.evicted_pages + row.counts.dropped_pages).sum()
}

/// Returns whether the kernel has written back dirty pages, for another process's sync(2) or by
/// age. Later writes make these pages dirty again.
pub(crate) fn is_written_back(watch: &Watch) -> bool {
    watch.total.rows.iter().any(|row| row.counts.lazy_flushes > 0)
}

impl Bench {
    /// Nothing where this machine cannot: then why was printed.
    pub(crate) fn on(kind: &'static str) -> Option<Bench> {
        if let Err(error) = Tracefs::open() {
            skip(error);
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let metadata: &[&str] = if kind == "btrfs" { &["-m", "single"] } else { &[] };
        let wanted = ScratchOptions {
            kind: KINDS.iter().find(|it| it.name == kind).unwrap(),
            bytes: IMAGE_BYTES,
            scheduler: "none".to_owned(),
            // With a single copy of the metadata, syncs are a small part of all writes.
            make_options: metadata.iter().map(ToString::to_string).collect(),
            mount_options: String::new(),
        };
        match Scratch::make(directory.path(), &wanted) {
            Ok(scratch) => {
                let bench = Bench { kind, scratch, _directory: directory };
                bench.fill("file", FILE_PAGES);
                Some(bench)
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

    /// Makes a file of so many pages.
    pub(crate) fn fill(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.path().join(name);
        let bytes = usize::try_from(pages * residency::page_bytes()).unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at / 512 % 251).to_le_bytes()[0]).collect();
        std::fs::write(&path, content).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        path
    }

    /// From nothing in memory, a third of the file is read in pieces, and the workload runs. What
    /// the command says must be what the workload saw.
    pub(crate) fn compare(&self, name: &str, workload: fn(&File) -> Truth) {
        for way in ways() {
            self.compare_by(way, name, workload);
        }
    }

    fn compare_by(&self, way: &str, name: &str, workload: fn(&File) -> Truth) {
        let path = self.file();
        residency::drop::file(&path).unwrap();
        let watching = Watching::start(&[self.path().to_str().unwrap(), "--bpf", way]);
        let truth = workload(&File::open(&path).unwrap());
        let watch = watching.end();
        let found = counts(&watch, &path, std::process::id());
        let mapped = found.map_touches > 0;
        let (misses, pages) = if mapped {
            (found.map_misses, found.map_touches)
        } else {
            (found.miss_pages, found.read_pages)
        };
        // A page that leaves and comes back within a request is missed twice.
        let told = Truth { hits: pages.saturating_sub(misses), misses };
        let all = truth.hits + truth.misses;
        let wrong = told.misses.abs_diff(truth.misses).max(told.hits.abs_diff(truth.hits));
        println!(
            "shown: {}, --bpf {way}, {name}: {} hits and {} misses, told {} and {} ({} ahead)",
            self.kind, truth.hits, truth.misses, told.hits, told.misses, found.read_ahead_hit_pages
        );
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let share = wrong as f64 / all as f64;
        assert!(
            share <= super::WRONG_MAX,
            "{} {way} {name}: {truth:?} {told:?} {found:?}",
            self.kind
        );
    }
}

/// Instances that a process has made: other tests have theirs at the same time.
fn instances(maker: u32) -> usize {
    let tracefs = Tracefs::open().unwrap();
    let entries = std::fs::read_dir(tracefs.root().join("instances")).unwrap();
    let name = format!("larder-{maker}-");
    entries.flatten().filter(|it| it.file_name().to_string_lossy().starts_with(&name)).count()
}

/// A run that is killed leaves an instance, which the next one removes.
pub(crate) fn nothing_stays_after_a_kill() {
    let watching = Watching::start(&[]);
    let killed = watching.child.id();
    assert!(instances(killed) >= 1);
    // It is gone already if another test's run has begun since.
    watching.kill();
    let watching = Watching::start(&[]);
    let next = watching.child.id();
    assert_eq!(instances(killed), 0, "the next one has removed it");
    assert!(instances(next) >= 1);
    watching.end_within(END_MAX);
    assert_eq!(instances(next), 0, "and itself");
}
