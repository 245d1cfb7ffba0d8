//! Two runs compared: for each series better, worse, or cannot tell, with how much and how sure.
//!
//! Invariants: a difference is only called one if the whole 95 % interval of the ratio lies beyond
//! the threshold, so neither noise nor what is too small to matter becomes a verdict; what makes a
//! comparison unfair (stolen time, a slower machine, other settings, another start) is said. Ratios
//! are the second run over the first.

mod text;

use crate::run::trial::{SettingChange, Start};
use crate::run::{Direction, Machine, Run, Sample};
use crate::stats::ratio_estimate::Shift;
use crate::stats::{CONFIDENCE, median};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Differences of less than this count as none: what repeated runs of the same differ by on a
/// machine that nobody else uses.
pub const THRESHOLD: f64 = 0.02;
/// Stolen processor time, over all trials of a run, above which it is not compared.
pub const STEAL_MAX: f64 = 0.05;
/// How much slower the machine may be during one of two runs on the same one.
pub const SPEED_MAX: f64 = 0.1;
/// The name of the JSON form.
pub const SCHEMA: &str = "larder-compare";
/// Its version.
pub const VERSION: u32 = 1;

/// What can be said of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second run is better.
    Better,
    /// The second run is worse.
    Worse,
    /// Neither is certain.
    CannotTell,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::CannotTell => "cannot tell",
        }
    }
}

/// One series of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub series: String,
    /// Its unit.
    pub unit: String,
    /// Median of the first run, in that unit.
    pub median_a: f64,
    /// Median of the second.
    pub median_b: f64,
    /// Values of the first run, and of the second.
    pub values: (usize, usize),
    /// How many times the second is of the first, and the ends of the interval; none where there is
    /// no ratio.
    pub ratio: Option<f64>,
    /// Lower end.
    pub ratio_low: Option<f64>,
    /// Upper end.
    pub ratio_high: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Why nothing else can be said; empty where something can.
    pub why: String,
}

/// Both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    schema: &'static str,
    version: u32,
    /// What was measured.
    pub what: String,
    /// When each began.
    pub started_at: (String, String),
    /// The share below which a difference counts as none.
    pub threshold: f64,
    /// Series that both have, the main one first.
    pub series: Vec<Compared>,
    /// Series of one run alone.
    pub only_a: Vec<String>,
    /// The same of the other.
    pub only_b: Vec<String>,
    /// What else is different: machine, software, settings, environment, start.
    pub differences: Vec<SettingChange>,
    /// Doubts about the first run, and about the second.
    pub doubts: (Vec<String>, Vec<String>),
}

/// Why two runs are not compared. It can follow "failed to".
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They measured different things.
    #[error("compare them: the first is of \"{first}\", the second of \"{second}\"")]
    Workloads {
        /// What the first measured.
        first: String,
        /// What the second measured.
        second: String,
    },
    /// They have nothing in common.
    #[error("compare them: they have no series in common")]
    NoSeries,
}

/// Compares two runs.
///
/// # Errors
/// They are of different workloads, or have no series in common.
pub fn compare(a: &Run, b: &Run, threshold: f64) -> Result<Comparison, CompareError> {
    if a.workload != b.workload {
        let name = |run: &Run| {
            let name = if run.workload.is_empty() { &run.what } else { &run.workload };
            name.clone()
        };
        return Err(CompareError::Workloads { first: name(a), second: name(b) });
    }
    let unfair = Some(stolen(a, b)).filter(|why| !why.is_empty()).unwrap_or_else(|| slowed(a, b));
    let (of_a, of_b) = (by_series(a), by_series(b));
    let mut series: Vec<Compared> = a
        .samples
        .iter()
        .filter_map(|sample| of_series(sample, of_b.get(&*sample.series)?, threshold, &unfair))
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
    let said = |run: &Run| run.doubts.iter().map(|doubt| doubt.text.clone()).collect();
    Ok(Comparison {
        schema: SCHEMA,
        version: VERSION,
        what: a.what.clone(),
        started_at: (a.started_at.clone(), b.started_at.clone()),
        threshold,
        series,
        only_a: only(a, &of_b),
        only_b: only(b, &of_a),
        differences: SettingChange::between(&facts(a), &facts(b)),
        doubts: (said(a), said(b)),
    })
}

impl Comparison {
    /// Whether some series of the second run is worse.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.series.iter().any(|compared| compared.verdict == Verdict::Worse)
    }

    /// The JSON form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("names and finite numbers")
    }
}

