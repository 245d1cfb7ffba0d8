//! `larder sim --curve`: hit ratios over size without a cache of each size.

use super::case::Case;
use super::table::Row;
use super::{Arguments, Curve, Policies};
use anyhow::{Context, Result, ensure};
use larder_core::policy::PolicyKind;
use larder_lab::sim::curve::estimate::Estimate;
use larder_lab::sim::curve::exact::Exact;
use larder_lab::sim::curve::miniature::Miniature;
use larder_lab::sim::curve::sampled::{SAMPLE_PAGES, Sampled};
use larder_lab::sim::references::{By, Reference};
use std::collections::BTreeMap;

/// Groups that get a curve: each takes memory of its own.
const GROUPS_MAX: usize = 256;

/// The rows of all curves of a case.
pub(super) fn run(
    case: &Case,
    curve: Curve,
    policies: &Policies,
    arguments: &Arguments,
) -> Result<Vec<Row>> {
    ensure!(!policies.min, "estimate min: it has no curve; leave out --curve");
    let all = arguments.policy == ["all"];
    let only_lru = policies.kinds == [PolicyKind::Lru];
    if let Some(by) = arguments.by {
        ensure!(all || only_lru, "make a curve by {}: only lru has one", by.name());
        return lru(case, curve, Some(by), arguments).map(|found| found.rows);
    }
    if curve == Curve::Exact {
        ensure!(all || only_lru, "make an exact curve of other policies: only lru has one");
        return lru(case, curve, None, arguments).map(|found| found.rows);
    }
    let mut found = lru(case, curve, None, arguments)?;
    let others: Vec<PolicyKind> =
        policies.kinds.iter().copied().filter(|&kind| kind != PolicyKind::Lru).collect();
    if !policies.kinds.contains(&PolicyKind::Lru) {
        found.rows.clear();
    }
    if !others.is_empty() {
        found.rows.extend(miniatures(case, &others, found.footprint, arguments)?);
    }
    Ok(found.rows)
}

/// Curves of lru.
struct Found {
    rows: Vec<Row>,
    /// Pages of the trace, or of its last group.
    footprint: u64,
}

/// A curve that is made.
struct Made {
    /// Pages, about.
    footprint: u64,
    references: u64,
    /// At a size in pages.
    hit_ratio: Box<dyn Fn(u64) -> Option<Estimate>>,
}

/// A curve in the making.
enum Maker {
    Exact(Exact),
    Sampled(Box<Sampled>),
}

impl Maker {
    fn new(curve: Curve, seed: u64) -> Self {
        match curve {
            Curve::Exact => Maker::Exact(Exact::new()),
            Curve::Sampled => Maker::Sampled(Box::new(Sampled::new(SAMPLE_PAGES, seed))),
        }
    }

    fn run(&mut self, references: &[Reference]) {
        match self {
            Maker::Exact(exact) => exact.run(references),
            Maker::Sampled(sampled) => sampled.run(references),
        }
    }

    fn finish(self) -> Made {
        match self {
            Maker::Exact(exact) => {
                let curve = exact.curve();
                let exactly = |ratio| Estimate { hit_ratio: ratio, low: ratio, high: ratio };
                Made {
                    footprint: curve.footprint(),
                    references: curve.references(),
                    hit_ratio: Box::new(move |pages| curve.hit_ratio(pages).map(exactly)),
                }
            }
            Maker::Sampled(sampled) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "pages are positive and few"
                )]
                let footprint = sampled.footprint().round() as u64;
                let references = sampled.references();
                let hit_ratio = Box::new(move |pages| sampled.hit_ratio(pages));
                Made { footprint, references, hit_ratio }
            }
        }
    }
}

fn lru(case: &Case, curve: Curve, by: Option<By>, arguments: &Arguments) -> Result<Found> {
    let mut makers: BTreeMap<u32, Maker> = BTreeMap::new();
    let mut apart: BTreeMap<u32, Vec<Reference>> = BTreeMap::new();
    let maker = || Maker::new(curve, arguments.seed);
    let references = case.each(by, |batch| {
        if by.is_none() {
            makers.entry(0).or_insert_with(maker).run(&batch.references);
            return Ok(());
        }
        for (reference, &group) in batch.references.iter().zip(&batch.groups) {
            apart.entry(group).or_default().push(*reference);
        }
        for (&group, references) in &mut apart {
            makers.entry(group).or_insert_with(maker).run(references);
            references.clear();
        }
        let what = by.map_or("", By::name);
        ensure!(
            makers.len() <= GROUPS_MAX,
            "make a curve for each {what}: there are more than {GROUPS_MAX}; filter the trace first"
        );
        Ok(())
    })?;
    case.say_notes(&references);
    ensure!(!makers.is_empty(), "simulate {}: it has no read and no write", case.name);
    let mut found = Found { rows: Vec::new(), footprint: 0 };
    for (group, maker) in makers {
        let Made { footprint, references: count, hit_ratio } = maker.finish();
        let title = by.map(|by| by.title(group, references.source()));
        for size in &arguments.size {
            let pages = size.pages(case.page_bytes(), footprint)?;
            let made = hit_ratio(pages).context("estimate a trace without references")?;
            let row = Row::estimated(case, "lru", pages, count, made);
            found.rows.push(row.group(title.clone()));
        }
        found.footprint = footprint;
    }
    Ok(found)
}

fn miniatures(
    case: &Case,
    policies: &[PolicyKind],
    footprint: u64,
    arguments: &Arguments,
) -> Result<Vec<Row>> {
    let mut capacities = Vec::new();
    for size in &arguments.size {
        let pages = size.pages(case.page_bytes(), footprint)?;
        capacities.push(super::sizes::capacity(pages)?);
    }
    let mut miniature = Miniature::new(policies, &capacities, footprint, arguments.seed);
    let mut references = 0;
    case.each(None, |batch| {
        miniature.run(&batch.references);
        references += batch.references.len() as u64;
        Ok(())
    })?;
    let mut rows = Vec::new();
    for (policy, kind) in policies.iter().enumerate() {
        for (size, &pages) in capacities.iter().enumerate() {
            let made = miniature.hit_ratio(policy, size).context("estimate without references")?;
            rows.push(Row::estimated(case, kind.name(), pages.into(), references, made));
        }
    }
    Ok(rows)
}
