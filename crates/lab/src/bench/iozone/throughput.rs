//! Throughput mode: the same test in several concurrent threads, each on its own file.
//!
//! Threads begin a pass together. With the stonewall, as in IOzone, a pass ends for all threads
//! when the first of them has finished; the missing part of a file is then written outside the
//! time, so that the next pass has the whole file. Rates are bytes per second, sizes bytes, times
//! nanoseconds.

mod table;
mod test;

pub use table::{Seen, ThroughputTable};

use super::grid::Cell;
use super::sequence::{Part, Progressed, Sequence, work_directory};
use super::subject::AccessPattern;
use crate::bench::{BenchError, HostEnv, Plan, RunResult};
use larder_report::stats::median;
use larder_schema::format;
use larder_schema::run::Run;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use test::ThreadTest;

/// Maximum number of threads, which is also that of IOzone.
pub const THREADS_MAX: u64 = 1024;
/// Share of threads of the mixed test that read, by default.
pub const READERS: f64 = 0.5;

/// A measured pass of a test of `-i` by all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Number of its test.
    pub test: u8,
    /// The pass of the test.
    pub pass: usize,
    /// Name in results and in tables for spreadsheets.
    pub name: &'static str,
    /// Name of the threads that run it.
    pub who: &'static str,
}

const fn kind(test: u8, pass: usize, name: &'static str, who: &'static str) -> Kind {
    Kind { test, pass, name, who }
}

/// All kinds, in the order of IOzone's reports.
pub const KINDS: [Kind; 13] = [
    kind(0, 0, "initial write", "initial writers"),
    kind(0, 1, "rewrite", "rewriters"),
    kind(1, 0, "read", "readers"),
    kind(1, 1, "re-read", "re-readers"),
    kind(3, 0, "reverse read", "reverse readers"),
    kind(5, 0, "stride read", "stride readers"),
    kind(2, 0, "random read", "random readers"),
    kind(super::MIX_TEST, 0, "mixed workload", "mixed workload"),
    kind(2, 1, "random write", "random writers"),
    kind(9, 0, "pwrite", "pwrite writers"),
    kind(10, 0, "pread", "pread readers"),
    kind(6, 0, "fwrite", "fwriters"),
    kind(7, 0, "fread", "freaders"),
];

/// Returns the kinds of these tests, in the order of reports.
#[must_use]
pub fn kinds(tests: &[u8]) -> Vec<Kind> {
    KINDS.iter().filter(|kind| tests.contains(&kind.test)).copied().collect()
}

/// A figure of a pass of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Sum of the rates of all threads, each in its own time.
    Children,
    /// All bytes divided by the time from the first begin to the last end.
    Parent,
    /// The same including the flush; only for passes that write.
    ParentFlushed,
    /// Rate of the slowest thread.
    Min,
    /// Rate of the fastest thread.
    Max,
    /// Mean rate of all threads.
    Avg,
    /// Minimum number of bytes that a thread moved.
    MinMoved,
}

impl Figure {
    /// All figures.
    pub const ALL: [Figure; 7] = [
        Figure::Children,
        Figure::Parent,
        Figure::ParentFlushed,
        Figure::Min,
        Figure::Max,
        Figure::Avg,
        Figure::MinMoved,
    ];

    /// Returns the suffix of the series name.
    fn suffix(self) -> &'static str {
        match self {
            Figure::Children => "",
            Figure::Parent => ", parent",
            Figure::ParentFlushed => ", parent, flushed",
            Figure::Min => ", slowest thread",
            Figure::Max => ", fastest thread",
            Figure::Avg => ", mean of threads",
            Figure::MinMoved => ", least moved",
        }
    }
}

/// Parameters of a throughput run.
#[derive(Clone, Debug)]
pub struct ThroughputRun {
    /// Numbers of threads, each measured separately.
    pub threads: Vec<u64>,
    /// The file of each thread, and its records.
    pub cell: Cell,
    /// The tests, by their numbers.
    pub tests: Vec<u8>,
    /// The way in which files are opened.
    pub manner: AccessPattern,
    /// True if a pass ends for all threads with the first one that has finished.
    pub stonewall: bool,
    /// The share of threads that read in the mixed test, 0 to 1; if it is [`READERS`], even threads
    /// read and odd ones write.
    pub readers: f64,
    /// An existing, writable directory.
    pub directory: PathBuf,
}

impl ThroughputRun {
    /// Runs all tests; a stop after the first result returns the results so far.
    ///
    /// # Errors
    /// The directory for the files cannot be created, or the first error of a test.
    pub fn run(
        &self,
        plan: &Plan,
        host: &dyn HostEnv,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<RunResult, BenchError> {
        let most = self.threads.iter().copied().max().unwrap_or(0);
        let directory = work_directory(&self.directory);
        let file = |thread| directory.join(format!("file.{thread}"));
        let files: Vec<PathBuf> = (0..most).map(file).collect();
        // The tests of a thread share its file.
        let tests: BTreeSet<u8> = kinds(&self.tests).iter().map(|kind| kind.test).collect();
        let mut parts: Vec<Part<'_>> = Vec::new();
        for &threads in &self.threads {
            for &test in &tests {
                let count = usize::try_from(threads).expect("at most 1024");
                let workload = ThreadTest::new(test, self, &files[..count]);
                parts.push(Part {
                    workload: Box::new(workload),
                    bytes: self.cell.file_bytes * threads,
                    what: format!("test {test} by {}", threads_text(threads)),
                });
            }
        }
        let size = format::bytes(self.cell.file_bytes);
        let record = format::bytes(self.cell.record_bytes);
        let what = format!("IOzone throughput: {size} for each thread, in records of {record}");
        Sequence::new(what, parts, directory.clone()).run_sequence(plan, host, stop, on_progress)
    }

    /// Returns the median of a figure, if it was measured.
    #[must_use]
    pub fn value(&self, run: &Run, kind: &Kind, figure: Figure, threads: u64) -> Option<f64> {
        median(&run.sample(&test::series(kind, figure, threads).name)?.values)
    }

    /// Returns the figures of parent and children for a kind with this number of threads.
    #[must_use]
    pub fn seen(&self, run: &Run, kind: &Kind, threads: u64) -> Option<Seen> {
        let value = |figure| self.value(run, kind, figure, threads);
        Some(Seen {
            who: kind.who,
            threads,
            children: value(Figure::Children)?,
            parent: value(Figure::Parent)?,
            parent_flushed: value(Figure::ParentFlushed),
            min: value(Figure::Min)?,
            max: value(Figure::Max)?,
            avg: value(Figure::Avg)?,
            min_moved: value(Figure::MinMoved)?,
        })
    }

    /// Returns the table for spreadsheets: the rates of the children, or with `flushed` those of
    /// the parent including the flush, for kinds that write.
    #[must_use]
    pub fn table(&self, run: &Run, flushed: bool) -> ThroughputTable {
        let rate = |kind: &Kind, threads: &u64| {
            let with = flushed.then(|| self.value(run, kind, Figure::ParentFlushed, *threads));
            let plain = || self.value(run, kind, Figure::Children, *threads);
            with.flatten().or_else(plain)
        };
        let row = |kind: Kind| {
            let rates = self.threads.iter().map(|threads| rate(&kind, threads)).collect();
            (kind.name.to_owned(), rates)
        };
        ThroughputTable {
            record_bytes: self.cell.record_bytes,
            threads: self.threads.clone(),
            rows: kinds(&self.tests).into_iter().map(row).collect(),
        }
    }
}

/// Returns the number of threads in words.
fn threads_text(threads: u64) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests;
