//! Hit-ratio curves of the served volumes, and conclusions from them: regions, required sizes, and
//! memory to move between volumes.
//!
//! Terms and rules are those of `larder size` (`crate::advise`). Invariant: the component that
//! observes the workload fills in the measured fields and [`Curves::advise`] all others, so the
//! JSON response and its text agree. *Reachable* means the hit ratio at the largest size of the
//! curve, which is limited by the number of remembered pages.

use super::Head;
use super::findings::Finding;
use crate::advise::curve::{Curve, Point};
use crate::advise::goal::{self, Attainment, Choice, Goal, Source};
use crate::advise::regions::{Region, Regions};
use crate::chart::{Axis, Chart, Labels, Scale};
use crate::format;
use crate::sizing::PolicyRatio;
use crate::table::{Cell, Column, Table};
use serde::{Deserialize, Serialize};

/// Width and height of the chart's plane, in characters.
const CHART_SIZE: (usize, usize) = (60, 10);
/// Maximum number of rows in the table of the curve.
const ROWS_MAX: usize = 10;
/// Minimum number of references for a meaningful curve.
pub const REFERENCES_MIN: u64 = 1_000;
/// Denominator of the share of the current memory below which missing memory is ignored.
const IGNORED_FRACTION: u64 = 16;

/// The answer to `GET /v1/curve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// Division of memory among volumes, as in `--share`.
    pub share: String,
    /// One entry per volume.
    pub volumes: Vec<VolumeCurve>,
}

/// Observed workload of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeCurve {
    /// Volume name.
    pub name: String,
    /// Memory that holds its blocks, bytes.
    pub bytes: u64,
    /// Memory that it can have without taking any from other volumes, bytes.
    pub room_bytes: u64,
    /// Maximum memory, bytes; null without a limit.
    pub max_bytes: Option<u64>,
    /// Share of its pages in the sample, 0 to 1; 0 without a sample.
    pub sample_rate: f64,
    /// References that the curve is based on, with lower weight for older ones.
    pub references: u64,
    /// References since the server added the volume; the weight of the volume among others.
    pub references_ever: u64,
    /// Observed hit ratio of these references.
    pub hit_ratio: f64,
    /// Current policy.
    pub policy: String,
    /// True if the cache chooses the policy.
    pub auto: bool,
    /// Hit ratio of LRU by size.
    pub points: Curve,
    /// Estimated hit ratio of each policy with the current memory, from scaled-down simulations.
    pub policies: Vec<PolicyRatio>,
    /// Regions of the curve; null if nothing hits.
    pub regions: Option<Regions>,
    /// Reasons for the boundaries of the regions.
    pub regions_why: Vec<String>,
    /// Region of the current memory.
    pub region: Option<Region>,
    /// Required size; null if nothing hits.
    pub needed: Option<Choice>,
    /// Problems of the volume.
    pub findings: Vec<Finding>,
    /// Recommendations, one sentence each.
    pub advice: Vec<String>,
}

/// Returns the required size of a volume with this curve.
#[must_use]
pub fn needed_memory(points: &Curve) -> Option<Choice> {
    let ceiling = points.rising().points().last()?.hit_ratio;
    goal::choose(points, ceiling, &Goal { target: Goal::TARGET, budget_bytes: None })
}

impl VolumeCurve {
    /// Returns the highest hit ratio of the curve.
    fn ceiling(&self) -> f64 {
        self.points.rising().points().last().map_or(0.0, |point| point.hit_ratio)
    }

    fn hit_ratio_at(&self, bytes: u64) -> f64 {
        self.points.rising().at(bytes).map_or(0.0, |point| point.hit_ratio)
    }

    /// Returns the memory that the volume has, or can have on demand.
    fn available_memory(&self) -> u64 {
        self.bytes.max(self.room_bytes)
    }

    fn is_known(&self) -> bool {
        self.references >= REFERENCES_MIN && self.points.last_bytes() > 0
    }

    /// Returns the additional memory that the volume needs, if any.
    fn missing_memory(&self) -> Option<u64> {
        let needed = self.needed.as_ref()?.point.bytes;
        let more = needed.saturating_sub(self.available_memory());
        (more > self.available_memory() / IGNORED_FRACTION).then_some(more)
    }

