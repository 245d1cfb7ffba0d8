//! Throughput mode: the same test by several threads at once, each on a file of its own.
//!
//! Threads begin a pass together. With the stonewall, as in IOzone, a pass ends for all when the
//! first of them is through; what is missing of a file is then written outside of the time, so that
//! the next pass has all of it. Rates are bytes per second, sizes bytes, times nanoseconds.

mod table;
mod test;

pub use table::{Seen, ThroughputTable};

use super::grid::Cell;
use super::sequence::{Part, Progressed, Sequence, own_directory};
use super::subject::AccessPattern;
use crate::bench::{BenchError, HostEnv, Plan, RunResult};
use larder_report::format;
use larder_report::run::Run;
use larder_report::stats::median;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use test::ThreadTest;

/// More threads than this are a mistake: it is the limit of IOzone, too.
pub const THREADS_MAX: u64 = 1024;
/// What every other thread of the mixed test does, if nothing is said: half of them read.
pub const READERS: f64 = 0.5;

/// Something that is measured: a pass of a test of `-i` by all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Number of the test that it belongs to.
    pub test: u8,
    /// Which pass of the test.
    pub pass: usize,
    /// Its name in results and in tables for spreadsheets.
    pub name: &'static str,
    /// Those who do it.
    pub who: &'static str,
}

const fn kind(test: u8, pass: usize, name: &'static str, who: &'static str) -> Kind {
    Kind { test, pass, name, who }
}

/// All of them, in the order of IOzone's reports.
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

/// The kinds that these tests bring, in the order of reports.
#[must_use]
pub fn kinds(tests: &[u8]) -> Vec<Kind> {
    KINDS.iter().filter(|kind| tests.contains(&kind.test)).copied().collect()
}

/// What is said of a pass of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The sum of what each thread had in its own time.
    Children,
    /// All bytes over the time from the first begin to the last end.
    Parent,
    /// The same with the flush after it; of passes that write.
    ParentFlushed,
    /// The slowest thread.
    Min,
    /// The fastest.
    Max,
    /// The mean of all.
    Avg,
    /// The fewest bytes that a thread moved.
    MinMoved,
}

impl Figure {
    /// All of them.
    pub const ALL: [Figure; 7] = [
        Figure::Children,
        Figure::Parent,
        Figure::ParentFlushed,
        Figure::Min,
        Figure::Max,
        Figure::Avg,
        Figure::MinMoved,
    ];

    /// What stands behind the name of the kind.
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

/// What to measure.
#[derive(Clone, Debug)]
pub struct ThroughputRun {
    /// Numbers of threads, each for itself.
    pub threads: Vec<u64>,
    /// The file of each thread, and its records.
    pub cell: Cell,
    /// Which tests, by their numbers.
    pub tests: Vec<u8>,
    /// How files are opened.
    pub manner: AccessPattern,
    /// Whether a pass ends for all with the first thread that is through.
    pub stonewall: bool,
    /// The share of threads that read in the mixed test, 0 to 1; as even and odd ones take turns
    /// if it is [`READERS`].
    pub readers: f64,
    /// A directory that is there and can be written to.
    pub directory: PathBuf,
}

impl ThroughputRun {
    /// Measures; a stop after the first result gives what there is.
    ///
    /// # Errors
    /// The directory for the files cannot be made, or the first error of a test.
    pub fn run(
        &self,
        plan: &Plan,
        surroundings: &dyn HostEnv,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progressed<'_>),
    ) -> Result<RunResult, BenchError> {
        let most = self.threads.iter().copied().max().unwrap_or(0);
        let directory = own_directory(&self.directory);
        let file = |thread| directory.join(format!("file.{thread}"));
        let files: Vec<PathBuf> = (0..most).map(file).collect();
        // The file of a thread stays from test to test.
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
        Sequence::new(what, parts, directory.clone()).run_sequence(plan, surroundings, stop, watch)
    }

    /// The median of a figure, if it was measured.
    #[must_use]
    pub fn value(&self, run: &Run, kind: &Kind, figure: Figure, threads: u64) -> Option<f64> {
        median(&run.sample(&test::series(kind, figure, threads).name)?.values)
    }

    /// What parent and children saw of a kind with so many threads.
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

    /// The table for spreadsheets: what the children saw, or with `flushed` what the parent saw
    /// with the flush, of those that write.
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

/// A number of threads in words.
fn threads_text(threads: u64) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests;
