//! The Probe workload on a machine: cycles of thinking, records and computing, one thread or
//! several, measured by the second-half rule.
//!
//! What is asked for comes from [`crate::workload::probe`], when it counts from
//! [`crate::workload::trial`]; this file only does it. A cycle's answer time is that of its records
//! and its computing; thinking is waited for and not counted. Each thread draws from a seed of its
//! own. At the end everything is flushed, in a phase of its own.

use super::error::BenchError;
use super::target::{Place, Target};
use super::worker_pool::{self, Place as Where};
use super::workload::{Outcome, Series, Space, StartState, TrialContext, Workload};
use crate::random::{Random, Spread};
use crate::workload::probe::{Action, Order, Probe, ProbeRequest, ProbeRequests};
use crate::workload::trial::{ResponseTimes, Trial};
use larder_core::clock::Nanos;
use larder_core::counters::{Histogram, HistogramSnapshot};
use larder_report::format;
use larder_report::run::Direction;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The series.
const CYCLES: &str = "cycles";
const ANSWER: &str = "answer time";
const READS: &str = "reads";
const WRITES: &str = "writes";

/// What a pattern can ask for, with the series of each.
const ACTIONS: [(Action, &str, &str); 2] =
    [(Action::Read, READS, "reads/s"), (Action::Write, WRITES, "writes/s")];

/// Something that goes on beside each trial: a process that takes memory, for one.
pub trait BackgroundLoad: std::fmt::Debug {
    /// Series of its own, behind those of the Probe.
    fn series(&self) -> Vec<Series>;

    /// Parameters of its own, by name with the unit at the end.
    fn settings(&self) -> BTreeMap<String, Value>;

    /// Begins, right before the first request of a trial.
    ///
    /// # Errors
    /// It cannot begin.
    fn begin(&mut self) -> Result<(), BenchError>;

    /// Ends, after the last request, also after one that failed; a value for each of its series,
    /// and what makes the trial doubtful.
    ///
    /// # Errors
    /// It cannot be ended or looked at.
    fn end(&mut self) -> Result<(BTreeMap<String, f64>, Vec<String>), BenchError>;
}

/// The workload, ready to be played.
#[derive(Debug)]
pub struct ProbeBench {
    place: Box<dyn Place>,
    probe: Probe,
    /// Nanoseconds of computing at the end of each cycle.
    compute: Spread,
    threads: usize,
    length: Nanos,
    beside: Option<Box<dyn BackgroundLoad>>,
}

impl ProbeBench {
    /// `threads` threads for `length` nanoseconds a trial; each cycle computes for `compute`
    /// nanoseconds (a negative draw becomes its absolute value).
    ///
    /// # Panics
    /// Without threads, or if the probe works beyond the end of the place.
    #[must_use]
    pub fn new(
        place: Box<dyn Place>,
        probe: Probe,
        compute: Spread,
        threads: usize,
        length: Nanos,
    ) -> Self {
        assert!(threads > 0, "somebody works");
        assert!(probe.file_bytes <= place.bytes(), "it works inside of the place");
        ProbeBench { place, probe, compute, threads, length, beside: None }
    }

    /// The same with something beside each trial.
    #[must_use]
    pub fn with_background_load(self, beside: Box<dyn BackgroundLoad>) -> Self {
        ProbeBench { beside: Some(beside), ..self }
    }
}

