//! Hit-ratio curves of the served volumes, and conclusions from them: regions, required sizes, and
//! memory to move between volumes.
//!
//! Terms and rules are those of `larder size` (`crate::advise`). Invariant: the component that
//! observes the workload fills in the measured fields and [`advise`] all others, so the
//! JSON response and its text agree. *Reachable* means the hit ratio at the largest size of the
//! curve, which is limited by the number of remembered pages.

mod decision;

use crate::advise::goal::{self, Source};
use crate::advise::regions;
use crate::chart::{Axis, Chart, Labels, Scale};
use crate::table::{Field, Table};
pub use decision::{
    MemoryAdvice, REFERENCES_MIN, advising_curve, advising_policy, decide, needed_memory,
};
use decision::{available_memory, hit_ratio_at, is_known};
use larder_schema::advice::{Attainment, Region, SizingGoal};
use larder_schema::control::{Curves, Finding, VolumeCurve};
use larder_schema::curve::Point;
use larder_schema::format;
use larder_schema::sizing::PolicyRatio;

/// Width and height of the chart's plane, in characters.
const CHART_SIZE: (usize, usize) = (60, 10);
/// Maximum number of rows in the table of the curve.
const ROWS_MAX: usize = 10;
fn advice(volume: &VolumeCurve, others: &[VolumeCurve], share_is_auto: bool) -> Vec<String> {
    let name = &volume.name;
    let decision = decide(volume);
    let last = format::bytes(advising_curve(volume).last_bytes());
    let memory = format::bytes(available_memory(volume));
    let (needed, region) = match (&decision, &volume.needed, volume.region) {
        (MemoryAdvice::Unknown, ..) => {
            let known = format::count(volume.references);
            return vec![format!("Nothing is known yet: {known} references are too few.")];
        }
        (MemoryAdvice::TooEarly, ..) => {
            let missing = format::count(volume.references_missing);
            return vec![format!(
                "Too few references to tell if {name} uses its memory: {missing} more are needed."
            )];
        }
        (_, Some(needed), Some(region)) => (needed, region),
        _ => {
            return vec![format!(
                "No memory helps: nothing that {name} asks for would still be there, up to {last}."
            )];
        }
    };
    let mut advice = vec![match decision {
        MemoryAdvice::More { bytes } => format!(
            "{name} needs {} more to reach {} hits; with {memory}, in {}, it has {} ({}).",
            format::bytes(bytes),
            format::percent(needed.point.hit_ratio),
            regions::title(region),
            format::percent(hit_ratio_at(volume, available_memory(volume))),
            advising_policy(volume),
        ),
        MemoryAdvice::Spare { bytes } => spare_memory_advice(volume, bytes, others, share_is_auto),
        _ => format!("{name} has what it needs: {memory} lie in {}.", regions::title(region)),
    }];
    let goal = SizingGoal { target: SizingGoal::TARGET, budget_bytes: None };
    let largest = format!("{}, the largest size known of", format::bytes(needed.point.bytes));
    let everything = format!("{last}, the largest evaluated size,");
    let source = Source { counted: "references", everything: &everything, largest: &largest };
    let ceiling = decision::ceiling(volume);
    let reason = goal::reason(&goal, ceiling, needed.reach, needed.target_bytes, source);
    let size = format::bytes(needed.point.bytes);
    match needed.reach {
        Attainment::End => advice.push(reason),
        Attainment::Reached | Attainment::Budget => advice.push(format!("{size}: {reason}")),
    }
    advice
}

/// Describes the benefit of the spare memory for another volume.
fn spare_memory_advice(
    volume: &VolumeCurve,
    spare: u64,
    others: &[VolumeCurve],
    share_is_auto: bool,
) -> String {
    let weighted_gain = |other: &VolumeCurve| {
        let (now, after) =
            (hit_ratio_at(other, other.bytes), hit_ratio_at(other, other.bytes + spare));
        (after - now) * larder_schema::as_f64(other.references_ever)
    };
    let more = |other: &VolumeCurve| match decide(other) {
        MemoryAdvice::More { bytes } => Some(bytes),
        _ => None,
    };
    let candidates =
        others.iter().filter(|other| other.name != volume.name && more(other).is_some());
    let best = candidates.max_by(|one, other| weighted_gain(one).total_cmp(&weighted_gain(other)));
    let start = format!(
        "{} is in {}: {} of {} could go",
        volume.name,
        regions::title(Region::Flat),
        format::bytes(spare),
        format::bytes(available_memory(volume))
    );
    let Some(best) = best.filter(|best| weighted_gain(best) > 0.0) else {
        return format!("{start}; no other volume would gain from it.");
    };
    let given = spare.min(more(best).unwrap_or(spare));
    let (now, after) = (hit_ratio_at(best, best.bytes), hit_ratio_at(best, best.bytes + given));
    let is_at_max = best.max_bytes.is_some_and(|max| max < best.bytes + given);
    let action = match (is_at_max, share_is_auto) {
        (true, _) => format!("its --max is in the way: larder ctl set {}.max=all", best.name),
        (false, true) => "it is moved by itself".to_owned(),
        (false, false) => "larder ctl set share=auto moves it".to_owned(),
    };
    format!(
        "{start}, {} of it to {}, which would hit {} instead of {}; {action}.",
        format::bytes(given),
        best.name,
        format::percent(after),
        format::percent(now)
    )
}

