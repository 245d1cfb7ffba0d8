//! Trials of a workload from one start: settings, starts, trials, doubts.

use super::doubts;
use super::error::BenchError;
use super::host_env::{CounterReadings, HostEnv, WorkloadResidency};
use super::pace::SpeedTracker;
use super::repeat::{Plan, half_width};
use super::workload::{Outcome, Series, StartState, TrialContext, Workload};
use larder_core::clock::Nanos;
use larder_core::counters::HistogramSnapshot;
use larder_report::run::combine;
use larder_schema::run::trial::{
    Doubt, DoubtReason, Latency, MeasuredStart, SettingChange, Start, Trial,
};
use larder_schema::run::{Run, Sample};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// A step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The workload creates its files.
    Preparing,
    /// The start of a trial is prepared and verified.
    Starting,
    /// The run waits because the machine is slower than it can be.
    Waiting,
    /// A trial runs.
    Running,
    /// The workload removes its files.
    CleaningUp,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The current step.
    pub step: Step,
    /// The current variant, from 0.
    pub variant: usize,
    /// The start of its current trials.
    pub start: Start,
    /// The current part, from 0.
    pub part: usize,
    /// Trials of the part that are done, of all variants and starts.
    pub done: u64,
    /// The maximum number of trials of one variant from one start.
    pub most: u64,
    /// Half the width of the interval so far, as a share of the median.
    pub half_width: Option<f64>,
    /// The time that is left, if it can be estimated.
    pub left: Option<Nanos>,
}

/// Receives each step of a runner.
pub(super) type OnStep<'a> = dyn FnMut(&TrialRunner<'_>, Step) + 'a;

/// Consecutive trials of a workload from one start.
pub(super) struct TrialRunner<'a> {
    plan: &'a Plan,
    host: &'a dyn HostEnv,
    stop: &'a AtomicBool,
    series: Vec<Series>,
    paths: Vec<PathBuf>,
    run: Run,
    /// Doubts of the workload and about caches below the page cache, each once.
    doubt_texts: BTreeSet<(DoubtReason, String)>,
    /// Values of the main series, summed over all ranks; empty without other ranks.
    totals: Vec<f64>,
    begun_at: Nanos,
    speed_tracker: SpeedTracker,
}

impl<'a> TrialRunner<'a> {
    pub(super) fn new(
        workload: &dyn Workload,
        plan: &'a Plan,
        host: &'a dyn HostEnv,
        stop: &'a AtomicBool,
    ) -> Self {
        let mut run = Run::new(workload.description(), host.time_of_day(), host.machine());
        workload.name().clone_into(&mut run.workload);
        run.settings = workload.settings();
        run.settings.insert("start".to_owned(), plan.start.name().into());
        run.settings.insert("seed".to_owned(), plan.seed.into());
        let series = workload.series();
        run.main = series.first().map(|series| series.name.clone());
        run.samples = series
            .iter()
            .map(|series| Sample {
                group: series.group.clone(),
                at: series.at.clone(),
                ..Sample::new(&series.name, &series.unit, series.better)
            })
            .collect();
        let paths = workload.paths();
        run.environment = host.settings(&paths);
        let begun_at = host.now();
        let (doubt_texts, totals) = (BTreeSet::new(), Vec::new());
        // With several ranks, all of them would have to set aside the same trials.
        let alone = host.ranks().is_none();
        let speed_tracker = SpeedTracker::new(plan.same_speed.filter(|_| alone));
        TrialRunner {
            plan,
            host,
            stop,
            series,
            paths,
            run,
            doubt_texts,
            totals,
            begun_at,
            speed_tracker,
        }
    }

    /// Has the workload create its files.
    pub(super) fn prepare(
        &self,
        workload: &mut dyn Workload,
        on_step: &mut OnStep<'_>,
    ) -> Result<(), BenchError> {
        on_step(self, Step::Preparing);
        let context = self.trial_context(0);
        context.check()?;
        workload.prepare(&context)?;
        context.wait_at_barrier("prepared")
    }

    /// Starts counting the time of the plan.
    pub(super) fn begin(&mut self) {
        self.begun_at = self.host.now();
    }

    /// Returns true if there is one more trial, as rank 0 decides.
    pub(super) fn needs_trial(&self) -> Result<bool, BenchError> {
        let needs_trial = self.plan.needs_trial(self.values(), self.spent());
        let Some(ranks) = self.host.ranks() else { return Ok(needs_trial) };
        let answers = ranks.wait_at_barrier("whether to go on", needs_trial.into())?;
        Ok(answers.first() == Some(&Value::Bool(true)))
    }

