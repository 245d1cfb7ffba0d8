//! Throughput mode: the same test in several concurrent threads, each on its own file.
//!
//! Threads begin a pass together. With the stonewall, as in IOzone, a pass ends for all threads
//! when the first of them has finished; the missing part of a file is then written outside the
//! time, so that the next pass has the whole file. Rates are bytes per second, sizes bytes, times
//! nanoseconds.

mod table;

use super::grid::Cell;
use super::mode::{Mode, RATE, TestPart, rate};
use super::passes::{Pass, passes};
use super::subject::{AccessPattern, PassResult, Stonewall, TestFile};
use super::{MIX_TEST, RANDOM_TEST};
use crate::bench::workload::parameters;
use crate::bench::{BenchError, Direction, Outcome, Series, worker_pool};
use larder_core::clock::Nanos;
use larder_core::counters::HistogramSnapshot;
use larder_report::stats::median;
use larder_schema::format;
use larder_schema::run::Run;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use table::{figures_text, table_text};

/// Maximum number of threads, which is also that of IOzone.
pub const THREADS_MAX: u64 = 1024;
/// Share of threads of the mixed test that read, by default.
pub const READERS: f64 = 0.5;
/// A thread that moved less than this share of its file before the stonewall has hardly been
/// measured.
const MOVED_MIN: f64 = 0.5;

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
const KINDS: [Kind; 13] = [
    kind(0, 0, "initial write", "initial writers"),
    kind(0, 1, "rewrite", "rewriters"),
    kind(1, 0, "read", "readers"),
    kind(1, 1, "re-read", "re-readers"),
    kind(3, 0, "reverse read", "reverse readers"),
    kind(5, 0, "stride read", "stride readers"),
    kind(2, 0, "random read", "random readers"),
    kind(MIX_TEST, 0, "mixed workload", "mixed workload"),
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
enum Figure {
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

/// All figures, with the suffix of their series.
const FIGURES: [(Figure, &str); 7] = [
    (Figure::Children, ""),
    (Figure::Parent, ", parent"),
    (Figure::ParentFlushed, ", parent, flushed"),
    (Figure::Min, ", slowest thread"),
    (Figure::Max, ", fastest thread"),
    (Figure::Avg, ", mean of threads"),
    (Figure::MinMoved, ", least moved"),
];

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
    pub access: AccessPattern,
    /// True if a pass ends for all threads with the first one that has finished.
    pub stonewall: bool,
    /// The share of threads that read in the mixed test, 0 to 1; if it is [`READERS`], even threads
    /// read and odd ones write.
    pub readers: f64,
    /// An existing, writable directory.
    pub directory: PathBuf,
}

impl ThroughputRun {
    /// Returns true if this one of `threads` threads reads in the mixed test.
    fn reads(&self, thread: usize, threads: usize) -> bool {
        if self.readers.total_cmp(&READERS).is_eq() {
            return thread.is_multiple_of(2);
        }
        as_f64(thread as u64) < (self.readers * as_f64(threads as u64)).round()
    }

    /// Returns the pass of one of `threads` threads.
    fn pass(&self, kind: &Kind, thread: usize, threads: usize) -> &'static Pass {
        if kind.test != MIX_TEST {
            return &passes(kind.test)[kind.pass];
        }
        &passes(RANDOM_TEST)[usize::from(!self.reads(thread, threads))]
    }

    /// Returns true if any of `threads` threads writes.
    fn writes(&self, kind: &Kind, threads: usize) -> bool {
        (0..threads).any(|thread| self.pass(kind, thread, threads).writes)
    }

    /// Adds the figures of all threads for a pass that took `wall`, and `flush` after that.
    fn add_figures(
        &self,
        (kind, results): (&Kind, &[&PassResult]),
        (wall, flush): (Nanos, Option<Nanos>),
        outcome: &mut Outcome,
    ) {
        let threads = results.len() as u64;
        let rates: Vec<f64> = results.iter().map(|one| rate(one.bytes, one.took)).collect();
        let bytes: u64 = results.iter().map(|one| one.bytes).sum();
        let least = results.iter().map(|one| one.bytes).min().unwrap_or(0);
        let sum: f64 = rates.iter().sum();
        for (figure, _) in FIGURES {
            let value = match figure {
                Figure::Children => Some(sum),
                Figure::Parent => Some(rate(bytes, wall)),
                Figure::ParentFlushed => flush.map(|flush| rate(bytes, wall + flush)),
                Figure::Min => rates.iter().copied().reduce(f64::min),
                Figure::Max => rates.iter().copied().reduce(f64::max),
                Figure::Avg => Some(sum / as_f64(threads)),
                Figure::MinMoved => Some(as_f64(least)),
            };
            let named = value.map(|value| (series(kind, figure, threads).name, value));
            outcome.values.extend(named);
        }
        let whole = self.cell.records() * self.cell.record_bytes;
        if as_f64(least) < MOVED_MIN * as_f64(whole) {
            outcome.doubts.push(format!(
                "a thread had moved less than half of its file when the first one of {} was \
                 through with \"{}\" (stonewall): larger files show more, or no stonewall",
                threads_text(threads),
                kind.name
            ));
        }
    }
}

/// A thread: its file, and the results of its passes.
struct Worker<'a> {
    file: TestFile<'a>,
    results: Vec<PassResult>,
}

