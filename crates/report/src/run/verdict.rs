//! The answer of a run in one sentence, and the few figures that carry it.
//!
//! The sentence depends on the kind of run: the gain of a cache for `larder try`, the best part for
//! a matrix, the stress point for a server load, the fastest passes for a grid of sizes, and
//! otherwise the median of the main series.

use super::parts::ends;
use super::stress::{StressReason, steps, stress_point};
use crate::page::Card;
use crate::quantity::{quantity, speed_words};
use crate::stats::ratio_estimate::Shift;
use crate::stats::{CONFIDENCE, INTERVAL_VALUES_MIN, Summary, confidence_interval, median};
use crate::try_verdict;
use larder_schema::compare::{SeriesComparison, Verdict};
use larder_schema::run::{Run, Sample};
use larder_schema::{as_u64, format};

/// Maximum number of passes over a grid that have cards.
const PASSES_MAX: usize = 3;

/// Returns the answer of a run.
pub(super) fn verdict(run: &Run) -> String {
    let sentence = of_try(run)
        .or_else(|| of_parts(run))
        .or_else(|| of_load(run))
        .or_else(|| of_grid(run))
        .or_else(|| of_comparisons(run))
        .or_else(|| of_main(run));
    sentence.unwrap_or_else(|| run.what.clone())
}

/// Returns the figures that carry the answer.
pub(super) fn cards(run: &Run) -> Vec<Card> {
    let mut cards = if try_verdict::is_try(run) {
        try_cards(run)
    } else if run.is_gathered() {
        part_cards(run)
    } else {
        Some(grid_cards(run)).filter(|cards| !cards.is_empty()).unwrap_or_else(|| main_cards(run))
    };
    if !cards.is_empty() {
        cards.push(confidence(run));
    }
    cards
}

/// Returns the confidence in the run: doubtful as well if most trials were set aside.
fn confidence(run: &Run) -> Card {
    let (kept, set_aside) = (run.trials.len() as u64, run.set_aside);
    if run.doubts.is_empty() && set_aside > kept {
        let trials = format::counted(set_aside + kept, "trial");
        let note = format!("{} of {trials} were set aside", format::count(set_aside));
        return Card::new("Confidence", "doubtful", note);
    }
    let fewest = run.parts.iter().map(|part| part.run.trials.len() as u64).min();
    // The cards of a comparison have its own interval, which needs fewer trials.
    let is_compared = try_verdict::is_try(run);
    if run.doubts.is_empty() && !is_compared && fewest.unwrap_or(kept) < INTERVAL_VALUES_MIN {
        let note = format!("an interval needs {INTERVAL_VALUES_MIN} trials");
        return Card::new("Confidence", "unknown", note);
    }
    Card::confidence(run.doubts.len())
}

/// Returns a sentence with a capital letter at its start.
pub(crate) fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Returns the name of a series, with its coordinates as sizes or counts.
pub(super) fn series_name(sample: &Sample) -> String {
    let Some(group) = sample.group.as_ref().filter(|_| !sample.at.is_empty()) else {
        return sample.series.clone();
    };
    let at: Vec<String> = sample.at.iter().map(|(name, value)| coordinate(name, *value)).collect();
    format!("{group}, {}", at.join(", "))
}

/// Formats a coordinate of a series: `record 4 KiB`, `clients 16`.
pub(super) fn coordinate(name: &str, value: f64) -> String {
    match name.strip_suffix("_bytes") {
        Some(name) => format!("{} {}", name.replace('_', " "), quantity(value, "bytes")),
        None => format!("{} {}", name.replace('_', " "), plain_number(value)),
    }
}

/// Formats a number of clients, or another coordinate, without a fraction if it is whole.
fn plain_number(value: f64) -> String {
    if value.fract() == 0.0 { format::count(as_u64(value)) } else { format::number(value) }
}

fn of_try(run: &Run) -> Option<String> {
    let sides = try_verdict::comparisons(run)?;
    let of_side =
        |(start, compared): &(&str, SeriesComparison)| match (compared.verdict, factor(compared)) {
            (Verdict::CannotTell, _) | (_, None) => format!("no verdict {start}"),
            (_, Some(factor)) => format!("{} {start}", speed_words(factor)),
        };
    let sides: Vec<String> = sides.iter().map(of_side).collect();
    (!sides.is_empty()).then(|| format!("With Larder: {}", sides.join(", ")))
}

/// Returns the factor of speed of a comparison, as [`try_verdict`] orders it.
fn factor(compared: &SeriesComparison) -> Option<f64> {
    let ratio = compared.ratio?;
    // The verdict knows if less is better.
    let is_inverse = (compared.verdict == Verdict::Better) != (ratio > 1.0);
    Some(if is_inverse { 1.0 / ratio } else { ratio })
}

fn try_cards(run: &Run) -> Vec<Card> {
    let of_side = |(start, compared): &(&str, SeriesComparison)| {
        let value = |value| quantity(value, &compared.unit);
        let mut note = format!(
            "{} without, {} with Larder",
            value(compared.median_a),
            value(compared.median_b)
        );
        if !compared.why.is_empty() {
            put!(note, "; {}", compared.why);
        }
        let shown = match compared.verdict {
            Verdict::CannotTell => "no verdict".to_owned(),
            _ => factor(compared).map_or_else(|| "-".to_owned(), speed_words),
        };
        Card::new(format!("{} start", capitalized(start)), shown, note)
    };
    try_verdict::comparisons(run).unwrap_or_default().iter().map(of_side).collect()
}

