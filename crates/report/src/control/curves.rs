//! The curves of the volumes that are served, and what follows from them: regions, the size that a
//! volume needs, who could give memory to whom.
//!
//! Words and rules are those of `larder size` (`crate::advise`). Invariant: whoever knows the
//! workload fills in what was measured, and [`Curves::advise`] everything else, so that an answer
//! and its text say the same. *Reachable* is here what the largest size of a curve hits, which is
//! as far as pages are remembered.

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

/// Characters of the chart's plane.
const CHART: (usize, usize) = (60, 10);
/// Rows of the table of the curve, at most.
const ROWS: usize = 10;
/// With fewer references a curve says nothing.
pub const REFERENCES_MIN: u64 = 1_000;
/// Memory that is missing is spoken of if it is more than one part in so many of what there is.
const PARTS: u64 = 16;

/// The answer to `GET /v1/curve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Schema and version.
    #[serde(flatten)]
    pub head: Head,
    /// How volumes share the memory, as `--share` has it.
    pub share: String,
    /// One for each volume.
    pub volumes: Vec<VolumeCurve>,
}

/// What is known of the workload of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeCurve {
    /// Its name.
    pub name: String,
    /// Memory that holds its blocks now, bytes.
    pub bytes: u64,
    /// Memory that it can have without taking any from others, bytes.
    pub room_bytes: u64,
    /// Memory that it may have, bytes; null if there is no ceiling.
    pub max_bytes: Option<u64>,
    /// The part of its pages that are sampled, 0 to 1; 0 if nothing is known of it.
    pub sample_rate: f64,
    /// References that the curve stands on, older ones weighing less.
    pub references: u64,
    /// References since it is served: by these volumes are weighed against each other.
    pub references_ever: u64,
    /// The share of them that really hit.
    pub hit_ratio: f64,
    /// The policy in force.
    pub policy: String,
    /// Whether the cache chooses it.
    pub auto: bool,
    /// The hit ratio of LRU by size.
    pub points: Curve,
    /// What each policy would hit with the memory that there is, from miniatures.
    pub policies: Vec<PolicyRatio>,
    /// The regions of the curve; null if nothing hits.
    pub regions: Option<Regions>,
    /// Why they end where they do.
    pub regions_why: Vec<String>,
    /// The region of the memory that it has.
    pub region: Option<Region>,
    /// The size that it needs; null if nothing hits.
    pub needed: Option<Choice>,
    /// What it suffers from.
    pub findings: Vec<Finding>,
    /// What to do, a sentence each.
    pub advice: Vec<String>,
}

/// The size that is meant by what a volume needs.
#[must_use]
pub fn needed_memory(points: &Curve) -> Option<Choice> {
    let ceiling = points.rising().points().last()?.hit_ratio;
    goal::choose(points, ceiling, &Goal { target: Goal::TARGET, budget_bytes: None })
}

impl VolumeCurve {
    /// The most that any size of the curve hits.
    fn ceiling(&self) -> f64 {
        self.points.rising().points().last().map_or(0.0, |point| point.hit_ratio)
    }

    fn hits_at(&self, bytes: u64) -> f64 {
        self.points.rising().at(bytes).map_or(0.0, |point| point.hit_ratio)
    }

    /// Memory that it has, or can have when it wants it.
    fn has(&self) -> u64 {
        self.bytes.max(self.room_bytes)
    }

    fn is_known(&self) -> bool {
        self.references >= REFERENCES_MIN && self.points.last_bytes() > 0
    }

    /// What more memory brings, if it needs any.
    fn wants(&self) -> Option<u64> {
        let needed = self.needed.as_ref()?.point.bytes;
        let more = needed.saturating_sub(self.has());
        (more > self.has() / PARTS).then_some(more)
    }

    /// Memory that it can do without.
    fn spare(&self) -> u64 {
        let flat = self.regions.as_ref().map_or(0, |regions| regions.flat_begin_bytes);
        if self.region == Some(Region::Flat) { self.has().saturating_sub(flat) } else { 0 }
    }