impl Mode for ThroughputRun {
    fn description(&self) -> String {
        let [size, record] = [self.cell.file_bytes, self.cell.record_bytes].map(format::bytes);
        format!("IOzone throughput: {size} for each thread, in records of {record}")
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let mut settings = self.access.settings();
        settings.extend(parameters(json!({
            "file_bytes": self.cell.file_bytes,
            "record_bytes": self.cell.record_bytes,
            "threads": self.threads,
            "stonewall": self.stonewall,
            "mix_readers_ratio": self.readers,
        })));
        settings
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn access(&self) -> AccessPattern {
        self.access
    }

    fn parts(&self) -> Vec<TestPart> {
        let tests: BTreeSet<u8> = kinds(&self.tests).iter().map(|kind| kind.test).collect();
        let part = |number: u64, test| {
            let threads = usize::try_from(number).expect("at most 1024");
            let what = format!("test {test} by {}", threads_text(number));
            TestPart { test, cell: self.cell, threads, what }
        };
        let numbers = self.threads.iter();
        numbers.flat_map(|&number| tests.iter().map(move |&test| part(number, test))).collect()
    }

    fn series(&self, part: &TestPart) -> Vec<Series> {
        let mut all = Vec::new();
        for kind in kinds(&[part.test]) {
            let writes = self.writes(&kind, part.threads);
            let figures = FIGURES.iter().map(|(figure, _)| *figure);
            let measured = figures.filter(|figure| writes || *figure != Figure::ParentFlushed);
            all.extend(measured.map(|figure| series(&kind, figure, part.threads as u64)));
        }
        all
    }

    fn trial(&self, part: &TestPart, files: Vec<TestFile<'_>>) -> Result<Outcome, BenchError> {
        let (kinds, threads) = (kinds(&[part.test]), part.threads);
        let context = files[0].context();
        let walls: Vec<Stonewall> = kinds.iter().map(|_| Stonewall::new(false)).collect();
        let worker = |file| Worker { file, results: Vec::new() };
        let mut workers: Vec<Worker<'_>> = files.into_iter().map(worker).collect();
        let mut outcome = Outcome::default();
        for (kind, wall) in kinds.iter().zip(&walls) {
            let writes = self.writes(kind, threads);
            let mut names = vec![kind.name.to_owned()];
            names.extend(writes.then(|| format!("{}, flush", kind.name)));
            // The stonewall leaves out a part of a new file, which is written outside the time.
            if self.stonewall && self.pass(kind, 0, threads).makes {
                names.push(format!("{}, the rest", kind.name));
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let phases = worker_pool::run(context, &names, &mut workers, |worker, current| {
                let pass = self.pass(kind, current.worker, threads);
                match current.phase {
                    0 => {
                        worker.file.set_wall(self.stonewall.then_some(wall));
                        worker.results.push(worker.file.pass(pass)?);
                    }
                    1 if pass.writes => drop(worker.file.flush()?),
                    1 => {}
                    _ => worker.file.complete(worker.results.last().map_or(0, |one| one.bytes))?,
                }
                Ok(())
            })?;
            let results = workers.iter().filter_map(|worker| worker.results.last());
            let results: Vec<&PassResult> = results.collect();
            let flush = writes.then(|| phases[1].duration_ns);
            self.add_figures((kind, &results), (phases[0].duration_ns, flush), &mut outcome);
            let mut times = HistogramSnapshot::default();
            for one in results {
                times.add(&one.times);
            }
            outcome.latencies.push((kind.name.to_owned(), times));
            outcome.phases.extend(phases);
        }
        Ok(outcome)
    }

    fn rows(&self, run: &Run, _: bool) -> String {
        let figures = self.threads.iter().flat_map(|&threads| {
            let text = move |kind: Kind| {
                figures_text(threads, kind.who, |figure| median_of(run, &kind, figure, threads))
            };
            kinds(&self.tests).into_iter().filter_map(text)
        });
        figures.collect::<Vec<_>>().join("\n")
    }

    /// Returns the table of the rates of the children, or with `flushed` those of the parent
    /// including the flush, for kinds that write.
    fn tables(&self, run: &Run, flushed: bool) -> String {
        let row = |kind: Kind| {
            let rate = |threads: &u64| {
                let value = |figure| median_of(run, &kind, figure, *threads);
                let with = flushed.then(|| value(Figure::ParentFlushed)).flatten();
                with.or_else(|| value(Figure::Children))
            };
            (kind.name, self.threads.iter().map(rate).collect())
        };
        let rows: Vec<_> = kinds(&self.tests).into_iter().map(row).collect();
        table_text(self.cell.record_bytes, &self.threads, &rows)
    }
}

/// Returns the median of a figure, if it was measured.
fn median_of(run: &Run, kind: &Kind, figure: Figure, threads: u64) -> Option<f64> {
    median(&run.sample(&series(kind, figure, threads).name)?.values)
}

/// Returns the series of a figure with this number of threads.
fn series(kind: &Kind, figure: Figure, threads: u64) -> Series {
    let name = format!("{}{}", kind.name, FIGURES[figure as usize].1);
    let (unit, better) = match figure {
        Figure::MinMoved => ("bytes", None),
        _ => (RATE, Some(Direction::Higher)),
    };
    Series::new(name, unit, better).at(&[("threads", as_f64(threads))])
}

#[expect(clippy::cast_precision_loss, reason = "bytes and threads stay below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Returns the number of threads in words.
fn threads_text(threads: u64) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests;
