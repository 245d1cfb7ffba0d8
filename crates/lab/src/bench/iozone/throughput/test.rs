//! One test in several threads as a workload.

use super::super::cell::{RATE, is_whole, rate, remove};
use super::super::passes::{Pass, passes};
use super::super::subject::{PassResult, Stonewall, TestFile};
use super::super::{MIX_TEST, RANDOM_TEST};
use super::{Figure, Kind, READERS, ThroughputRun, kinds, threads_text};
use crate::bench::worker_pool::{self, PhaseContext};
use crate::bench::{
    BenchError, Direction, Outcome, Phase, Series, Space, StartState, TrialContext, Workload,
};
use larder_core::clock::Nanos;
use larder_core::counters::HistogramSnapshot;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A thread that moved less than this share of its file before the stonewall has hardly been
/// measured.
const MOVED_MIN: f64 = 0.5;

/// Returns the series of a figure with this number of threads.
pub(super) fn series(kind: &Kind, figure: Figure, threads: u64) -> Series {
    let name = format!("{}{}", kind.name, figure.suffix());
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

/// A test of `-i` with one thread for each file.
pub(super) struct ThreadTest<'a> {
    test: u8,
    run: &'a ThroughputRun,
    files: &'a [PathBuf],
}

impl std::fmt::Debug for ThreadTest<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let threads = self.files.len();
        out.debug_struct("ThreadTest").field("test", &self.test).field("threads", &threads).finish()
    }
}

/// A step of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The pass with this number; timed.
    Pass(usize),
    /// The flush of what the pass wrote; timed.
    Flush,
    /// Writing of what the stonewall left out.
    Complete,
}

/// A thread: its file, and the results of its passes.
struct Worker<'a> {
    test_file: TestFile<'a>,
    results: Vec<PassResult>,
}

impl<'a> ThreadTest<'a> {
    pub(super) fn new(test: u8, run: &'a ThroughputRun, files: &'a [PathBuf]) -> Self {
        ThreadTest { test, run, files }
    }

    fn kinds(&self) -> Vec<Kind> {
        kinds(&[self.test])
    }

    fn threads(&self) -> u64 {
        self.files.len() as u64
    }

    /// Returns true if this thread reads in the mixed test.
    pub(super) fn reads(&self, thread: usize) -> bool {
        let readers = self.run.readers;
        if readers.total_cmp(&READERS).is_eq() {
            return thread.is_multiple_of(2);
        }
        as_f64(thread as u64) < (readers * as_f64(self.threads())).round()
    }

    /// Returns the pass of a thread.
    fn pass(&self, kind: &Kind, thread: usize) -> &'static Pass {
        if kind.test != MIX_TEST {
            return &passes(kind.test)[kind.pass];
        }
        &passes(RANDOM_TEST)[usize::from(!self.reads(thread))]
    }

    /// Returns true if any thread writes.
    fn writes(&self, kind: &Kind) -> bool {
        (0..self.files.len()).any(|thread| self.pass(kind, thread).writes)
    }

    /// Returns true if the test begins without files.
    fn makes(&self) -> bool {
        passes(self.test).first().is_some_and(|pass| pass.makes)
    }

    fn steps(&self) -> Vec<(Step, String)> {
        let mut steps = Vec::new();
        for (number, kind) in self.kinds().iter().enumerate() {
            steps.push((Step::Pass(number), kind.name.to_owned()));
            if self.writes(kind) {
                steps.push((Step::Flush, format!("{}, flush", kind.name)));
            }
            if self.run.stonewall && number == 0 && self.makes() {
                steps.push((Step::Complete, format!("{}, the rest", kind.name)));
            }
        }
        steps
    }

    fn test_file<'s>(
        &'s self,
        context: &'s TrialContext<'s>,
        thread: usize,
        file: &'s Path,
    ) -> TestFile<'s> {
        TestFile::new(context, file, self.run.cell, self.run.manner, thread as u64)
    }

    /// Runs one step of one thread.
    fn step(
        &self,
        worker: &mut Worker<'_>,
        (step, current): (Step, PhaseContext<'_>),
    ) -> Result<(), BenchError> {
        match step {
            Step::Pass(number) => {
                let pass = self.pass(&self.kinds()[number], current.worker);
                worker.results.push(worker.test_file.pass(pass)?);
            }
            Step::Flush => {
                let kind = &self.kinds()[worker.results.len() - 1];
                if self.pass(kind, current.worker).writes {
                    worker.test_file.flush()?;
                }
            }
            Step::Complete => {
                let bytes = worker.results.last().map_or(0, |results| results.bytes);
                worker.test_file.complete(bytes)?;
            }
        }
        Ok(())
    }

    /// Adds the figures of all threads for a pass that took `wall`, and `flush` after that.
    fn values(
        &self,
        (kind, results): (&Kind, &[&PassResult]),
        (wall, flush): (Nanos, Option<Nanos>),
        outcome: &mut Outcome,
    ) {
        let rates: Vec<f64> = results.iter().map(|one| rate(one.bytes, one.took)).collect();
        let bytes: u64 = results.iter().map(|one| one.bytes).sum();
        let least = results.iter().map(|one| one.bytes).min().unwrap_or(0);
        let sum: f64 = rates.iter().sum();
        for figure in Figure::ALL {
            let value = match figure {
                Figure::Children => sum,
                Figure::Parent => rate(bytes, wall),
                Figure::ParentFlushed => match flush {
                    Some(flush) => rate(bytes, wall + flush),
                    None => continue,
                },
                Figure::Min => rates.iter().copied().fold(f64::INFINITY, f64::min),
                Figure::Max => rates.iter().copied().fold(0.0, f64::max),
                Figure::Avg => sum / as_f64(self.threads()),
                Figure::MinMoved => as_f64(least),
            };
            outcome.values.insert(series(kind, figure, self.threads()).name, value);
        }
        let whole = self.run.cell.records() * self.run.cell.record_bytes;
        if as_f64(least) < MOVED_MIN * as_f64(whole) {
            outcome.doubts.push(format!(
                "a thread had moved less than half of its file when the first one of {} was \
                 through with \"{}\" (stonewall): larger files show more, or no stonewall",
                threads_text(self.threads()),
                kind.name
            ));
        }
    }
}

