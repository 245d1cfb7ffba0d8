//! Playing a workload: space, settings, start, trials, doubts, cleaning up.

use super::doubts;
use super::error::BenchError;
use super::host_env::{Counted, Found, HostEnv};
use super::pace::Pace;
use super::repeat::{Plan, half_width};
use super::workload::{Outcome, Series, StartState, TrialContext, Workload};
use larder_core::clock::Nanos;
use larder_core::counters::HistogramSnapshot;
use larder_report::run::parts::together;
use larder_report::run::trial::{
    Doubt, DoubtReason, Latency, SettingChange, Start, Started, Trial,
};
use larder_report::run::{Run, Sample};
use serde_json::Value;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Files are made.
    Preparing,
    /// The start is made and read back.
    Starting,
    /// The machine is slower than it can be, and that is waited for.
    Waiting,
    /// A trial runs.
    Running,
    /// What was made is removed.
    CleaningUp,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done.
    pub step: Step,
    /// Trials that are done.
    pub done: u64,
    /// The most that there will be.
    pub most: u64,
    /// Half the width of the interval so far, as a share of the median.
    pub half_width: Option<f64>,
    /// The time that is left, if it can be said.
    pub left: Option<Nanos>,
}

/// A run that came to an end.
#[derive(Debug)]
pub struct RunResult {
    /// What it showed; at least one trial.
    pub run: Run,
    /// Somebody stopped it before it was done.
    pub stopped: bool,
}