/// The samples of a run, the first of each series.
fn by_series(run: &Run) -> BTreeMap<&str, &Sample> {
    let named = run.samples.iter().rev().map(|sample| (sample.series.as_str(), sample));
    named.collect()
}

/// Judges a series; nothing if its unit differs or one of them has no values.
fn of_series(a: &Sample, b: &Sample, threshold: f64, unfair: &str) -> Option<Compared> {
    if a.unit != b.unit {
        return None;
    }
    let (median_a, median_b) = (median(&a.values)?, median(&b.values)?);
    let shift = Shift::between(&a.values, &b.values);
    let better = a.better.or(b.better).or_else(|| usual_direction(&a.unit));
    let (verdict, why) = judge(shift, better, threshold, unfair);
    Some(Compared {
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

fn judge(
    shift: Option<Shift>,
    better: Option<Direction>,
    threshold: f64,
    unfair: &str,
) -> (Verdict, String) {
    let unsure = |why: String| (Verdict::CannotTell, why);
    let Some(shift) = shift else {
        return unsure("there is no ratio to a value of 0 or less".to_owned());
    };
    let Some(better) = better else {
        return unsure("nobody said which values are better".to_owned());
    };
    if !unfair.is_empty() {
        return unsure(unfair.to_owned());
    }
    if shift.confidence < CONFIDENCE {
        return unsure("too few values: four of each are needed for 95 %".to_owned());
    }
    let (more, less) = (1.0 + threshold, 1.0 / (1.0 + threshold));
    if shift.low > more || shift.high < less {
        let grown = shift.low > more;
        let good = grown == (better == Direction::Higher);
        return (if good { Verdict::Better } else { Verdict::Worse }, String::new());
    }
    let limit = crate::format::percent(threshold);
    if shift.low >= less && shift.high <= more {
        return unsure(format!("no more than {limit} apart"));
    }
    unsure(format!("the interval does not leave +-{limit}"))
}

/// What larger values of a unit mean where nobody said it: rates are to grow, times to shrink.
fn usual_direction(unit: &str) -> Option<Direction> {
    match unit {
        "ns" | "us" | "ms" | "s" => Some(Direction::Lower),
        unit if unit.ends_with("/s") => Some(Direction::Higher),
        _ => None,
    }
}

/// A sentence if too much processor time was stolen from one of them, else nothing.
fn stolen(a: &Run, b: &Run) -> String {
    let mean = |run: &Run| {
        let steal: Vec<f64> = run.all_trials().filter_map(|trial| trial.steal).collect();
        if steal.is_empty() {
            0.0
        } else {
            steal.iter().sum::<f64>() / crate::advise::as_f64(steal.len() as u64)
        }
    };
    let worst = mean(a).max(mean(b));
    if worst <= STEAL_MAX {
        return String::new();
    }
    format!("the hypervisor took {} of the processors away", crate::format::percent(worst))
}

/// A sentence if the machine itself was slower during one of them, else nothing. Between two
/// machines that is what is compared.
fn slowed(a: &Run, b: &Run) -> String {
    let (Some(of_a), Some(of_b)) = (a.speed(), b.speed()) else { return String::new() };
    if a.machine != b.machine {
        return String::new();
    }
    let (which, slower) =
        if of_a < of_b { ("first", 1.0 - of_a / of_b) } else { ("second", 1.0 - of_b / of_a) };
    if slower <= SPEED_MAX {
        return String::new();
    }
    format!("the machine was {} slower during the {which}", crate::format::percent(slower))
}

/// Everything about a run that can make another result, by name.
fn facts(run: &Run) -> BTreeMap<String, String> {
    let Machine { cpu, cores, memory_bytes, kernel, distribution } = &run.machine;
    let mut facts: BTreeMap<String, String> = [
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
    facts.extend(set);
    let software = run.software.iter().map(|(name, value)| (format!("software.{name}"), value));
    facts.extend(software.map(|(name, value)| (name, value.clone())));
    facts.extend(run.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
    let starts: Vec<&str> =
        Start::ALL.iter().filter(|start| started(run, **start)).map(|start| start.name()).collect();
    if !starts.is_empty() {
        facts.insert("start".to_owned(), starts.join(", "));
    }
    facts
}

fn started(run: &Run, start: Start) -> bool {
    run.all_trials().any(|trial| trial.started.start == start)
}

#[cfg(test)]
mod tests;