    /// Returns the memory that the volume does not need.
    fn spare(&self) -> u64 {
        let flat = self.regions.as_ref().map_or(0, |regions| regions.flat_begin_bytes);
        if self.region == Some(Region::Flat) {
            self.available_memory().saturating_sub(flat)
        } else {
            0
        }
    }

    /// Computes the regions and the required size.
    fn analyze(&mut self) {
        if !self.is_known() {
            return;
        }
        let ceiling = self.ceiling();
        self.regions = Regions::of(&self.points, ceiling);
        if let Some(regions) = &self.regions {
            self.regions_why = regions.reasons().to_vec();
            self.region = Some(regions.region(self.available_memory()));
        }
        self.needed = needed_memory(&self.points);
    }

    fn advice(&self, others: &[VolumeCurve], share_is_auto: bool) -> Vec<String> {
        let name = &self.name;
        if !self.is_known() {
            let known = format::count(self.references);
            return vec![format!("Nothing is known yet: {known} references are too few.")];
        }
        let (Some(needed), Some(region)) = (&self.needed, self.region) else {
            return vec![format!(
                "No memory helps: nothing that {name} asks for would still be there, up to {}.",
                format::bytes(self.points.last_bytes())
            )];
        };
        let mut advice = Vec::new();
        let memory = format::bytes(self.available_memory());
        if let Some(more) = self.missing_memory() {
            let (now, after) = (self.hit_ratio_at(self.available_memory()), needed.point.hit_ratio);
            advice.push(format!(
                "{name} needs {} more to reach {} hits; with {memory}, in {}, it has {} (LRU).",
                format::bytes(more),
                format::percent(after),
                region.title(),
                format::percent(now),
            ));
        } else if self.spare() > 0 {
            advice.push(self.spare_memory_advice(others, share_is_auto));
        } else {
            advice.push(format!("{name} has what it needs: {memory} lie in {}.", region.title()));
        }
        let goal = Goal { target: Goal::TARGET, budget_bytes: None };
        let largest = format!("{}, the largest size known of", format::bytes(needed.point.bytes));
        let everything = format!("{}, the most known of,", format::bytes(self.points.last_bytes()));
        let source = Source { everything: &everything, largest: &largest };
        let ceiling = self.ceiling();
        let reason = goal::reason(&goal, ceiling, needed.reach, needed.target_bytes, source);
        let size = format::bytes(needed.point.bytes);
        match needed.reach {
            Attainment::End => advice.push(reason),
            Attainment::Reached | Attainment::Budget => advice.push(format!("{size}: {reason}")),
        }
        advice
    }

