//! The Probe workload on a machine: cycles of think time, records and computing, in one or several
//! threads, measured by the second-half rule.
//!
//! [`crate::workload::probe`] chooses the requests, and [`crate::workload::trial`] decides which
//! cycles count; this module performs them. The response time of a cycle is that of its records and
//! its computing, without the think time. Each thread has its own seed. At the end of a trial
//! everything is flushed, in a phase of its own.

use super::error::BenchError;
use super::target::{Target, TargetSource};
use super::worker_pool::{self, PhaseContext};
use super::workload::{Outcome, Series, Space, StartState, TrialContext, Workload, parameters};
use crate::random::{Random, Spread};
use crate::workload::probe::{Action, Order, Probe, ProbeRequest, ProbeRequests};
use crate::workload::trial::{ResponseTimes, Trial};
use larder_core::clock::Nanos;
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_schema::format;
use larder_schema::run::Direction;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The series.
const CYCLES: &str = "cycles";
const RESPONSE_TIME: &str = "response time";
const READS: &str = "reads";
const WRITES: &str = "writes";

/// Actions of a pattern, with the series of each.
const ACTIONS: [(Action, &str, &str); 2] =
    [(Action::Read, READS, "reads/s"), (Action::Write, WRITES, "writes/s")];

/// A load that runs during each trial, such as a process that takes memory.
pub trait BackgroundLoad: std::fmt::Debug {
    /// Returns its own series, which follow those of the Probe.
    fn series(&self) -> Vec<Series>;

    /// Returns its own parameters, by name with the unit at the end.
    fn settings(&self) -> BTreeMap<String, Value>;

    /// Starts the load, right before the first request of a trial.
    ///
    /// # Errors
    /// It cannot start.
    fn begin(&mut self) -> Result<(), BenchError>;

    /// Ends the load after the last request, also after one that failed. Returns a value for each
    /// of its series, and the doubts about the trial.
    ///
    /// # Errors
    /// It cannot be ended or examined.
    fn end(&mut self) -> Result<(BTreeMap<String, f64>, Vec<String>), BenchError>;
}

/// The Probe workload with its target.
#[derive(Debug)]
pub struct ProbeBench {
    place: Box<dyn TargetSource>,
    probe: Probe,
    /// Nanoseconds of computing at the end of each cycle.
    compute: Spread,
    threads: usize,
    length: Nanos,
    background: Option<Box<dyn BackgroundLoad>>,
}

impl ProbeBench {
    /// Returns a workload of `threads` threads for `length` nanoseconds per trial; each cycle
    /// computes for `compute` nanoseconds (a negative draw becomes its absolute value).
    ///
    /// # Panics
    /// Without threads, or if the probe works beyond the end of the target.
    #[must_use]
    pub fn new(
        place: Box<dyn TargetSource>,
        probe: Probe,
        compute: Spread,
        threads: usize,
        length: Nanos,
    ) -> Self {
        assert!(threads > 0, "a load without workers");
        assert!(probe.file_bytes <= place.bytes(), "it works inside of the place");
        ProbeBench { place, probe, compute, threads, length, background: None }
    }

    /// Adds a load that runs during each trial.
    #[must_use]
    pub fn with_background_load(self, background: Box<dyn BackgroundLoad>) -> Self {
        ProbeBench { background: Some(background), ..self }
    }
}

/// Returns the letters of a pattern, as in `RWWW`.
fn letters(pattern: &[Action]) -> String {
    pattern.iter().map(|action| if *action == Action::Read { 'R' } else { 'W' }).collect()
}

/// Describes a pattern, as in `reads and writes (RWWW)`.
fn in_words(pattern: &[Action]) -> String {
    let [reads, writes] = [Action::Read, Action::Write].map(|action| pattern.contains(&action));
    match (reads, writes) {
        (true, true) => format!("reads and writes ({})", letters(pattern)),
        (true, false) => "reads".to_owned(),
        (false, _) => "writes".to_owned(),
    }
}

