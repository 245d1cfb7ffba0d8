//! The answer of a run in one sentence, and the few figures that carry it.
//!
//! The sentence depends on the kind of run: the gain of a cache for `larder try`, the best part for
//! a matrix, the stress point for a server load, the fastest passes for a grid of sizes, both ends
//! of a series over one coordinate, and otherwise the median of the main series.

use super::parts::ends;
use super::stress::{StressReason, steps, stress_point};
use crate::page::{Card, Confidence};
use crate::quantity::{quantity, quantity_range, speed_words};
use crate::setting::{coordinate, plain_number};
use crate::stats::ratio_estimate::Shift;
use crate::stats::{CONFIDENCE, INTERVAL_VALUES_MIN, Summary, confidence_interval, median};
use crate::try_verdict;
use larder_schema::compare::{SeriesComparison, Verdict};
use larder_schema::format;
use larder_schema::run::trial::Trial;
use larder_schema::run::{Run, Sample};

/// Maximum number of passes over a grid that have cards.
const PASSES_MAX: usize = 3;

/// Returns the answer of a run.
pub(super) fn verdict(run: &Run) -> String {
    let sentence = of_try(run)
        .or_else(|| of_parts(run))
        .or_else(|| of_load(run))
        .or_else(|| of_grid(run))
        .or_else(|| of_comparisons(run))
        .or_else(|| of_ends(run))
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
        let of_grid = Some(grid_cards(run)).filter(|cards| !cards.is_empty());
        of_grid.or_else(|| end_cards(run)).unwrap_or_else(|| main_cards(run))
    };
    if !cards.is_empty() {
        cards.push(Card::confidence(confidence(run)));
    }
    cards
}

/// Returns the confidence in the run: doubtful as well if most trials were set aside.
fn confidence(run: &Run) -> Confidence {
    let (kept, set_aside) = (run.trials.len() as u64, run.set_aside);
    if run.doubts.is_empty() && set_aside > kept {
        let trials = format::counted(set_aside + kept, "trial");
        let note = format!("{} of {trials} were set aside", format::count(set_aside));
        return Confidence::Doubtful(note);
    }
    let fewest = run.parts.iter().map(|part| part.run.trials.len() as u64).min();
    // The cards of a comparison have its own interval, which needs fewer trials.
    let is_compared = try_verdict::is_try(run);
    if run.doubts.is_empty() && !is_compared && fewest.unwrap_or(kept) < INTERVAL_VALUES_MIN {
        let note = format!("an interval needs {INTERVAL_VALUES_MIN} trials");
        return Confidence::Unknown(note);
    }
    Confidence::of_doubts(run.doubts.len())
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
    format!("{group}, {}", coordinates(sample))
}

/// Formats the coordinates of a series.
fn coordinates(sample: &Sample) -> String {
    let at: Vec<String> = sample.at.iter().map(|(name, value)| coordinate(name, *value)).collect();
    at.join(", ")
}