fn of_parts(run: &Run) -> Option<String> {
    let main = run.parts.first()?.run.main_sample()?;
    if !run.is_gathered() {
        return None;
    }
    let [best, worst] = ends(run)?;
    let values = |name: &str| {
        let part = run.parts.iter().find(|part| part.name == name)?;
        Some(part.run.sample(&main.series)?.values.clone())
    };
    let (value, count) = (quantity(best.1, &main.unit), run.parts.len());
    let shift = Shift::between(&values(worst.0)?, &values(best.0)?)
        .filter(|shift| shift.confidence >= CONFIDENCE);
    let Some(shift) = shift else {
        let worst = quantity(worst.1, &main.unit);
        return Some(format!("Too few trials to compare {count} variants: {worst} to {value}"));
    };
    if shift.low <= 1.0 && shift.high >= 1.0 {
        return Some(format!("No clear difference: {value} at best of {count} variants"));
    }
    Some(format!(
        "{} is best with {value}; {} has {}",
        best.0,
        worst.0,
        quantity(worst.1, &main.unit)
    ))
}

fn part_cards(run: &Run) -> Vec<Card> {
    let main = run.parts.first().and_then(|part| part.run.main_sample());
    let (Some(main), Some([best, worst])) = (main, ends(run)) else { return Vec::new() };
    let count = format::count(run.parts.len() as u64);
    vec![
        Card::new("Best", quantity(best.1, &main.unit), best.0),
        Card::new("Worst", quantity(worst.1, &main.unit), worst.0),
        Card::new("Variants", count, format!("compared by the median of {}", main.series)),
    ]
}

fn of_load(run: &Run) -> Option<String> {
    let steps = steps(run);
    let last = steps.last().filter(|_| steps.len() > 1)?;
    let throughput = |value| quantity(value, "bytes/s");
    Some(match stress_point(&steps) {
        None => format!(
            "Not saturated by {} clients: {}",
            plain_number(last.clients),
            throughput(last.throughput)
        ),
        Some(point) => {
            let reason = match point.reason {
                StressReason::TurnsDown => "more clients get less",
                StressReason::Waits => "more clients only wait longer",
            };
            format!(
                "Saturated by {} clients at {}: {reason}",
                plain_number(point.gained.clients),
                throughput(point.gained.throughput)
            )
        }
    })
}

/// Returns the passes over a grid of sizes, the fastest first: name, highest median and unit.
fn passes(run: &Run) -> Vec<(&str, f64, &str)> {
    let mut passes: Vec<(&str, f64, &str)> = Vec::new();
    for sample in run.samples.iter().filter(|sample| sample.at.len() == 2) {
        let (Some(group), Some(median)) = (&sample.group, median(&sample.values)) else { continue };
        match passes.iter_mut().find(|(name, ..)| name == group) {
            Some(pass) => pass.1 = pass.1.max(median),
            None => passes.push((group, median, &sample.unit)),
        }
    }
    // A flushed pass repeats the one before it.
    passes.retain(|(name, ..)| !name.contains(", flushed"));
    passes.sort_by(|a, b| b.1.total_cmp(&a.1));
    passes
}

fn of_grid(run: &Run) -> Option<String> {
    let passes = passes(run);
    let reached = |(name, median, unit): &(&str, f64, &str)| {
        format!("{name} reaches {}", quantity(*median, unit))
    };
    let (first, last) = (passes.first()?, passes.last()?);
    let last = if passes.len() > 1 { format!(", {}", reached(last)) } else { String::new() };
    Some(capitalized(&reached(first)) + &last)
}

fn grid_cards(run: &Run) -> Vec<Card> {
    let card = |(name, median, unit): (&str, f64, &str)| {
        Card::new(capitalized(name), quantity(median, unit), "highest median of all sizes")
    };
    passes(run).into_iter().take(PASSES_MAX).map(card).collect()
}

fn of_comparisons(run: &Run) -> Option<String> {
    let held = run.comparisons.iter().filter(|comparison| comparison.holds).count();
    match run.comparisons.len() {
        0 => None,
        count if count == held => Some(format!("All {count} comparisons hold")),
        count => Some(format!("{} of {count} comparisons do not hold", count - held)),
    }
}

fn of_main(run: &Run) -> Option<String> {
    let main = run.main_sample()?;
    let median = median(&main.values)?;
    let start = run.trials.first().map(|trial| trial.started.start.name());
    let start = start.map_or_else(String::new, |start| format!(", {start} start"));
    let interval = confidence_interval(&main.values).map_or_else(String::new, |it| {
        let (low, high) = (quantity(it.low, &main.unit), quantity(it.high, &main.unit));
        format!(" ({low} to {high})")
    });
    let name = capitalized(&series_name(main));
    Some(format!("{name}: {}{interval}{start}", quantity(median, &main.unit)))
}

fn main_cards(run: &Run) -> Vec<Card> {
    let Some((main, summary)) =
        run.main_sample().and_then(|main| Some((main, Summary::of(&main.values)?)))
    else {
        return Vec::new();
    };
    let value = |value| quantity(value, &main.unit);
    let (interval, range) = match confidence_interval(&main.values) {
        Some(it) => {
            let half = (it.high - it.low) / 2.0 / summary.median.abs();
            (
                format!("\u{b1}{}", format::percent(half)),
                format!("{} to {}", value(it.low), value(it.high)),
            )
        }
        None => ("unknown".to_owned(), format!("fewer than {INTERVAL_VALUES_MIN} trials")),
    };
    let trials = format::counted(main.values.len() as u64, "trial");
    let start = run.trials.first().map_or("-", |trial| trial.started.start.name());
    vec![
        Card::new(capitalized(&series_name(main)), value(summary.median), "median"),
        Card::new("95 % interval", interval, range),
        Card::new("Start", start, trials),
    ]
}

#[cfg(test)]
mod tests;