/// Renders the curve as text.
fn volume_to_text(volume: &VolumeCurve) -> String {
    let chosen = if volume.auto { " (auto)" } else { "" };
    let mut parts = vec![format!(
        "{}: {} with {}{chosen}; {} of {} recent references hit\n",
        volume.name,
        format::bytes(volume.bytes),
        volume.policy,
        format::percent(volume.hit_ratio),
        format::count(volume.references),
    )];
    if is_known(volume) {
        parts.push(policy_points_text(volume));
        parts.extend(chart(volume));
        parts.push(points_table(volume).to_text());
    }
    if !volume.regions_why.is_empty() {
        parts.push(format!("Regions\n\n{}", lines(&volume.regions_why)));
    }
    if !volume.policies.is_empty() {
        let size = format::bytes(volume.bytes);
        parts.push(format!(
            "Policies in miniature, with {size}\n\n{}",
            policies_table(volume).to_text()
        ));
    }
    parts.push(format!("Advice\n\n{}", lines(&volume.advice)));
    if !volume.findings.is_empty() {
        let sentence = |found: &Finding| format!("{}; {}.", found.seen, found.answer);
        let found: Vec<_> = volume.findings.iter().map(sentence).collect();
        parts.push(format!("Findings\n\n{}", lines(&found)));
    }
    parts.join("\n")
}

/// Renders the curve of the current policy, with LRU at the same sizes.
fn policy_points_text(volume: &VolumeCurve) -> String {
    let policy = &volume.policy;
    if volume.policy_points.points().is_empty() {
        let yet = if policy == "wtinylfu" { "" } else { " yet" };
        return format!("Hit ratio with {policy}: not estimated{yet}; LRU's curve decides.\n");
    }
    let with_lru = |point: &Point| {
        let lru = volume.points.at(point.bytes).map_or(0.0, |point| point.hit_ratio);
        (*point, lru)
    };
    let points: Vec<_> = volume.policy_points.points().iter().map(with_lru).collect();
    let fields = [
        Field::bytes("bytes", "size", |it: &(Point, f64)| it.0.bytes),
        Field::percent("hit_ratio", "hits", |it| it.0.hit_ratio),
        Field::percent("low", "from", |it| it.0.low),
        Field::percent("high", "to", |it| it.0.high),
        Field::percent("lru_hit_ratio", "LRU", |it| it.1),
    ];
    let table = Table::of("", &points, fields);
    format!("Hit ratio with {policy}, read-ahead included\n\n{}", table.to_text())
}

fn chart(volume: &VolumeCurve) -> Option<String> {
    let size = Axis::new("size of the cache", "").scale(Scale::Log2).labels(Labels::Bytes);
    let most = volume.points.points().iter().map(|point| point.high).fold(0.01, f64::max);
    let hits = Axis::new("hit ratio of LRU", "").labels(Labels::Percent).range(0.0, most);
    let rate = 1.0 / volume.sample_rate.max(1e-9);
    let title = format!("Hit-ratio curve (one page in {rate:.0} is sampled)");
    let mut chart = Chart::new(title, size, hits);
    let coordinates = |point: &Point| (larder_schema::as_f64(point.bytes), point.hit_ratio);
    chart.line("lru", volume.points.points().iter().map(coordinates));
    chart.to_text(CHART_SIZE.0, CHART_SIZE.1)
}

/// Returns a selection of the curve's points as a table.
fn points_table(volume: &VolumeCurve) -> Table {
    let points = volume.points.points();
    let every = points.len().div_ceil(ROWS_MAX).max(1);
    Table::of("", points.iter().rev().step_by(every).rev(), point_fields())
}

/// Returns the fields of a point.
fn point_fields() -> [Field<Point>; 4] {
    [
        Field::bytes("bytes", "size", |it| it.bytes),
        Field::percent("hit_ratio", "hits", |it| it.hit_ratio),
        Field::percent("low", "from", |it| it.low),
        Field::percent("high", "to", |it| it.high),
    ]
}

fn policies_table(volume: &VolumeCurve) -> Table {
    let fields = [
        Field::word("policy", "policy", |it: &PolicyRatio| &it.policy),
        Field::percent("hit_ratio", "hits", |it| it.hit_ratio),
        Field::percent("low", "from", |it| it.low),
        Field::percent("high", "to", |it| it.high),
    ];
    Table::of("", &volume.policies, fields)
}

fn lines(sentences: &[String]) -> String {
    let line = |sentence: &String| ["  ", sentence, "\n"].concat();
    sentences.iter().map(line).collect()
}

/// Computes the fields that follow from the curves.
pub fn advise(curves: &mut Curves) {
    curves.volumes.iter_mut().for_each(decision::analyze);
    let share_is_auto = curves.share == "auto";
    let advice: Vec<_> =
        curves.volumes.iter().map(|of| advice(of, &curves.volumes, share_is_auto)).collect();
    for (volume, advice) in curves.volumes.iter_mut().zip(advice) {
        volume.advice = advice;
    }
}

/// Renders all curves as text.
#[must_use]
pub fn curves_to_text(curves: &Curves) -> String {
    curves.volumes.iter().map(volume_to_text).collect::<Vec<_>>().join("\n")
}

/// Returns all points of all volumes as a table.
#[must_use]
pub fn curves_table(curves: &Curves) -> Table {
    let points_of = |volume: &VolumeCurve| {
        let name = volume.name.clone();
        volume.points.points().iter().map(move |point| (name.clone(), *point)).collect::<Vec<_>>()
    };
    let points: Vec<(String, Point)> = curves.volumes.iter().flat_map(points_of).collect();
    let fields = [
        Field::word("volume", "volume", |it: &(String, Point)| &it.0),
        Field::bytes("bytes", "size", |it| it.1.bytes),
        Field::percent("hit_ratio", "hits", |it| it.1.hit_ratio),
        Field::percent("low", "from", |it| it.1.low),
        Field::percent("high", "to", |it| it.1.high),
    ];
    Table::of("", &points, fields)
}

#[cfg(test)]
mod tests;