fn of_try(run: &Run) -> Option<String> {
    let sides = try_verdict::comparisons(run)?;
    let of_side = |(start, compared): &(&str, SeriesComparison)| {
        let words = factor_words(compared);
        match compared.verdict {
            Verdict::CannotTell => format!("{words} from a {start} start"),
            _ => format!("{words} {start}"),
        }
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

/// Returns the factor of a comparison in words, if it allows a verdict.
pub(super) fn factor_words(compared: &SeriesComparison) -> String {
    match compared.verdict {
        Verdict::CannotTell => "cannot tell".to_owned(),
        _ => factor(compared).map_or_else(|| "-".to_owned(), speed_words),
    }
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
        Card::new(format!("{} start", capitalized(start)), factor_words(compared), note)
    };
    try_verdict::comparisons(run).unwrap_or_default().iter().map(of_side).collect()
}

fn of_parts(run: &Run) -> Option<String> {
    let main = run.parts.first()?.run.main_sample()?;
    if !run.is_gathered() {
        return None;
    }
    let [best, worst] = ends(run)?;
    let (value, count) = (quantity(best.1, &main.unit), run.parts.len());
    let Some(shift) = shift(run, worst.0, best.0) else {
        let range = quantity_range(worst.1, best.1, &main.unit);
        return Some(format!("Too few trials to compare {count} variants: {range}"));
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

/// Returns the factor between the values of two parts; `None` if there are too few for an interval.
fn shift(run: &Run, from: &str, to: &str) -> Option<Shift> {
    let main = run.parts.first()?.run.main_sample()?;
    let values = |name: &str| {
        let part = run.parts.iter().find(|part| part.name == name)?;
        Some(&part.run.sample(&main.series)?.values)
    };
    Shift::between(values(from)?, values(to)?).filter(|shift| shift.confidence >= CONFIDENCE)
}

fn part_cards(run: &Run) -> Vec<Card> {
    let main = run.parts.first().and_then(|part| part.run.main_sample());
    let (Some(main), Some([best, worst])) = (main, ends(run)) else { return Vec::new() };
    let count = format::count(run.parts.len() as u64);
    let titles = match shift(run, worst.0, best.0) {
        Some(_) => ["Best", "Worst"],
        None => ["Best median", "Worst median"],
    };
    vec![
        Card::new(titles[0], quantity(best.1, &main.unit), best.0),
        Card::new(titles[1], quantity(worst.1, &main.unit), worst.0),
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

/// The point of a pass over a grid of sizes with the highest median.
struct PassPeak<'a> {
    pass: &'a str,
    median: f64,
    sample: &'a Sample,
}

impl PassPeak<'_> {
    fn value(&self) -> String {
        quantity(self.median, &self.sample.unit)
    }
}

/// Returns the peaks of the passes over a grid of sizes, the fastest first.
fn peaks(run: &Run) -> Vec<PassPeak<'_>> {
    let mut peaks: Vec<PassPeak<'_>> = Vec::new();
    for sample in run.samples.iter().filter(|sample| sample.at.len() == 2) {
        let (Some(pass), Some(median)) = (&sample.group, median(&sample.values)) else { continue };
        match peaks.iter_mut().find(|peak| peak.pass == pass) {
            Some(peak) if peak.median >= median => {}
            Some(peak) => (peak.median, peak.sample) = (median, sample),
            None => peaks.push(PassPeak { pass, median, sample }),
        }
    }
    // A flushed pass repeats the one before it.
    peaks.retain(|peak| !peak.pass.contains(", flushed"));
    peaks.sort_by(|a, b| b.median.total_cmp(&a.median));
    peaks
}

fn of_grid(run: &Run) -> Option<String> {
    let peaks = peaks(run);
    let reached = |peak: &PassPeak<'_>| format!("{} reaches {}", peak.pass, peak.value());
    let (first, last) = (peaks.first()?, peaks.last()?);
    let last = if peaks.len() > 1 { format!(", {}", reached(last)) } else { String::new() };
    Some(capitalized(&reached(first)) + &last)
}

fn grid_cards(run: &Run) -> Vec<Card> {
    let card = |peak: PassPeak<'_>| {
        let note = format!("highest median, at {}", coordinates(peak.sample));
        Card::new(capitalized(peak.pass), peak.value(), note)
    };
    peaks(run).into_iter().take(PASSES_MAX).map(card).collect()
}

/// Returns the name of the group of the main series if it has one coordinate, and the series at
/// both ends.
fn group_ends(run: &Run) -> Option<(&str, [&Sample; 2])> {
    let main = run.main_sample().filter(|main| main.at.len() == 1)?;
    let group = main.group.as_deref()?;
    let at = |sample: &Sample| sample.at.values().next().copied().unwrap_or_default();
    let mut samples: Vec<&Sample> = run
        .samples
        .iter()
        .filter(|it| it.group.as_deref() == Some(group) && !it.values.is_empty())
        .collect();
    samples.sort_by(|a, b| at(a).total_cmp(&at(b)));
    match samples.as_slice() {
        [first, .., last] => Some((group, [first, last])),
        _ => None,
    }
}

fn of_ends(run: &Run) -> Option<String> {
    let (group, ends) = group_ends(run)?;
    let end = |sample: &Sample| {
        let value = quantity(median(&sample.values)?, &sample.unit);
        Some(format!("{value} at {}", coordinates(sample)))
    };
    let intervals = ends.map(|sample| confidence_interval(&sample.values));
    let is_clear = match intervals {
        [Some(a), Some(b)] => a.high < b.low || b.high < a.low,
        _ => true,
    };
    let [first, last] = ends.map(end);
    let doubt = if is_clear { "" } else { "; no clear difference" };
    Some(format!(
        "{}: {}, {}{}{doubt}",
        capitalized(group),
        first?,
        last?,
        start_words(&run.trials)
    ))
}

fn end_cards(run: &Run) -> Option<Vec<Card>> {
    let (_, ends) = group_ends(run)?;
    let card = |sample: &Sample| {
        let value = |value| quantity(value, &sample.unit);
        let note = confidence_interval(&sample.values).map_or_else(
            || format!("median; an interval needs {INTERVAL_VALUES_MIN} trials"),
            |it| {
                let range = quantity_range(it.low, it.high, &sample.unit);
                format!("median; 95 % interval {range}")
            },
        );
        Some(Card::new(capitalized(&coordinates(sample)), value(median(&sample.values)?), note))
    };
    let [first, last] = ends.map(card);
    Some(vec![first?, last?, start_card(run)])
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
    let interval = confidence_interval(&main.values).map_or_else(String::new, |it| {
        format!(" ({})", quantity_range(it.low, it.high, &main.unit))
    });
    let name = capitalized(&series_name(main));
    let start = start_words(&run.trials);
    Some(format!("{name}: {}{interval}{start}", quantity(median, &main.unit)))
}

/// Returns the start state of the trials after a comma, as in ", cold start"; nothing if they
/// differ.
pub(super) fn start_words<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> String {
    let mut starts = trials.into_iter().map(|trial| trial.started.start);
    match starts.next() {
        Some(first) if starts.all(|start| start == first) => format!(", {} start", first.name()),
        _ => String::new(),
    }
}

fn start_card(run: &Run) -> Card {
    let start = run.trials.first().map_or("-", |trial| trial.started.start.name());
    Card::new("Start", start, format::counted(run.trials.len() as u64, "trial"))
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
            (format!("+-{}", format::percent(half)), quantity_range(it.low, it.high, &main.unit))
        }
        None => ("unknown".to_owned(), format!("fewer than {INTERVAL_VALUES_MIN} trials")),
    };
    vec![
        Card::new(capitalized(&series_name(main)), value(summary.median), "median"),
        Card::new("95 % interval", interval, range),
        start_card(run),
    ]
}

#[cfg(test)]
mod tests;