    /// Describes the benefit of the spare memory for another volume.
    fn spare_memory_advice(&self, others: &[VolumeCurve], share_is_auto: bool) -> String {
        let spare = self.spare();
        let weighted_gain = |other: &VolumeCurve| {
            let (now, after) =
                (other.hit_ratio_at(other.bytes), other.hit_ratio_at(other.bytes + spare));
            (after - now) * crate::advise::as_f64(other.references_ever)
        };
        let candidates = others.iter().filter(|other| other.name != self.name && other.is_known());
        let candidates = candidates.filter(|other| other.missing_memory().is_some());
        let best =
            candidates.max_by(|one, other| weighted_gain(one).total_cmp(&weighted_gain(other)));
        let start = format!(
            "{} is in {}: {} of {} could go",
            self.name,
            Region::Flat.title(),
            format::bytes(spare),
            format::bytes(self.available_memory())
        );
        let Some(best) = best.filter(|best| weighted_gain(best) > 0.0) else {
            return format!("{start}; no other volume would gain from it.");
        };
        let given = spare.min(best.missing_memory().unwrap_or(spare));
        let (now, after) = (best.hit_ratio_at(best.bytes), best.hit_ratio_at(best.bytes + given));
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
    fn to_text(&self) -> String {
        let chosen = if self.auto { " (auto)" } else { "" };
        let mut parts = vec![format!(
            "{}: {} with {}{chosen}; of {} references lately {} hit\n",
            self.name,
            format::bytes(self.bytes),
            self.policy,
            format::count(self.references),
            format::percent(self.hit_ratio),
        )];
        if self.is_known() {
            parts.extend(self.chart());
            parts.push(self.rows().to_text());
        }
        if !self.regions_why.is_empty() {
            parts.push(format!("Regions\n\n{}", lines(&self.regions_why)));
        }
        if !self.policies.is_empty() {
            let size = format::bytes(self.bytes);
            parts.push(format!(
                "Policies in miniature, with {size}\n\n{}",
                self.policies_table().to_text()
            ));
        }
        parts.push(format!("Advice\n\n{}", lines(&self.advice)));
        if !self.findings.is_empty() {
            let sentence = |found: &Finding| format!("{}; {}.", found.seen, found.answer);
            let found: Vec<_> = self.findings.iter().map(sentence).collect();
            parts.push(format!("Findings\n\n{}", lines(&found)));
        }
        parts.join("\n")
    }

    fn chart(&self) -> Option<String> {
        let size = Axis::new("size of the cache", "").scale(Scale::Log2).labels(Labels::Bytes);
        let most = self.points.points().iter().map(|point| point.high).fold(0.01, f64::max);
        let hits = Axis::new("hit ratio of LRU", "").labels(Labels::Percent).range(0.0, most);
        let rate = 1.0 / self.sample_rate.max(1e-9);
        let title = format!("Hit-ratio curve (one page in {rate:.0} is sampled)");
        let mut chart = Chart::new(title, size, hits);
        let coordinates = |point: &Point| (crate::advise::as_f64(point.bytes), point.hit_ratio);
        chart.line("lru", self.points.points().iter().map(coordinates));
        chart.to_text(CHART_SIZE.0, CHART_SIZE.1).ok()
    }

    /// Returns a selection of the curve's points as a table.
    fn rows(&self) -> Table {
        let mut table = Table::new("", columns().into_iter().skip(1));
        let points = self.points.points();
        let every = points.len().div_ceil(ROWS_MAX).max(1);
        let last = points.len().saturating_sub(1);
        for (index, _) in points.iter().enumerate() {
            if (last - index).is_multiple_of(every) {
                table.push(self.cells(index).into_iter().skip(1));
            }
        }
        table
    }

    fn cells(&self, index: usize) -> [Cell; 5] {
        let point = self.points.points()[index];
        [
            Cell::word(&self.name),
            Cell::bytes(point.bytes),
            Cell::percent(point.hit_ratio),
            Cell::percent(point.low),
            Cell::percent(point.high),
        ]
    }

    fn policies_table(&self) -> Table {
        let columns = [
            Column::words("policy", "policy"),
            Column::numbers("hit_ratio", "hits"),
            Column::numbers("low", "from"),
            Column::numbers("high", "to"),
        ];
        let mut table = Table::new("", columns);
        for policy in &self.policies {
            table.push([
                Cell::word(&policy.policy),
                Cell::percent(policy.hit_ratio),
                Cell::percent(policy.low),
                Cell::percent(policy.high),
            ]);
        }
        table
    }
}

fn columns() -> [Column; 5] {
    [
        Column::words("volume", "volume"),
        Column::numbers("bytes", "size"),
        Column::numbers("hit_ratio", "hits"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
    ]
}

fn lines(sentences: &[String]) -> String {
    let line = |sentence: &String| ["  ", sentence, "\n"].concat();
    sentences.iter().map(line).collect()
}

impl Curves {
    /// Computes the fields that follow from the curves.
    pub fn advise(&mut self) {
        self.volumes.iter_mut().for_each(VolumeCurve::analyze);
        let share_is_auto = self.share == "auto";
        let advice: Vec<_> =
            self.volumes.iter().map(|of| of.advice(&self.volumes, share_is_auto)).collect();
        for (volume, advice) in self.volumes.iter_mut().zip(advice) {
            volume.advice = advice;
        }
    }

    /// Renders all curves as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.volumes.iter().map(VolumeCurve::to_text).collect::<Vec<_>>().join("\n")
    }

    /// Returns all points of all volumes as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new("", columns());
        for volume in &self.volumes {
            for index in 0..volume.points.points().len() {
                table.push(volume.cells(index));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests;