impl Workload for ProbeBench {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn description(&self) -> String {
        let order = match self.probe.order {
            Order::Normal(_) => "normally distributed",
            Order::Uniform => "random",
            Order::Sequential => "sequential",
        };
        format!(
            "Probe: {} of {} over {}, {order}, {} at a time; {}",
            in_words(&self.probe.pattern),
            format::bytes(self.probe.record_bytes),
            format::bytes(self.probe.file_bytes),
            self.threads,
            self.place.description()
        )
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let (order, seek) = match self.probe.order {
            Order::Normal(spread) => ("normal", spread),
            Order::Uniform => ("uniform", Spread::default()),
            Order::Sequential => ("sequential", Spread::default()),
        };
        let spread = |spread: Spread| json!([spread.mean, spread.sdev]);
        let mut settings = parameters(json!({
            "target": self.place.description(),
            "file_bytes": self.probe.file_bytes,
            "record_bytes": self.probe.record_bytes,
            "pattern": letters(&self.probe.pattern),
            "order": order,
            "seek_records": spread(seek),
            "cycle_records": spread(self.probe.cycle_records),
            "think_ns": spread(self.probe.think),
            "compute_ns": spread(self.compute),
            "threads": self.threads,
            "trial_ns": self.length,
        }));
        settings.extend(self.background.iter().flat_map(|background| background.settings()));
        settings
    }

    fn series(&self) -> Vec<Series> {
        let mut series = vec![
            Series::new(CYCLES, "cycles/s", Some(Direction::Higher)),
            Series::new(RESPONSE_TIME, "ns", Some(Direction::Lower)),
        ];
        for (action, name, unit) in ACTIONS {
            if self.probe.pattern.contains(&action) {
                series.push(Series::new(name, unit, Some(Direction::Higher)));
            }
        }
        series.extend(self.background.iter().flat_map(|background| background.series()));
        series
    }

    fn space(&self) -> Vec<Space> {
        self.place.space()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.place.paths()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        self.place.prepare(context)
    }

    fn start_state(&mut self) -> StartState<'_> {
        self.place.start_state()
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let mut workers = (0..self.threads)
            .map(|number| Worker::new(self, context.seed + number as u64))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(background) = &mut self.background {
            background.begin()?;
        }
        let length = self.length;
        let phases =
            worker_pool::run(context, &["probe", "flush"], &mut workers, |worker, current| {
                if current.phase == 0 {
                    worker.work(context, current, length)
                } else {
                    worker.flush()
                }
            });
        let background = self.background.as_mut().map(|background| background.end()).transpose();
        let (phases, background) = (phases?, background?);
        let mut totals = ProbeTotals::default();
        for worker in &workers {
            totals.add(worker);
        }
        let mut outcome = Outcome { phases, ..totals.outcome(&self.probe.pattern) };
        if let Some((values, doubts)) = background {
            outcome.values.extend(values);
            outcome.doubts.extend(doubts);
        }
        Ok(outcome)
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.place.clean_up()
    }
}

/// One thread of a trial.
struct Worker {
    target: Box<dyn Target>,
    requests: ProbeRequests,
    compute: Spread,
    random: Random,
    buffer: Vec<u8>,
    reads: Histogram,
    writes: Histogram,
    times: Option<ResponseTimes>,
}

impl Worker {
    fn new(bench: &ProbeBench, seed: u64) -> Result<Self, BenchError> {
        let len = usize::try_from(bench.probe.record_bytes)
            .map_err(|error| BenchError::Failed(format!("make room for a record: {error}")))?;
        let mut random = Random::from_seed(seed);
        // Data that cannot be compressed, since some disks and file systems store zeros without
        // space.
        let mut buffer = vec![0; len];
        random.fill(&mut buffer);
        Ok(Worker {
            target: bench.place.open()?,
            requests: bench.probe.requests(seed),
            compute: bench.compute,
            random,
            buffer,
            reads: Histogram::default(),
            writes: Histogram::default(),
            times: None,
        })
    }