/// Plays a workload. `stop` is looked at all the time; `watch` is told how far it is. If there are
/// other ranks, all begin each trial and phase together, and there are as many trials as the sums
/// of all ask for.
///
/// # Errors
/// There is no result: the first error of the workload or the machine, a start that cannot be made,
/// or a stop before the first trial was done. What the workload made has been removed, or the error
/// says that it has not.
pub fn run_trials(
    workload: &mut dyn Workload,
    plan: &Plan,
    surroundings: &dyn HostEnv,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<RunResult, BenchError> {
    look_at_room(workload, surroundings)?;
    let mut player = TrialRunner::new(workload, plan, surroundings, stop);
    // A panic is a broken invariant and goes on upwards, but leaves no files behind.
    let ended = catch_unwind(AssertUnwindSafe(|| player.trials(workload, watch)));
    player.report(watch, Step::CleaningUp);
    let cleaned = workload.clean_up();
    let ended = ended.unwrap_or_else(|panic| resume_unwind(panic));
    let stopped = BenchError::first_of(ended, cleaned)?;
    Ok(RunResult { run: player.finish(stopped), stopped })
}

/// Whether a workload has the room that it needs; an error if not.
pub(super) fn look_at_room(
    workload: &dyn Workload,
    surroundings: &dyn HostEnv,
) -> Result<(), BenchError> {
    for space in workload.space() {
        let free = surroundings.free_bytes(&space.directory)?;
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

/// Trials of a workload from one start, one after the other.
pub(super) struct TrialRunner<'a> {
    plan: &'a Plan,
    surroundings: &'a dyn HostEnv,
    stop: &'a AtomicBool,
    series: Vec<Series>,
    paths: Vec<PathBuf>,
    run: Run,
    /// Sentences of the workload and about what is below the page cache, each once.
    said: BTreeSet<(DoubtReason, String)>,
    /// Values of the main series, those of all ranks together; empty where there is one alone.
    totals: Vec<f64>,
    begun_at: Nanos,
    pace: Pace,
}

impl<'a> TrialRunner<'a> {
    pub(super) fn new(
        workload: &dyn Workload,
        plan: &'a Plan,
        surroundings: &'a dyn HostEnv,
        stop: &'a AtomicBool,
    ) -> Self {
        let mut run =
            Run::new(workload.description(), surroundings.time_of_day(), surroundings.machine());
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
        run.environment = surroundings.settings(&paths);
        let begun_at = surroundings.now();
        let (said, totals) = (BTreeSet::new(), Vec::new());
        // A trial that one rank sets aside would have to go in all of them.
        let alone = surroundings.ranks().is_none();
        let pace = Pace::new(plan.same_speed.filter(|_| alone));
        TrialRunner { plan, surroundings, stop, series, paths, run, said, totals, begun_at, pace }
    }

    /// Prepares and does all trials; whether it was stopped after at least one.
    fn trials(
        &mut self,
        workload: &mut dyn Workload,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<bool, BenchError> {
        self.prepare(workload, watch)?;
        self.begin();
        while self.goes_on()? {
            match self.trial(workload, watch) {
                Ok(()) => {}
                Err(error) if error.is_stop() && !self.run.trials.is_empty() => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Has the workload make what it needs.
    pub(super) fn prepare(
        &self,
        workload: &mut dyn Workload,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<(), BenchError> {
        self.report(watch, Step::Preparing);
        let stage = self.trial_context(0);
        stage.check()?;
        workload.prepare(&stage)?;
        stage.wait_at_barrier("prepared")
    }

    /// From now on the time that may be spent is counted.
    pub(super) fn begin(&mut self) {
        self.begun_at = self.surroundings.now();
    }

    /// Whether there is one more trial, as rank 0 sees it.
    pub(super) fn goes_on(&self) -> Result<bool, BenchError> {
        let goes_on = self.plan.goes_on(self.values(), self.spent());
        let Some(ranks) = self.surroundings.ranks() else { return Ok(goes_on) };
        let said = ranks.wait_at_barrier("whether to go on", goes_on.into())?;
        Ok(said.first() == Some(&Value::Bool(true)))
    }

    /// Adds up the values of the last trial in all ranks.
    fn note_total(&mut self) -> Result<(), BenchError> {
        let Some(ranks) = self.surroundings.ranks() else { return Ok(()) };
        let Some(sample) = self.run.samples.first() else { return Ok(()) };
        let own = sample.values.last().copied().expect("a trial was recorded");
        let said = ranks
            .wait_at_barrier(&format!("end of trial {}", self.run.trials.len()), own.into())?;
        let all: Vec<f64> = said.iter().filter_map(Value::as_f64).collect();
        self.totals.push(together(&sample.unit, &all));
        Ok(())
    }

    /// One trial, which may be set aside.
    pub(super) fn trial(
        &mut self,
        workload: &mut dyn Workload,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<(), BenchError> {
        let number = self.run.trials.len() as u64 + 1;
        self.wait_for_speed(number, watch)?;
        self.trial_context(number).check()?;
        self.report(watch, Step::Starting);
        let started = self.start(workload)?;
        // One that still drops or fills would disturb those that begin.
        self.trial_context(number).wait_at_barrier(&format!("start of trial {number}"))?;
        self.report(watch, Step::Running);
        let speed = self.surroundings.speed();
        let before = self.surroundings.count(&self.paths);
        let begun_at = self.surroundings.now();
        let stage = self.trial_context(number);
        let outcome = workload.trial(&stage)?;
        let duration_ns = self.surroundings.now() - begun_at;
        let after = self.surroundings.count(&self.paths);
        let speed = speed.zip(self.surroundings.speed()).map(|(one, other)| one.min(other));
        if self.pace.sets_aside(speed, duration_ns) {
            self.pace.lose(duration_ns);
            self.run.set_aside += 1;
            return Ok(());
        }
        self.pace.keep(duration_ns);
        let trial = Trial { number, started, duration_ns, speed, ..measured(before, after) };
        self.record(outcome, trial)?;
        if speed.is_some_and(|speed| self.pace.add_speed(speed)) {
            self.look_back();
        }
        self.note_total()
    }

    /// Waits while the machine is slower than it can be, as long as there is patience.
    fn wait_for_speed(
        &mut self,
        number: u64,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<(), BenchError> {
        let begun_at = self.surroundings.now();
        let mut waited = 0;
        while self.pace.has_patience() && !self.is_spent() {
            match self.surroundings.speed() {
                Some(speed) if self.pace.is_off(speed) => {}
                _ => break,
            }
            self.trial_context(number).check()?;
            self.report(watch, Step::Waiting);
            let now = self.surroundings.now() - begun_at;
            self.pace.lose(now - waited);
            waited = now;
        }
        Ok(())
    }

    /// Sets trials aside that counted until the machine showed that it can be faster.
    fn look_back(&mut self) {
        let mut place = 0;
        while place < self.run.trials.len() {
            let Trial { speed, duration_ns, .. } = self.run.trials[place];
            if !self.pace.sets_aside(speed, duration_ns) {
                place += 1;
                continue;
            }
            self.pace.give_up(duration_ns);
            self.run.set_aside += 1;
            self.run.trials.remove(place);
            for sample in &mut self.run.samples {
                sample.values.remove(place);
            }
        }
        for (trial, number) in self.run.trials.iter_mut().zip(1..) {
            trial.number = number;
        }
    }

    /// Makes the start and reads it back.
    fn start(&mut self, workload: &mut dyn Workload) -> Result<Started, BenchError> {
        let (start, stop) = (self.plan.start, self.stop);
        let mut more = || !stop.load(Ordering::Relaxed);
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
            StartState::Own(own) => {
                let found = own.start(start)?;
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
                let below = self.surroundings.caches_below(&files);
                if start != Start::AsIs {
                    self.said.extend(below.into_iter().map(|text| (DoubtReason::Below, text)));
                }
                let found = match start {
                    Start::Cold => self.surroundings.make_cold(&files, &mut more)?,
                    Start::Warm => self.surroundings.make_warm(&files, &mut more)?,
                    Start::AsIs => self.surroundings.find_cached(&files)?,
                };
                if !more() {
                    return Err(BenchError::Stopped);
                }
                judge(start, &found)?;
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
        self.said.extend(outcome.doubts.into_iter().map(|text| (DoubtReason::Workload, text)));
        trial.phases = outcome.phases;
        let latencies = outcome.latencies.iter().map(|(what, times)| latency(what, times));
        trial.latencies = latencies.collect();
        self.run.trials.push(trial);
        Ok(())
    }

    /// The record, with what can be said at the end only.
    pub(super) fn finish(mut self, stopped: bool) -> Run {
        let after = self.surroundings.settings(&self.paths);
        self.run.environment_changes = SettingChange::between(&self.run.environment, &after);
        let resolution = self.surroundings.clock_resolution();
        let doubts = doubts::of(&self.run, self.plan, resolution, stopped);
        self.run.doubts = doubts;
        self.run.doubts.extend(self.said.into_iter().map(|(why, text)| Doubt { why, text }));
        self.run
    }

    fn trial_context(&self, trial: u64) -> TrialContext<'a> {
        TrialContext {
            trial,
            seed: self.plan.seed,
            stop: self.stop,
            surroundings: self.surroundings,
        }
    }

    /// Trials that count so far.
    pub(super) fn done(&self) -> usize {
        self.run.trials.len()
    }

    /// Values of the main series so far, those of all ranks together.
    fn values(&self) -> &[f64] {
        let own = || self.run.samples.first().map_or(&[][..], |sample| &sample.values);
        if self.surroundings.ranks().is_some() { &self.totals } else { own() }
    }

    fn spent(&self) -> Nanos {
        self.surroundings.now() - self.begun_at
    }

    /// Whether the time that may be spent is over.
    fn is_spent(&self) -> bool {
        self.plan.budget.is_some_and(|budget| self.spent() >= budget)
    }

    pub(super) fn report(&self, watch: &mut dyn FnMut(Progress), step: Step) {
        watch(Progress {
            step,
            done: self.run.trials.len() as u64,
            most: *self.plan.trials.end(),
            half_width: half_width(self.values()),
            left: self.plan.left(self.values(), self.spent()),
        });
    }
}

/// Whether files are as they should be; if not, the sentence that refuses the trial.
fn judge(start: Start, found: &Found) -> Result<(), BenchError> {
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

/// What the counters say of the time between two readings.
fn measured(before: Counted, after: Counted) -> Trial {
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