/// The letters of a pattern, as in `RWWW`.
fn letters(pattern: &[Action]) -> String {
    pattern.iter().map(|action| if *action == Action::Read { 'R' } else { 'W' }).collect()
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
            "Probe: {} records of {} over {}, {order}, {} at a time; {}",
            letters(&self.probe.pattern),
            format::bytes(self.probe.record_bytes),
            format::bytes(self.probe.file_bytes),
            self.threads,
            self.place.description()
        )
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let (order, mean, sdev) = match self.probe.order {
            Order::Normal(spread) => ("normal", spread.mean, spread.sdev),
            Order::Uniform => ("uniform", 0.0, 0.0),
            Order::Sequential => ("sequential", 0.0, 0.0),
        };
        let spread = |spread: Spread| json!([spread.mean, spread.sdev]);
        [
            ("target", json!(self.place.description())),
            ("file_bytes", json!(self.probe.file_bytes)),
            ("record_bytes", json!(self.probe.record_bytes)),
            ("pattern", json!(letters(&self.probe.pattern))),
            ("order", json!(order)),
            ("seek_records", json!([mean, sdev])),
            ("cycle_records", spread(self.probe.cycle_records)),
            ("think_ns", spread(self.probe.think)),
            ("compute_ns", spread(self.compute)),
            ("threads", json!(self.threads)),
            ("trial_ns", json!(self.length)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .chain(self.beside.iter().flat_map(|beside| beside.settings()))
        .collect()
    }

    fn series(&self) -> Vec<Series> {
        let mut series = vec![
            Series::new(CYCLES, "cycles/s", Some(Direction::Higher)),
            Series::new(ANSWER, "ns", Some(Direction::Lower)),
        ];
        for (action, name, unit) in ACTIONS {
            if self.probe.pattern.contains(&action) {
                series.push(Series::new(name, unit, Some(Direction::Higher)));
            }
        }
        series.extend(self.beside.iter().flat_map(|beside| beside.series()));
        series
    }

    fn space(&self) -> Vec<Space> {
        self.place.space()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.place.paths()
    }

    fn prepare(&mut self, stage: &TrialContext<'_>) -> Result<(), BenchError> {
        self.place.prepare(stage)
    }

    fn start_state(&mut self) -> StartState<'_> {
        self.place.start_state()
    }

    fn trial(&mut self, stage: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let mut workers = (0..self.threads)
            .map(|number| Worker::new(self, stage.seed + number as u64))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(beside) = &mut self.beside {
            beside.begin()?;
        }
        let length = self.length;
        let phases = worker_pool::run(stage, &["probe", "flush"], &mut workers, |worker, place| {
            if place.phase == 0 { worker.work(stage, place, length) } else { worker.flush() }
        });
        let beside = self.beside.as_mut().map(|beside| beside.end()).transpose();
        let (phases, beside) = (phases?, beside?);
        let mut sums = ProbeTotals::default();
        for worker in &workers {
            sums.add(worker);
        }
        let mut outcome = Outcome { phases, ..sums.outcome(&self.probe.pattern) };
        if let Some((values, doubts)) = beside {
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
            .map_err(|error| BenchError::Workload(format!("make room for a record: {error}")))?;
        let mut random = Random::from_seed(seed);
        // What cannot be compressed: some disks and file systems store zeros as nothing.
        let mut buffer = vec![0; len];
        for piece in buffer.chunks_mut(8) {
            piece.copy_from_slice(&random.bits().to_le_bytes()[..piece.len()]);
        }
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
        stage: &TrialContext<'_>,
        place: Where<'_>,
        length: Nanos,
    ) -> Result<(), BenchError> {
        let mut trial = Trial::new(place.begun_at, length);
        let mut begun_at = place.begun_at;
        let mut begins = true;
        // Requests of the cycle at hand: they count if it does, over the same time.
        let mut cycle: Vec<(Action, Nanos)> = Vec::new();
        while let Some(request) = self.requests.next() {
            if begins {
                stage.sleep(request.think)?;
                begun_at = stage.now();
                if trial.is_over(begun_at) {
                    break;
                }
            }
            let before = stage.now();
            self.perform(&request)?;
            cycle.push((request.action, stage.now() - before));
            begins = request.ends_cycle;
            if request.ends_cycle {
                let finished = self.compute(stage);
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

    /// Keeps the processor busy; answers when it is done.
    fn compute(&mut self, stage: &TrialContext<'_>) -> Nanos {
        let now = stage.now();
        if self.compute == Spread::default() {
            return now;
        }
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        let until = now.saturating_add((self.random.normal(self.compute) as i64).unsigned_abs());
        loop {
            let now = stage.now();
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

/// What all threads showed.
#[derive(Default)]
struct ProbeTotals {
    cycles_per_s: f64,
    reads_per_s: f64,
    writes_per_s: f64,
    cycles: f64,
    answers_ns: f64,
    /// Whether a thread went on behind the end of the trial.
    prolonged: bool,
    reads: HistogramSnapshot,
    writes: HistogramSnapshot,
}

#[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
impl ProbeTotals {
    fn add(&mut self, worker: &Worker) {
        // A thread goes on until it has measured a cycle, unless the trial failed.
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
        outcome.values.insert(ANSWER.to_owned(), self.answers_ns / self.cycles);
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
