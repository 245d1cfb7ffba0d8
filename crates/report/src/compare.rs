//! Comparison of two runs: for each series better, worse or cannot tell, with the ratio and its
//! confidence interval.
//!
//! Invariants: a verdict requires that the whole 95 % confidence interval of the ratio lies beyond
//! the threshold, so neither noise nor a negligible difference becomes a verdict; a slowdown of the
//! machine widens the interval; reasons for an unfair comparison (stolen time, other settings,
//! another start state) are reported. Ratios are the second run over the first.

mod html;
mod text;

pub use html::to_html;
pub use text::{table, to_text};

use crate::stats::ratio_estimate::Shift;
use crate::stats::{CONFIDENCE, RATIO_VALUES_MIN, median};
use larder_schema::compare::{Comparison, SCHEMA, SeriesComparison, VERSION, Verdict};
use larder_schema::run::trial::{SettingChange, Start};
use larder_schema::run::{Direction, Machine, Run, Sample};
use larder_schema::{as_f64, format};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// Threshold below which a difference counts as none: repeated runs of the same workload differ by
/// this much on an otherwise idle machine.
pub const THRESHOLD: f64 = 0.02;
/// Maximum share of stolen processor time, over all trials of a run, for a comparison.
pub const STEAL_MAX: f64 = 0.05;
/// Maximum slowdown of the machine between two runs on it that is ignored; a greater one widens the
/// intervals.
pub const SPEED_MAX: f64 = 0.1;

/// The reason why two runs cannot be compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The runs have different workloads.
    #[error("the first is of \"{first}\", the second of \"{second}\"")]
    Workloads {
        /// Workload of the first run.
        first: String,
        /// Workload of the second run.
        second: String,
    },
    /// The runs have no series in common, apart from constant ones.
    #[error("they have no series in common that can be better or worse")]
    NoSeries,
}

/// Returns the median speed of the machine over all trials of a run, or `None` if it was not
/// measured.
#[must_use]
pub fn speed(run: &Run) -> Option<f64> {
    let speeds: Vec<f64> = run.trials.iter().filter_map(|trial| trial.speed).collect();
    median(&speeds)
}

/// Compares two runs.
///
/// # Errors
/// The runs have different workloads, or no series in common.
pub fn compare(a: &Run, b: &Run, threshold: f64) -> Result<Comparison, CompareError> {
    if a.workload != b.workload {
        let name = |run: &Run| {
            let name = if run.workload.is_empty() { &run.what } else { &run.workload };
            name.clone()
        };
        return Err(CompareError::Workloads { first: name(a), second: name(b) });
    }
    let circumstances = Circumstances { stolen: stolen(a, b), slowdown: Slowdown::between(a, b) };
    let (of_a, of_b) = (by_series(a), by_series(b));
    let mut series: Vec<SeriesComparison> = a
        .samples
        .iter()
        .filter_map(|sample| {
            compare_series(sample, of_b.get(&*sample.series)?, threshold, &circumstances)
        })
        .collect();
    if series.is_empty() {
        return Err(CompareError::NoSeries);
    }
    let main = a.main_sample().map(|sample| sample.series.as_str());
    series.sort_by_key(|compared| Some(compared.series.as_str()) != main);
    let only = |one: &Run, other: &BTreeMap<&str, &Sample>| -> Vec<String> {
        let alone = one.samples.iter().filter(|sample| !other.contains_key(&*sample.series));
        alone.map(|sample| sample.series.clone()).collect()
    };
    let doubt_texts = |run: &Run| run.doubts.iter().map(|doubt| doubt.text.clone()).collect();
    Ok(Comparison {
        schema: SCHEMA,
        version: VERSION,
        what: a.what.clone(),
        what_b: (a.what != b.what).then(|| b.what.clone()),
        started_at: (a.started_at.clone(), b.started_at.clone()),
        threshold,
        series,
        only_a: only(a, &of_b),
        only_b: only(b, &of_a),
        differences: SettingChange::between(&conditions(a), &conditions(b)),
        doubts: (doubt_texts(a), doubt_texts(b)),
    })
}

/// Returns the samples of a run by series, the first one of each.
fn by_series(run: &Run) -> BTreeMap<&str, &Sample> {
    let named = run.samples.iter().rev().map(|sample| (sample.series.as_str(), sample));
    named.collect()
}

/// Compares a series; returns `None` if the units differ, a sample has no values, or the series is
/// a parameter, such as a number of files: all values are the same, and no direction is better.
fn compare_series(
    a: &Sample,
    b: &Sample,
    threshold: f64,
    circumstances: &Circumstances,
) -> Option<SeriesComparison> {
    if a.unit != b.unit {
        return None;
    }
    let (median_a, median_b) = (median(&a.values)?, median(&b.values)?);
    let better = a.better.or(b.better).or_else(|| usual_direction(&a.unit));
    let is_constant = a.values.iter().chain(&b.values).all(|it| it.total_cmp(&median_a).is_eq());
    if better.is_none() && is_constant {
        return None;
    }
    let shift =
        Shift::between(&a.values, &b.values).map(|shift| circumstances.widen(shift, better));
    let (verdict, why) = decide_verdict(shift, better, threshold, circumstances);
    Some(SeriesComparison {
        series: a.series.clone(),
        unit: a.unit.clone(),
        median_a,
        median_b,
        values: (a.values.len(), b.values.len()),
        ratio: shift.map(|shift| shift.ratio),
        ratio_low: shift.map(|shift| shift.low),
        ratio_high: shift.map(|shift| shift.high),
        verdict,
        why,
    })
}

