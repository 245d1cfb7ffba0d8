//! Trials of a workload: space, settings, starts, trials, doubts, cleanup.

use super::doubts;
use super::error::BenchError;
use super::host_env::{Counted, Found, HostEnv};
use super::pace::SpeedTracker;
use super::repeat::{Plan, half_width};
use super::workload::{Outcome, Series, StartState, TrialContext, Workload};
use larder_core::clock::Nanos;
use larder_core::counters::HistogramSnapshot;
use larder_report::run::combine;
use larder_schema::run::trial::{
    Doubt, DoubtReason, Latency, SettingChange, Start, Started, Trial,
};
use larder_schema::run::{Run, Sample};
use serde_json::Value;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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
    /// Trials that are done.
    pub done: u64,
    /// The maximum number of trials.
    pub most: u64,
    /// Half the width of the interval so far, as a share of the median.
    pub half_width: Option<f64>,
    /// The time that is left, if it can be estimated.
    pub left: Option<Nanos>,
}

/// A run that has ended with a result.
#[derive(Debug)]
pub struct RunResult {
    /// The run, with at least one trial.
    pub run: Run,
    /// True if a stop request ended the run before all trials were done.
    pub stopped: bool,
}

/// Runs the trials of a workload. Checks `stop` continuously, and reports to `on_progress`. If
/// there are other ranks, all of them begin each trial and each phase at the same time, and the
/// sums over all ranks decide the number of trials.
///
/// # Errors
/// There is no result: the first error of the workload or the machine, a start that cannot be
/// reached, or a stop before the first trial was done. The files of the workload have been removed,
/// or the error says that they have not.
pub fn run_trials(
    workload: &mut dyn Workload,
    plan: &Plan,
    host: &dyn HostEnv,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<RunResult, BenchError> {
    check_space(workload, host)?;
    let mut runner = TrialRunner::new(workload, plan, host, stop);
    // A panic is a broken invariant and propagates, but leaves no files behind.
    let result = catch_unwind(AssertUnwindSafe(|| runner.trials(workload, on_progress)));
    runner.report(on_progress, Step::CleaningUp);
    let clean_up = workload.clean_up();
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    let stopped = BenchError::first_of(result, clean_up)?;
    Ok(RunResult { run: runner.finish(stopped), stopped })
}

/// Checks that there is enough free space for a workload.
pub(super) fn check_space(workload: &dyn Workload, host: &dyn HostEnv) -> Result<(), BenchError> {
    for space in workload.space() {
        let free = host.free_bytes(&space.directory)?;
        if free < space.bytes {
            return Err(BenchError::NoSpace {
                directory: space.directory,
                needs: space.bytes,
                free,
            });
        }
    }
    Ok(())
}

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

    /// Prepares the workload and runs all trials. Returns true if a stop request ended them after
    /// at least one.
    fn trials(
        &mut self,
        workload: &mut dyn Workload,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, BenchError> {
        self.prepare(workload, on_progress)?;
        self.begin();
        while self.needs_trial()? {
            match self.trial(workload, on_progress) {
                Ok(()) => {}
                Err(error) if error.is_stop() && !self.run.trials.is_empty() => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Has the workload create its files.
    pub(super) fn prepare(
        &self,
        workload: &mut dyn Workload,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), BenchError> {
        self.report(on_progress, Step::Preparing);
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
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), BenchError> {
        let number = self.run.trials.len() as u64 + 1;
        self.wait_for_speed(number, on_progress)?;
        self.trial_context(number).check()?;
        self.report(on_progress, Step::Starting);
        let started = self.start(workload)?;
        // A rank that still drops or fills caches would disturb those that have begun.
        self.trial_context(number).wait_at_barrier(&format!("start of trial {number}"))?;
        self.report(on_progress, Step::Running);
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
    fn wait_for_speed(
        &mut self,
        number: u64,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), BenchError> {
        let begun_at = self.host.now();
        let mut waited = 0;
        while self.speed_tracker.may_lose_time() && !self.is_spent() {
            match self.host.speed() {
                Some(speed) if self.speed_tracker.is_deviating(speed) => {}
                _ => break,
            }
            self.trial_context(number).check()?;
            self.report(on_progress, Step::Waiting);
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
    fn start(&mut self, workload: &mut dyn Workload) -> Result<Started, BenchError> {
        let (start, stop) = (self.plan.start, self.stop);
        let mut keep_going = || !stop.load(Ordering::Relaxed);
        let started = |found: &Found| Started {
            start,
            files: found.files,
            pages: Some(found.pages),
            resident: Some(found.resident),
        };
        match workload.start_state() {
            StartState::Unknown(_) if start == Start::AsIs => {
                Ok(Started { start, ..Started::default() })
            }
            StartState::Unknown(why) => Err(BenchError::NoStart { start, why }),
            StartState::Own(cache) => {
                let found = cache.start(start)?;
                let right = match start {
                    Start::Cold => found.resident == 0,
                    Start::Warm => found.resident == found.pages,
                    Start::AsIs => true,
                };
                let (pages, resident) = (found.pages, found.resident);
                right.then(|| started(&found)).ok_or(BenchError::NotStarted {
                    start,
                    resident,
                    pages,
                })
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
            let no_value = |what: &str| BenchError::NoValue {
                trial: trial.number,
                series: series.name.clone(),
                what: what.to_owned(),
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
    pub(super) fn done(&self) -> usize {
        self.run.trials.len()
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

    pub(super) fn report(&self, on_progress: &mut dyn FnMut(Progress), step: Step) {
        on_progress(Progress {
            step,
            done: self.run.trials.len() as u64,
            most: *self.plan.trials.end(),
            half_width: half_width(self.values()),
            left: self.plan.time_left(self.values(), self.spent()),
        });
    }
}

/// Checks the residency against the start.
fn check_start(start: Start, found: &Found) -> Result<(), BenchError> {
    let &Found { pages, resident, .. } = found;
    let (file, of_file) = found.wrong.clone().unwrap_or_default();
    let why = found.why.clone();
    match start {
        Start::Cold if resident > 0 => {
            Err(BenchError::NotCold { resident, pages, file, of_file, why })
        }
        Start::Warm if resident < pages => {
            Err(BenchError::NotWarm { resident, pages, file, of_file, why })
        }
        _ => Ok(()),
    }
}

/// Returns a trial with the activity between two readings of the counters.
fn counter_difference(before: Counted, after: Counted) -> Trial {
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
