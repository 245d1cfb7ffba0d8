//! `larder sim --curve`: hit ratios over size without a cache of each size.

use super::case::Case;
use super::table::Row;
use super::{Curve, Policies, SimArgs};
use anyhow::{Context, Result, ensure};
use larder_core::policy::PolicyKind;
use larder_lab::sim::curve::estimate::Estimate;
use larder_lab::sim::curve::exact::Exact;
use larder_lab::sim::curve::miniature::Miniature;
use larder_lab::sim::curve::sampled::{SAMPLE_PAGES, Sampled};
use larder_lab::sim::references::{By, Reference};
use std::collections::BTreeMap;

/// Maximum number of groups with a curve, since each takes memory.
const GROUPS_MAX: usize = 256;

/// Returns the rows of all curves of a case.
pub(super) fn run(
    case: &Case,
    curve: Curve,
    policies: &Policies,
    arguments: &SimArgs,
) -> Result<Vec<Row>> {
    ensure!(!policies.min, "estimate min: it has no curve; leave out --curve");
    let is_default = arguments.policy == ["all"];
    let only_lru = policies.kinds == [PolicyKind::Lru];
    if let Some(by) = arguments.by {
        ensure!(is_default || only_lru, "make a curve by {}: only lru has one", by.name());
        return lru(case, curve, Some(by), arguments).map(|curves| curves.rows);
    }
    if curve == Curve::Exact {
        ensure!(is_default || only_lru, "make an exact curve of other policies: only lru has one");
        return lru(case, curve, None, arguments).map(|curves| curves.rows);
    }
    let mut curves = lru(case, curve, None, arguments)?;
    let others: Vec<PolicyKind> =
        policies.kinds.iter().copied().filter(|&kind| kind != PolicyKind::Lru).collect();
    if !policies.kinds.contains(&PolicyKind::Lru) {
        curves.rows.clear();
    }
    if !others.is_empty() {
        curves.rows.extend(miniatures(case, &others, curves.footprint, arguments)?);
    }
    Ok(curves.rows)
}

/// Curves of lru.
struct LruCurves {
    rows: Vec<Row>,
    /// Pages of the trace, or of its last group.
    footprint: u64,
}

/// A finished curve.
struct FinishedCurve {
    /// Pages; an estimate for a sampled curve.
    footprint: u64,
    references: u64,
    /// Returns the hit ratio at a size in pages.
    hit_ratio: Box<dyn Fn(u64) -> Option<Estimate>>,
}

/// A curve under construction.
enum CurveBuilder {
    Exact(Exact),
    Sampled(Box<Sampled>),
}

impl CurveBuilder {
    fn new(curve: Curve, seed: u64) -> Self {
        match curve {
            Curve::Exact => CurveBuilder::Exact(Exact::new()),
            Curve::Sampled => CurveBuilder::Sampled(Box::new(Sampled::new(SAMPLE_PAGES, seed))),
        }
    }

    fn run(&mut self, references: &[Reference]) {
        match self {
            CurveBuilder::Exact(exact) => exact.run(references),
            CurveBuilder::Sampled(sampled) => sampled.run(references),
        }
    }

    fn finish(self) -> FinishedCurve {
        match self {
            CurveBuilder::Exact(exact) => {
                let curve = exact.curve();
                let exactly = |ratio| Estimate { hit_ratio: ratio, low: ratio, high: ratio };
                FinishedCurve {
                    footprint: curve.footprint(),
                    references: curve.references(),
                    hit_ratio: Box::new(move |pages| curve.hit_ratio(pages).map(exactly)),
                }
            }
            CurveBuilder::Sampled(sampled) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "pages are positive and few"
                )]
                let footprint = sampled.footprint().round() as u64;
                let references = sampled.references();
                let hit_ratio = Box::new(move |pages| sampled.hit_ratio(pages));
                FinishedCurve { footprint, references, hit_ratio }
            }
        }
    }
}

fn lru(case: &Case, curve: Curve, by: Option<By>, arguments: &SimArgs) -> Result<LruCurves> {
    let mut builders: BTreeMap<u32, CurveBuilder> = BTreeMap::new();
    let mut by_group: BTreeMap<u32, Vec<Reference>> = BTreeMap::new();
    let new_builder = || CurveBuilder::new(curve, arguments.seed);
    let references = case.for_each_batch(by, |batch| {
        if by.is_none() {
            builders.entry(0).or_insert_with(new_builder).run(&batch.references);
            return Ok(());
        }
        for (reference, &group) in batch.references.iter().zip(&batch.groups) {
            by_group.entry(group).or_default().push(*reference);
        }
        for (&group, references) in &mut by_group {
            builders.entry(group).or_insert_with(new_builder).run(references);
            references.clear();
        }
        let group_kind = by.map_or("", By::name);
        ensure!(
            builders.len() <= GROUPS_MAX,
            "make a curve for each {group_kind}: there are more than {GROUPS_MAX}; filter the \
             trace first"
        );
        Ok(())
    })?;
    case.print_notes(&references);
    ensure!(!builders.is_empty(), "simulate {}: it has no read and no write", case.name);
    let mut curves = LruCurves { rows: Vec::new(), footprint: 0 };
    for (group, builder) in builders {
        let FinishedCurve { footprint, references: count, hit_ratio } = builder.finish();
        let title = by.map(|by| by.title(group, references.source()));
        for size in &arguments.size {
            let pages = size.pages(case.page_bytes(), footprint)?;
            let estimate = hit_ratio(pages).context("estimate a trace without references")?;
            let row = Row::estimated(case, "lru", pages, count, estimate);
            curves.rows.push(row.group(title.clone()));
        }
        curves.footprint = footprint;
    }
    Ok(curves)
}

fn miniatures(
    case: &Case,
    policies: &[PolicyKind],
    footprint: u64,
    arguments: &SimArgs,
) -> Result<Vec<Row>> {
    let mut capacities = Vec::new();
    for size in &arguments.size {
        let pages = size.pages(case.page_bytes(), footprint)?;
        capacities.push(super::sizes::capacity(pages)?);
    }
    let mut miniature = Miniature::new(policies, &capacities, footprint, arguments.seed);
    let mut references = 0;
    case.for_each_batch(None, |batch| {
        miniature.run(&batch.references);
        references += batch.references.len() as u64;
        Ok(())
    })?;
    let mut rows = Vec::new();
    for (policy, kind) in policies.iter().enumerate() {
        for (size, &pages) in capacities.iter().enumerate() {
            let estimate =
                miniature.hit_ratio(policy, size).context("estimate without references")?;
            rows.push(Row::estimated(case, kind.name(), pages.into(), references, estimate));
        }
    }
    Ok(rows)
}
