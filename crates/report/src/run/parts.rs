//! Runs that are parts of another: the cells of a matrix, or the machines of a joint run.
//!
//! Invariants: each part is complete, with its trials, settings and doubts; a run gathered from
//! parts has no trials of its own, and its samples are those of the parts, named `SERIES: PART`.
//! Properties that all parts share are stored once, in the run.

use super::join::add;
use crate::quantity::{is_scaled, quantity};
use crate::stats::Summary;
use crate::table::{Cell, Column, Table};
use crate::try_verdict;
use larder_schema::run::trial::{Doubt, DoubtReason, Trial};
use larder_schema::run::{Direction, Part, Run, Sample};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of PostMark's megabyte.
const MEGABYTE: f64 = 1_048_576.0;

/// Columns of the comparisons made with PostMark about 2007 and in 2010: series, their title
/// there, and the divisor of the values.
const POSTMARK_COLUMNS: [(&str, &str, f64); 8] = [
    ("all phases", "time s", 1.0),
    ("transactions", "IOPS", 1.0),
    ("creation alone", "creation/s", 1.0),
    ("read in transactions", "reads/s", 1.0),
    ("appended in transactions", "appends/s", 1.0),
    ("deletion alone", "deletes/s", 1.0),
    ("read, over all phases", "read MB/s", MEGABYTE),
    ("written, over all phases", "write MB/s", MEGABYTE),
];

/// Gathers a run from its parts. `what` describes the measurement in one line; machine,
/// software and settings are those of the parts.
///
/// # Panics
/// If there are no parts.
#[must_use]
pub fn gathered(what: impl Into<String>, parts: Vec<Part>) -> Run {
    let first = &parts.first().expect("something was measured").run;
    let mut run = Run::new(what, first.started_at.clone(), first.machine.clone());
    run.workload.clone_from(&first.workload);
    run.software.clone_from(&first.software);
    let others = || parts[1..].iter().map(|part| &part.run);
    run.settings = common_entries(&first.settings, others().map(|run| &run.settings));
    run.environment = common_entries(&first.environment, others().map(|run| &run.environment));
    for sample in &first.samples {
        let part_samples = parts.iter().filter_map(|part| {
            let sample = part.run.sample(&sample.series)?.clone();
            let series = format!("{}: {}", sample.series, part.name);
            let group = Some(sample.group.clone().unwrap_or(sample.series.clone()));
            Some(Sample { series, group, ..sample })
        });
        run.samples.extend(part_samples);
    }
    run.main = run.samples.first().map(|sample| sample.series.clone());
    run.doubts = doubts(&parts);
    run.parts = parts;
    run
}

/// Gathers a run from several ranks of the same trials: rates and counts are added, and of
/// times the longest counts, see [`combine`].
///
/// # Panics
/// If there are no parts.
#[must_use]
pub fn together(parts: Vec<Part>) -> Run {
    let count = parts.len();
    let mut run = gathered(String::new(), parts);
    let first = &run.parts[0].run;
    run.what = format!("{}; {count} ranks together", first.what);
    run.main.clone_from(&first.main);
    let runs: Vec<&Run> = run.parts.iter().map(|part| &part.run).collect();
    let trials = runs.iter().map(|run| run.trials.len()).min().unwrap_or(0);
    let sum = |sample: &Sample| {
        let others = runs.iter().filter_map(|run| run.sample(&sample.series));
        let all: Vec<&Sample> = others.collect();
        let of_trial = |trial: usize| -> Vec<f64> {
            all.iter().filter_map(|sample| sample.values.get(trial).copied()).collect()
        };
        let values = (0..trials).map(|trial| combine(&sample.unit, &of_trial(trial)));
        Sample { values: values.collect(), ..sample.clone() }
    };
    let samples = first.samples.iter().map(sum).collect();
    let rank_trial = |trial: usize| {
        let mut all = runs.iter().map(|run| run.trials[trial].clone());
        let first = all.next().expect("there are parts");
        all.fold(first, add_parallel)
    };
    let trials = (0..trials).map(rank_trial).collect();
    (run.samples, run.trials) = (samples, trials);
    run
}

/// Returns a table with a row for each part: the median of each series with a better direction,
/// and the spread of the trials.
#[must_use]
pub(super) fn parts_table(run: &Run) -> Table {
    let columns = part_columns(run);
    let titles = columns.iter().map(|column| Column::numbers(&column.series, &column.title));
    let mut table = Table::new("", [Column::words("part", "")].into_iter().chain(titles));
    for part in &run.parts {
        let cells = columns.iter().map(|column| {
            let sample = part.run.sample(&column.series);
            sample.map_or_else(Cell::missing, |it| spread(&it.values, &column.unit, column.divisor))
        });
        table.push([Cell::word(&part.name)].into_iter().chain(cells));
    }
    table
}