    /// Sums the values of the last trial over all ranks.
    fn record_total(&mut self) -> Result<(), BenchError> {
        let Some(ranks) = self.host.ranks() else { return Ok(()) };
        let Some(sample) = self.run.samples.first() else { return Ok(()) };
        let value = sample.values.last().copied().expect("a trial was recorded");
        let values = ranks
            .wait_at_barrier(&format!("end of trial {}", self.run.trials.len()), value.into())?;
        let all: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
        self.totals.push(combine(&sample.unit, &all));
        Ok(())
    }

    /// Runs one trial, which may be set aside.
    pub(super) fn trial(
        &mut self,
        workload: &mut dyn Workload,
        on_step: &mut OnStep<'_>,
    ) -> Result<(), BenchError> {
        let number = self.done() + 1;
        self.wait_for_speed(number, on_step)?;
        self.trial_context(number).check()?;
        on_step(self, Step::Starting);
        let started = self.start(workload)?;
        // A rank that still drops or fills caches would disturb those that have begun.
        self.trial_context(number).wait_at_barrier(&format!("start of trial {number}"))?;
        on_step(self, Step::Running);
        let speed = self.host.speed();
        let before = self.host.count(&self.paths);
        let begun_at = self.host.now();
        let context = self.trial_context(number);
        let outcome = workload.trial(&context)?;
        let duration_ns = self.host.now() - begun_at;
        let after = self.host.count(&self.paths);
        let speed = speed.zip(self.host.speed()).map(|(one, other)| one.min(other));
        if self.speed_tracker.is_rejected(speed, duration_ns) {
            self.speed_tracker.add_lost_time(duration_ns);
            self.run.set_aside += 1;
            return Ok(());
        }
        self.speed_tracker.add_counted_time(duration_ns);
        let trial =
            Trial { number, started, duration_ns, speed, ..counter_difference(before, after) };
        self.record(outcome, trial)?;
        if speed.is_some_and(|speed| self.speed_tracker.add_speed(speed)) {
            self.reject_slow_trials();
        }
        self.record_total()
    }

    /// Waits while the machine is slower than it can be, as long as more time may be lost.
    fn wait_for_speed(&mut self, number: u64, on_step: &mut OnStep<'_>) -> Result<(), BenchError> {
        let begun_at = self.host.now();
        let mut waited = 0;
        while self.speed_tracker.may_lose_time() && !self.is_spent() {
            match self.host.speed() {
                Some(speed) if self.speed_tracker.is_deviating(speed) => {}
                _ => break,
            }
            self.trial_context(number).check()?;
            on_step(self, Step::Waiting);
            let now = self.host.now() - begun_at;
            self.speed_tracker.add_lost_time(now - waited);
            waited = now;
        }
        Ok(())
    }

    /// Sets aside trials that counted before the machine showed that it can be faster.
    fn reject_slow_trials(&mut self) {
        let mut index = 0;
        while index < self.run.trials.len() {
            let Trial { speed, duration_ns, .. } = self.run.trials[index];
            if !self.speed_tracker.is_rejected(speed, duration_ns) {
                index += 1;
                continue;
            }
            self.speed_tracker.reject_counted(duration_ns);
            self.run.set_aside += 1;
            self.run.trials.remove(index);
            for sample in &mut self.run.samples {
                sample.values.remove(index);
            }
        }
        for (trial, number) in self.run.trials.iter_mut().zip(1..) {
            trial.number = number;
        }
    }

    /// Prepares the start and verifies it.
    fn start(&mut self, workload: &mut dyn Workload) -> Result<MeasuredStart, BenchError> {
        let (start, stop) = (self.plan.start, self.stop);
        let mut keep_going = || !stop.load(Ordering::Relaxed);
        let started = |found: &WorkloadResidency| MeasuredStart {
            start,
            files: found.files,
            pages: Some(found.pages),
            resident: Some(found.resident),
        };
        match workload.start_state() {
            StartState::Unknown(_) if start == Start::AsIs => {
                Ok(MeasuredStart { start, ..MeasuredStart::default() })
            }
            StartState::Unknown(why) => {
                let start = start.name();
                Err(BenchError::Failed(format!("start {start}: {why}; say --start as-is")))
            }
            StartState::Own(cache) => {
                let found = cache.start(start)?;
                let (pages, resident) = (found.pages, found.resident);
                let is_right = match start {
                    Start::Cold => resident == 0,
                    Start::Warm => resident == pages,
                    Start::AsIs => true,
                };
                let start = start.name();
                let wrong = || format!("start {start}: {resident} of {pages} blocks are cached");
                is_right.then(|| started(&found)).ok_or_else(|| BenchError::Failed(wrong()))
            }
            StartState::Files(files) => {
                let below = self.host.caches_below(&files);
                if start != Start::AsIs {
                    self.doubt_texts
                        .extend(below.into_iter().map(|text| (DoubtReason::Below, text)));
                }
                let found = match start {
                    Start::Cold => self.host.make_cold(&files, &mut keep_going)?,
                    Start::Warm => self.host.make_warm(&files, &mut keep_going)?,
                    Start::AsIs => self.host.find_cached(&files)?,
                };
                if !keep_going() {
                    return Err(BenchError::Stopped);
                }
                check_start(start, &found)?;
                Ok(started(&found))
            }
        }
    }