impl Workload for ThreadTest<'_> {
    fn name(&self) -> &'static str {
        "iozone"
    }

    fn description(&self) -> String {
        let names: Vec<_> = self.kinds().iter().map(|kind| kind.name).collect();
        format!("IOzone: {} by {}", names.join(", "), threads_text(self.threads()))
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let mut settings = self.run.manner.settings();
        settings.insert("file_bytes".to_owned(), self.run.cell.file_bytes.into());
        settings.insert("record_bytes".to_owned(), self.run.cell.record_bytes.into());
        settings.insert("threads".to_owned(), self.run.threads.clone().into());
        settings.insert("stonewall".to_owned(), self.run.stonewall.into());
        settings.insert("mix_readers_ratio".to_owned(), self.run.readers.into());
        settings
    }

    fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for kind in self.kinds() {
            let is_measured =
                |figure: &Figure| *figure != Figure::ParentFlushed || self.writes(&kind);
            let figures = Figure::ALL.into_iter().filter(is_measured);
            all.extend(figures.map(|figure| series(&kind, figure, self.threads())));
        }
        all
    }

    fn space(&self) -> Vec<Space> {
        let existing: u64 =
            self.files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        let bytes = (self.run.cell.file_bytes * self.threads()).saturating_sub(existing);
        vec![Space { directory: self.run.directory.clone(), bytes }]
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.run.directory.clone()]
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        if self.makes() {
            return Ok(());
        }
        for (thread, file) in self.files.iter().enumerate() {
            if !is_whole(file, &self.run.cell) {
                self.test_file(context, thread, file).make()?;
            }
        }
        Ok(())
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(if self.makes() { Vec::new() } else { self.files.to_vec() })
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        if self.makes() {
            self.files.iter().try_for_each(|file| remove(file))?;
        }
        let kinds = self.kinds();
        let walls: Vec<Stonewall> = kinds.iter().map(|_| Stonewall::new(false)).collect();
        let mut workers: Vec<Worker<'_>> = Vec::new();
        for (thread, file) in self.files.iter().enumerate() {
            let test_file = self.test_file(context, thread, file);
            workers.push(Worker { test_file, results: Vec::new() });
        }
        let steps = self.steps();
        let names: Vec<&str> = steps.iter().map(|(_, name)| name.as_str()).collect();
        let phases = worker_pool::run(context, &names, &mut workers, |worker, current| {
            let step = steps[current.phase].0;
            if let Step::Pass(number) = step {
                worker.test_file.set_wall(self.run.stonewall.then_some(&walls[number]));
            }
            self.step(worker, (step, current))
        })?;
        let mut outcome = Outcome::default();
        for (number, kind) in kinds.iter().enumerate() {
            let at = steps.iter().position(|(step, _)| *step == Step::Pass(number));
            let at = at.expect("each pass is a step");
            let results: Vec<&PassResult> =
                workers.iter().map(|worker| &worker.results[number]).collect();
            let after = steps.get(at + 1).zip(phases.get(at + 1));
            let flush = after.filter(|((step, _), _)| *step == Step::Flush);
            let flush = flush.map(|(_, phase): (_, &Phase)| phase.duration_ns);
            self.values((kind, &results), (phases[at].duration_ns, flush), &mut outcome);
            let mut times = HistogramSnapshot::default();
            for one in results {
                times.add(&one.times);
            }
            outcome.latencies.push((kind.name.to_owned(), times));
        }
        outcome.phases = phases;
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        // Files stay for the next test; the sequence of tests removes them.
        Ok(())
    }
}