    /// Regions, and the size that it needs.
    fn judge(&mut self) {
        if !self.is_known() {
            return;
        }
        let ceiling = self.ceiling();
        self.regions = Regions::of(&self.points, ceiling);
        if let Some(regions) = &self.regions {
            self.regions_why = regions.reasons().to_vec();
            self.region = Some(regions.region(self.has()));
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
        let has = format::bytes(self.has());
        if let Some(more) = self.wants() {
            let (now, then) = (self.hits_at(self.has()), needed.point.hit_ratio);
            advice.push(format!(
                "{name} needs {} more to reach {} hits; with {has}, in {}, it has {} (LRU).",
                format::bytes(more),
                format::percent(then),
                region.title(),
                format::percent(now),
            ));
        } else if self.spare() > 0 {
            advice.push(self.who_gains(others, share_is_auto));
        } else {
            advice.push(format!("{name} has what it needs: {has} lie in {}.", region.title()));
        }
        let goal = Goal { target: Goal::TARGET, budget_bytes: None };
        let largest = format!("{}, the largest size known of", format::bytes(needed.point.bytes));
        let everything = format!("{}, the most known of,", format::bytes(self.points.last_bytes()));
        let source = Source { everything: &everything, largest: &largest };
        let ceiling = self.ceiling();
        let why = goal::reason(&goal, ceiling, needed.reach, needed.target_bytes, source);
        let size = format::bytes(needed.point.bytes);
        match needed.reach {
            Attainment::End => advice.push(why),
            Attainment::Reached | Attainment::Budget => advice.push(format!("{size}: {why}")),
        }
        advice
    }

    /// What the memory that it can do without would bring to another volume.
    fn who_gains(&self, others: &[VolumeCurve], share_is_auto: bool) -> String {
        let spare = self.spare();
        let gains = |other: &VolumeCurve| {
            let (now, then) = (other.hits_at(other.bytes), other.hits_at(other.bytes + spare));
            (then - now) * crate::advise::as_f64(other.references_ever)
        };
        let wanting = others.iter().filter(|other| other.name != self.name && other.is_known());
        let wanting = wanting.filter(|other| other.wants().is_some());
        let best = wanting.max_by(|one, other| gains(one).total_cmp(&gains(other)));
        let what = format!(
            "{} is in {}: {} of {} could go",
            self.name,
            Region::Flat.title(),
            format::bytes(spare),
            format::bytes(self.has())
        );
        let Some(best) = best.filter(|best| gains(best) > 0.0) else {
            return format!("{what}; no other volume would gain from it.");
        };
        let given = spare.min(best.wants().unwrap_or(spare));
        let (now, then) = (best.hits_at(best.bytes), best.hits_at(best.bytes + given));
        let is_at_max = best.max_bytes.is_some_and(|max| max < best.bytes + given);
        let how = match (is_at_max, share_is_auto) {
            (true, _) => format!("its --max is in the way: larder ctl set {}.max=all", best.name),
            (false, true) => "it is moved by itself".to_owned(),
            (false, false) => "larder ctl set share=auto moves it".to_owned(),
        };
        format!(
            "{what}, {} of it to {}, which would hit {} instead of {}; {how}.",
            format::bytes(given),
            best.name,
            format::percent(then),
            format::percent(now)
        )
    }

    /// The curve for people.
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
        let place = |point: &Point| (crate::advise::as_f64(point.bytes), point.hit_ratio);
        chart.line("lru", self.points.points().iter().map(place));
        chart.to_text(CHART.0, CHART.1).ok()
    }

    /// Some points, with the one nearest to the memory that it has.
    fn rows(&self) -> Table {
        let mut table = Table::new("", columns().into_iter().skip(1));
        let points = self.points.points();
        let every = points.len().div_ceil(ROWS).max(1);
        let last = points.len().saturating_sub(1);
        for (place, _) in points.iter().enumerate() {
            if (last - place).is_multiple_of(every) {
                table.push(self.cells(place).into_iter().skip(1));
            }
        }
        table
    }

    fn cells(&self, place: usize) -> [Cell; 5] {
        let point = self.points.points()[place];
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
    /// Fills in what follows from the curves.
    pub fn advise(&mut self) {
        self.volumes.iter_mut().for_each(VolumeCurve::judge);
        let share_is_auto = self.share == "auto";
        let advice: Vec<_> =
            self.volumes.iter().map(|of| of.advice(&self.volumes, share_is_auto)).collect();
        for (volume, advice) in self.volumes.iter_mut().zip(advice) {
            volume.advice = advice;
        }
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.volumes.iter().map(VolumeCurve::to_text).collect::<Vec<_>>().join("\n")
    }

    /// All points of all volumes.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new("", columns());
        for volume in &self.volumes {
            for place in 0..volume.points.points().len() {
                table.push(volume.cells(place));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests;