    fn record(&mut self, outcome: Outcome, mut trial: Trial) -> Result<(), BenchError> {
        let mut values = outcome.values;
        for (series, sample) in self.series.iter().zip(&mut self.run.samples) {
            let no_value = |what: &str| {
                let (trial, series) = (trial.number, &series.name);
                let error = format!("record trial {trial}: series \"{series}\" has {what}");
                BenchError::Failed(error)
            };
            let value = values.remove(&series.name).ok_or_else(|| no_value("no value"))?;
            if !value.is_finite() {
                return Err(no_value("a value that is not finite"));
            }
            sample.values.push(value);
        }
        assert!(
            values.is_empty(),
            "a workload announces its series, and these it did not: {values:?}"
        );
        self.doubt_texts
            .extend(outcome.doubts.into_iter().map(|text| (DoubtReason::Workload, text)));
        trial.phases = outcome.phases;
        let latencies = outcome.latencies.iter().map(|(what, times)| latency(what, times));
        trial.latencies = latencies.collect();
        self.run.trials.push(trial);
        Ok(())
    }

    /// Returns the run with what is known only at its end.
    pub(super) fn finish(mut self, stopped: bool) -> Run {
        let after = self.host.settings(&self.paths);
        self.run.environment_changes = SettingChange::between(&self.run.environment, &after);
        let resolution = self.host.clock_resolution();
        let doubts = doubts::of(&self.run, self.plan, resolution, stopped);
        self.run.doubts = doubts;
        self.run.doubts.extend(self.doubt_texts.into_iter().map(|(why, text)| Doubt { why, text }));
        self.run
    }

    fn trial_context(&self, trial: u64) -> TrialContext<'a> {
        TrialContext { trial, seed: self.plan.seed, stop: self.stop, host: self.host }
    }

    /// Returns the number of trials that count so far.
    pub(super) fn done(&self) -> u64 {
        self.run.trials.len() as u64
    }

    /// Returns the values of the main series so far, summed over all ranks.
    fn values(&self) -> &[f64] {
        let own = || self.run.samples.first().map_or(&[][..], |sample| &sample.values);
        if self.host.ranks().is_some() { &self.totals } else { own() }
    }

    fn spent(&self) -> Nanos {
        self.host.now() - self.begun_at
    }

    /// Returns true if the time of the plan is over.
    fn is_spent(&self) -> bool {
        self.plan.budget.is_some_and(|budget| self.spent() >= budget)
    }

    /// Returns the progress, as that of the first variant and part.
    pub(super) fn progress(&self, step: Step) -> Progress {
        Progress {
            step,
            variant: 0,
            start: self.plan.start,
            part: 0,
            done: self.done(),
            most: *self.plan.trials.end(),
            half_width: half_width(self.values()),
            left: self.plan.time_left(self.values(), self.spent()),
        }
    }
}

/// Checks the residency against the start.
fn check_start(start: Start, found: &WorkloadResidency) -> Result<(), BenchError> {
    let &WorkloadResidency { pages, resident, ref why, .. } = found;
    let (file, of_file) = found.wrong.clone().unwrap_or_default();
    let file = file.display();
    let wrong = match start {
        Start::Cold if resident > 0 => format!(
            "start cold: {resident} of {pages} pages stay in memory; {file} has {of_file} of them, \
             and {why}"
        ),
        Start::Warm if resident < pages => format!(
            "start warm: {resident} of {pages} pages are in memory after everything was read; \
             {file} lacks {of_file}, and {why}"
        ),
        _ => return Ok(()),
    };
    Err(BenchError::Failed(wrong))
}

/// Returns a trial with the activity between two readings of the counters.
fn counter_difference(before: CounterReadings, after: CounterReadings) -> Trial {
    let steal = before.cpu.zip(after.cpu).and_then(|(before, after)| {
        let (total, stolen) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        #[expect(clippy::cast_precision_loss, reason = "ticks stay below 2^53")]
        let share = stolen as f64 / total as f64;
        (total > 0).then_some(share)
    });
    let disks = before.disk_bytes.zip(after.disk_bytes);
    let disk_bytes = disks.map(|(before, after)| after.saturating_sub(before));
    let own_bytes = disk_bytes.map(|_| after.own_bytes.saturating_sub(before.own_bytes));
    Trial { steal, disk_bytes, own_bytes, ..Trial::default() }
}

fn latency(what: &str, times: &HistogramSnapshot) -> Latency {
    Latency {
        what: what.to_owned(),
        sum_ns: times.sum(),
        max_ns: times.max(),
        buckets: times.buckets().collect(),
    }
}