fn decide_verdict(
    shift: Option<Shift>,
    better: Option<Direction>,
    threshold: f64,
    circumstances: &Circumstances,
) -> (Verdict, String) {
    let cannot_tell = |why: String| (Verdict::CannotTell, why);
    let Some(shift) = shift else {
        return cannot_tell("there is no ratio to a value of 0 or less".to_owned());
    };
    let Some(better) = better else {
        return cannot_tell("the direction of improvement is unknown".to_owned());
    };
    if shift.confidence < CONFIDENCE {
        let why = format!("too few values: {RATIO_VALUES_MIN} of each are needed for 95 %");
        return cannot_tell(why);
    }
    let (more, less) = (1.0 + threshold, 1.0 / (1.0 + threshold));
    if shift.low > more || shift.high < less {
        let is_higher = shift.low > more;
        let is_better = is_higher == (better == Direction::Higher);
        return (if is_better { Verdict::Better } else { Verdict::Worse }, String::new());
    }
    if let Some(reason) = circumstances.reason() {
        return cannot_tell(reason);
    }
    let limit = format::percent(threshold);
    if shift.low >= less && shift.high <= more {
        return cannot_tell(format!("no more than {limit} apart"));
    }
    let is_either_way = shift.low < less && shift.high > more;
    cannot_tell(if is_either_way {
        "it may be better or worse".to_owned()
    } else {
        format!("the difference may be less than {limit}")
    })
}

/// Returns the better direction of a unit, for series that do not state it: high for rates, low for
/// times.
fn usual_direction(unit: &str) -> Option<Direction> {
    match unit {
        "ns" | "us" | "ms" | "s" => Some(Direction::Lower),
        unit if unit.ends_with("/s") => Some(Direction::Higher),
        _ => None,
    }
}

/// Returns the larger share of the processor time that the hypervisor took from a run, if it
/// exceeds [`STEAL_MAX`].
fn stolen(a: &Run, b: &Run) -> Option<f64> {
    let mean = |run: &Run| {
        let steal: Vec<f64> = run.all_trials().filter_map(|trial| trial.steal).collect();
        steal.iter().sum::<f64>() / as_f64(steal.len().max(1) as u64)
    };
    Some(mean(a).max(mean(b))).filter(|share| *share > STEAL_MAX)
}

/// Disturbances of the runs. A verdict requires that they cannot change it.
struct Circumstances {
    /// Share of the processor time that the hypervisor took from one of the runs.
    stolen: Option<f64>,
    slowdown: Option<Slowdown>,
}

impl Circumstances {
    /// Extends the interval to the ratio of two undisturbed runs, if all of the time depends on the
    /// speed of the machine.
    fn widen(&self, mut shift: Shift, better: Option<Direction>) -> Shift {
        if let Some(share) = self.stolen {
            shift.low *= 1.0 - share;
            shift.high /= 1.0 - share;
        }
        let (Some(slowdown), Some(better)) = (&self.slowdown, better) else { return shift };
        let factor = 1.0 - slowdown.share;
        // A slower second run has lower rates and longer times.
        if slowdown.is_second == (better == Direction::Higher) {
            shift.high /= factor;
        } else {
            shift.low *= factor;
        }
        shift
    }

    /// Returns the disturbance as a sentence.
    fn reason(&self) -> Option<String> {
        let stolen = self.stolen.map(|share| {
            format!("the hypervisor took {} of the processor time", format::percent(share))
        });
        stolen.or_else(|| self.slowdown.as_ref().map(ToString::to_string))
    }
}

/// The slowdown of the machine during one of two runs.
struct Slowdown {
    /// Lost share of the speed of the other run.
    share: f64,
    /// True if the machine was slower during the second run.
    is_second: bool,
}

impl Slowdown {
    /// Returns the slowdown if it exceeds [`SPEED_MAX`]. Between two machines the speed is part of
    /// the comparison.
    fn between(a: &Run, b: &Run) -> Option<Slowdown> {
        let (of_a, of_b) = (speed(a)?, speed(b)?);
        let share = 1.0 - of_a.min(of_b) / of_a.max(of_b);
        (a.machine == b.machine && share > SPEED_MAX)
            .then_some(Slowdown { share, is_second: of_b < of_a })
    }
}

impl Display for Slowdown {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let slower_run = if self.is_second { "second" } else { "first" };
        let share = format::percent(self.share);
        write!(f, "the machine was {share} slower during the {slower_run}")
    }
}

/// Returns all properties of a run that may influence its result, by name.
fn conditions(run: &Run) -> BTreeMap<String, String> {
    let Machine { cpu, cores, memory_bytes, kernel, distribution } = &run.machine;
    let mut conditions: BTreeMap<String, String> = [
        ("machine.cpu", cpu.clone()),
        ("machine.cores", cores.to_string()),
        ("machine.memory_bytes", memory_bytes.to_string()),
        ("machine.kernel", kernel.clone()),
        ("machine.distribution", distribution.clone()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let set = run.settings.iter().map(|(name, value)| (name.clone(), word(value)));
    conditions.extend(set);
    let software = run.software.iter().map(|(name, value)| (format!("software.{name}"), value));
    conditions.extend(software.map(|(name, value)| (name, value.clone())));
    conditions.extend(run.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    let starts: Vec<&str> = Start::ALL
        .iter()
        .filter(|start| has_start(run, **start))
        .map(|start| start.name())
        .collect();
    if !starts.is_empty() {
        conditions.insert("start".to_owned(), starts.join(", "));
    }
    conditions
}

fn has_start(run: &Run, start: Start) -> bool {
    run.all_trials().any(|trial| trial.started.start == start)
}

#[cfg(test)]
mod tests;