/// Returns the series with a better direction and their titles; PostMark series have their
/// historical titles.
pub(super) fn part_columns(run: &Run) -> Vec<PartColumn> {
    let Some(first) = run.parts.first() else { return Vec::new() };
    let postmark = |(series, title, divisor): (&str, &str, f64)| {
        let (series, title) = (series.to_owned(), title.to_owned());
        PartColumn { series, title, unit: String::new(), divisor }
    };
    let mut columns: Vec<PartColumn> = Vec::new();
    let is_postmark =
        POSTMARK_COLUMNS.iter().all(|(series, ..)| first.run.sample(series).is_some());
    if is_postmark {
        columns.extend(POSTMARK_COLUMNS.map(postmark));
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    if is_postmark {
        known.extend(first.run.samples.iter().map(|sample| sample.series.as_str()));
    }
    // Series that only some parts have count as well; they come last.
    for sample in run.parts.iter().flat_map(|part| &part.run.samples) {
        if sample.better.is_some() && known.insert(&sample.series) {
            columns.push(PartColumn::of(sample));
        }
    }
    columns
}

/// Returns the parts with the best and the worst median of the main series, with the medians.
pub(super) fn ends(run: &Run) -> Option<[(&str, f64); 2]> {
    let main = run.parts.first()?.run.main_sample()?;
    let values = run.parts.iter().filter_map(|part| {
        let sample = part.run.sample(&main.series)?;
        Some((part.name.as_str(), Summary::of(&sample.values)?.median))
    });
    let mut values: Vec<(&str, f64)> = values.collect();
    values.sort_by(|a, b| a.1.total_cmp(&b.1));
    if main.better == Some(Direction::Higher) {
        values.reverse();
    }
    Some([*values.first()?, *values.last()?])
}

/// Combines the values of all ranks in a trial: rates and counts are added, and of times (`s`,
/// `ms`, `us`, `ns`) the longest counts, since the work is complete when the last rank finishes.
#[must_use]
pub fn combine(unit: &str, values: &[f64]) -> f64 {
    if ["s", "ms", "us", "ns"].contains(&unit) {
        values.iter().copied().fold(0.0, f64::max)
    } else {
        values.iter().sum()
    }
}

/// Combines a trial of one rank with the same trial of another: it ends when the last rank
/// finishes.
fn add_parallel(mut sum: Trial, more: Trial) -> Trial {
    add(&mut sum, more, u64::max);
    // Ranks on one machine count the same disks, so a sum would be wrong.
    (sum.disk_bytes, sum.own_bytes) = (None, None);
    sum
}

/// A column of the table of parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PartColumn {
    /// Series name.
    pub(super) series: String,
    /// Title.
    title: String,
    /// Unit of the cells; empty if the title states it.
    unit: String,
    /// Divisor of the values.
    divisor: f64,
}

impl PartColumn {
    /// Returns the column of a series; its title states the unit if the cells do not.
    fn of(sample: &Sample) -> Self {
        let Sample { series, unit, .. } = sample;
        let (series, divisor) = (series.clone(), 1.0);
        if is_scaled(unit) || unit == "%" {
            return Self { title: series.clone(), series, unit: unit.clone(), divisor };
        }
        let title = if *unit == format!("{series}/s") {
            unit.clone()
        } else if series.starts_with(unit) {
            series.clone()
        } else {
            format!("{series} [{unit}]")
        };
        Self { title, series, unit: String::new(), divisor }
    }
}

/// Returns the median divided by `divisor`, with its unit, and half the range of the values as a
/// share of it. Whole percentages are precise enough for a spread, and keep columns narrow.
pub(super) fn spread(values: &[f64], unit: &str, divisor: f64) -> Cell {
    let Some(summary) = Summary::of(values) else { return Cell::missing() };
    let median = summary.median / divisor;
    let shown = quantity(median, unit);
    let half_range = (summary.max - summary.min) / 2.0 / summary.median.abs();
    if values.len() < 2 || !half_range.is_finite() {
        return Cell::shown(median, shown);
    }
    Cell::shown(median, format!("{shown} +-{} %", (half_range * 100.0).round()))
}

/// Returns the entries that have the same value in all maps.
fn common_entries<'a, V: Clone + PartialEq + 'a>(
    first: &BTreeMap<String, V>,
    others: impl Iterator<Item = &'a BTreeMap<String, V>>,
) -> BTreeMap<String, V> {
    let mut same = first.clone();
    for other in others {
        same.retain(|name, value| other.get(name) == Some(value));
    }
    same
}

/// Returns the distinct doubts of all parts, each with the trials to which it applies.
fn doubts(parts: &[Part]) -> Vec<Doubt> {
    let mut known: BTreeMap<(DoubtReason, &str), BTreeSet<usize>> = BTreeMap::new();
    for (number, part) in parts.iter().enumerate() {
        for doubt in &part.run.doubts {
            known.entry((doubt.why, &doubt.text)).or_default().insert(number);
        }
    }
    let doubt = |((why, text), of): ((DoubtReason, &str), BTreeSet<usize>)| {
        let of: Vec<&Part> = of.iter().map(|number| &parts[*number]).collect();
        let trials = if of.len() == parts.len() {
            "all trials".to_owned()
        } else {
            try_verdict::trials_in_words(&of, parts).unwrap_or_else(|| trials_of(&of))
        };
        Doubt { why, text: format!("{text}, in {trials}") }
    };
    known.into_iter().map(doubt).collect()
}

/// Returns words for the trials of some parts. Names have commas, so each is quoted.
fn trials_of(parts: &[&Part]) -> String {
    let names: Vec<String> = parts.iter().map(|part| format!("\"{}\"", part.name)).collect();
    format!("the trials of {}", names.join(" and "))
}

#[cfg(test)]
mod tests;