    fn work(
        &mut self,
        context: &TrialContext<'_>,
        current: PhaseContext<'_>,
        length: Nanos,
    ) -> Result<(), BenchError> {
        let mut trial = Trial::new(current.begun_at, length);
        let mut begun_at = current.begun_at;
        let mut starts_cycle = true;
        // Requests of the current cycle: they count if the cycle does, over the same time.
        let mut cycle: Vec<(Action, Nanos)> = Vec::new();
        while let Some(request) = self.requests.next() {
            if starts_cycle {
                context.sleep(request.think)?;
                begun_at = context.now();
                if trial.is_over(begun_at) {
                    break;
                }
            }
            let before = context.now();
            self.perform(&request)?;
            cycle.push((request.action, context.now() - before));
            starts_cycle = request.ends_cycle;
            if request.ends_cycle {
                let finished = self.compute(context);
                if trial.record(begun_at, finished, finished - begun_at) {
                    for &(action, took) in &cycle {
                        let times = if action == Action::Read { &self.reads } else { &self.writes };
                        times.record(took);
                    }
                }
                cycle.clear();
            }
        }
        self.times = trial.response_times();
        Ok(())
    }

    fn perform(&mut self, request: &ProbeRequest) -> Result<(), BenchError> {
        let len = usize::try_from(request.len).expect("a record fits, so its part does");
        let bytes = &mut self.buffer[..len];
        let (what, result) = match request.action {
            Action::Read => ("read", self.target.read_at(request.offset, bytes)),
            Action::Write => ("write", self.target.write_at(request.offset, bytes)),
        };
        result.map_err(BenchError::io(format!("{what} {len} bytes at {}", request.offset)))
    }

    /// Keeps the processor busy, and returns the time when it has finished.
    fn compute(&mut self, context: &TrialContext<'_>) -> Nanos {
        let now = context.now();
        if self.compute == Spread::default() {
            return now;
        }
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        let until = now.saturating_add((self.random.normal(self.compute) as i64).unsigned_abs());
        loop {
            let now = context.now();
            if now >= until {
                return now;
            }
            std::hint::spin_loop();
        }
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        self.target.flush().map_err(BenchError::io("flush what was written"))
    }
}

/// Sums over all threads.
#[derive(Default)]
struct ProbeTotals {
    cycles_per_s: f64,
    reads_per_s: f64,
    writes_per_s: f64,
    cycles: f64,
    answers_ns: f64,
    /// True if a thread continued beyond the end of the trial.
    prolonged: bool,
    reads: HistogramSnapshot,
    writes: HistogramSnapshot,
}

#[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
impl ProbeTotals {
    fn add(&mut self, worker: &Worker) {
        // A thread continues until it has measured a cycle, unless the trial failed.
        let Some(times) = worker.times else { return };
        let (mut reads, mut writes) = (HistogramSnapshot::default(), HistogramSnapshot::default());
        worker.reads.add_to(&mut reads);
        worker.writes.add_to(&mut writes);
        let per_s = |count: u64| count as f64 * 1e9 / times.measured_ns.max(1) as f64;
        self.cycles_per_s += per_s(times.count);
        self.reads_per_s += per_s(reads.count());
        self.writes_per_s += per_s(writes.count());
        self.cycles += times.count as f64;
        self.answers_ns += times.mean_ns * times.count as f64;
        self.prolonged |= times.prolonged_ns > 0;
        self.reads.add(&reads);
        self.writes.add(&writes);
    }

    fn outcome(self, pattern: &[Action]) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.values.insert(CYCLES.to_owned(), self.cycles_per_s);
        outcome.values.insert(RESPONSE_TIME.to_owned(), self.answers_ns / self.cycles);
        if self.prolonged {
            let doubt = "no cycle fitted into half of a trial, which went on until one had ended; \
                         make trials longer";
            outcome.doubts.push(doubt.to_owned());
        }
        let (per_s, times) = ([self.reads_per_s, self.writes_per_s], [self.reads, self.writes]);
        for (((action, name, _), per_s), times) in ACTIONS.into_iter().zip(per_s).zip(times) {
            if pattern.contains(&action) {
                outcome.values.insert(name.to_owned(), per_s);
                outcome.latencies.push((name.to_owned(), times));
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
