//! Reasons for which a result may be wrong although every trial succeeded: sentences that can
//! follow "doubtful because".

use super::repeat::{Plan, half_width};
use larder_core::clock::Nanos;
use larder_report::run::series_in_words;
use larder_report::stats::INTERVAL_VALUES_MIN;
use larder_schema::format::{bytes, duration, percent};
use larder_schema::run::Run;
use larder_schema::run::trial::{Doubt, DoubtReason, Start, Trial};

/// Share of a trial above which stolen processor time is a doubt.
const STEAL_MAX: f64 = 0.01;
/// Share of the disk traffic above which foreign I/O is a doubt.
const FOREIGN_MAX: f64 = 0.05;
/// Minimum duration of a phase in clock ticks: a shorter one cannot be measured to a percent.
const TICKS_MIN: u64 = 100;
/// Bytes of a page, if the machine does not report it: every current Linux machine has at least
/// this.
const PAGE_BYTES: u64 = 4096;

/// Returns all doubts about a run whose trials and settings are complete.
pub(super) fn of(run: &Run, plan: &Plan, clock_resolution: Nanos, stopped: bool) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let mut add_doubt = |why, text: Option<String>| {
        doubts.extend(text.map(|text| Doubt { why, text }));
    };
    add_doubt(DoubtReason::Steal, steal(&run.trials));
    add_doubt(DoubtReason::Speed, speed(&run.trials, plan));
    add_doubt(DoubtReason::ForeignIo, foreign(&run.trials));
    add_doubt(DoubtReason::Interval, interval(run, plan));
    add_doubt(DoubtReason::FitsMemory, fits_memory(run, plan));
    add_doubt(DoubtReason::SettingsChanged, settings_changed(run));
    add_doubt(DoubtReason::Clock, clock(&run.trials, clock_resolution));
    add_doubt(
        DoubtReason::Stopped,
        stopped.then(|| format!("it was stopped after {}", trials(run.trials.len()))),
    );
    doubts
}

fn trials(count: usize) -> String {
    format!("{count} trial{}", if count == 1 { "" } else { "s" })
}

/// Returns the number of trials whose share is above the limit, and the highest share.
fn worst_above(
    trials: &[Trial],
    limit: f64,
    share: impl Fn(&Trial) -> Option<f64>,
) -> Option<(usize, f64)> {
    let high: Vec<f64> = trials.iter().filter_map(share).filter(|share| *share > limit).collect();
    let worst = high.iter().copied().fold(0.0, f64::max);
    (!high.is_empty()).then_some((high.len(), worst))
}

fn steal(all: &[Trial]) -> Option<String> {
    let (count, worst) = worst_above(all, STEAL_MAX, |trial| trial.steal)?;
    Some(format!(
        "the hypervisor took more than {} of the processor time in {count} of {} (at worst {})",
        percent(STEAL_MAX),
        trials(all.len()),
        percent(worst)
    ))
}

/// Some trials count although the machine was slower during them than during others.
fn speed(all: &[Trial], plan: &Plan) -> Option<String> {
    let same = plan.same_speed?;
    let fastest = all.iter().filter_map(|trial| trial.speed).fold(0.0, f64::max);
    let best = same.as_fast_as.unwrap_or(fastest);
    let slower = |trial: &Trial| trial.speed.map(|speed| 1.0 - speed / best);
    let (count, worst) = worst_above(all, same.tolerance, slower)?;
    Some(format!(
        "the machine was more than {} below its full speed in {count} of {} (at worst {}), by a \
         calibration before and after each trial",
        percent(same.tolerance),
        trials(all.len()),
        percent(worst)
    ))
}

fn foreign(all: &[Trial]) -> Option<String> {
    let (count, worst) = worst_above(all, FOREIGN_MAX, Trial::foreign)?;
    // Own writes of one trial can reach the disk during the next: each trial counts on its own.
    let (disk, foreign) = all.iter().fold((0, 0), |(disk, foreign), trial| {
        let (of_all, own) = (trial.disk_bytes.unwrap_or(0), trial.own_bytes.unwrap_or(0));
        (disk + of_all, foreign + of_all.saturating_sub(own))
    });
    Some(format!(
        "in {count} of {} more than {} of the disk traffic came from other programs or a journal \
         (at worst {}; {} of {} in total)",
        trials(all.len()),
        percent(FOREIGN_MAX),
        percent(worst),
        bytes(foreign),
        bytes(disk)
    ))
}

fn interval(run: &Run, plan: &Plan) -> Option<String> {
    let main = run.main_sample()?;
    if plan.is_reached(&main.values) {
        return None;
    }
    let (target, series) = (percent(plan.confidence?), series_in_words(&main.series));
    Some(match half_width(&main.values) {
        Some(half) => format!(
            "the 95 % interval of \"{series}\" is +-{} after {}, not +-{target}",
            percent(half),
            trials(main.values.len())
        ),
        None => format!(
            "the 95 % interval of the median of \"{series}\" needs {INTERVAL_VALUES_MIN} trials, \
             not {}",
            main.values.len()
        ),
    })
}

/// The trials started as-is, and the files are small enough for memory, so memory or the disk may
/// have answered.
fn fits_memory(run: &Run, plan: &Plan) -> Option<String> {
    let pages = run.trials.iter().filter_map(|trial| trial.started.pages).max()?;
    let size = pages.checked_mul(PAGE_BYTES)?;
    let memory = run.machine.memory_bytes;
    (plan.start == Start::AsIs && size > 0 && size < memory).then(|| {
        format!(
            "its files ({}) fit into memory ({}) and no trial had a verified cold or warm start",
            bytes(size),
            bytes(memory)
        )
    })
}

fn settings_changed(run: &Run) -> Option<String> {
    let first = run.environment_changes.first()?;
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let others = run.environment_changes.len() - 1;
    let more = if others == 0 { String::new() } else { format!(", and {others} more") };
    Some(format!(
        "settings changed during the run: {} from {} to {}{more}",
        first.name,
        value(&first.before),
        value(&first.after)
    ))
}

fn clock(all: &[Trial], resolution: Nanos) -> Option<String> {
    let phases = all.iter().flat_map(|trial| &trial.phases);
    let shortest = phases.min_by_key(|phase| phase.duration_ns)?;
    (shortest.duration_ns < resolution.saturating_mul(TICKS_MIN)).then(|| {
        format!(
            "phase \"{}\" took only {} once, and the clock has a resolution of {}",
            shortest.name,
            duration(shortest.duration_ns),
            duration(resolution)
        )
    })
}
