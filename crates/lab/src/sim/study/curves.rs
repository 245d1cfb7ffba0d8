//! Hit ratios over size without a cache of each size.

use super::{Case, Row, StudyError, StudyOptions, refused};
use crate::sim::curve::{Exact, ExactCurve};
use crate::sim::references::ReferenceKey;
use larder_core::curve::choice::PolicyChoice;
use larder_core::curve::estimate::Estimate;
use larder_core::curve::miniature::{Miniature, NOT_ESTIMATED};
use larder_core::curve::sampled::{SAMPLE_PAGES, SAMPLE_PAGES_OF_MANY, SampledCurve};
use larder_core::policy::PolicyKind;
use larder_core::replace::Reference;
use std::collections::BTreeMap;

/// Maximum number of groups with a curve, since each takes memory.
const GROUPS_MAX: usize = 256;

/// The method of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveKind {
    /// Counts every reference.
    Exact,
    /// Estimates from a sample of fixed size; counts if the trace has no more pages than that.
    Sampled,
}

/// Returns the rows of all curves of a case.
pub(super) fn run(
    case: &Case<'_>,
    curve: CurveKind,
    options: &StudyOptions,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Row>, StudyError> {
    if options.min {
        return Err(refused("estimate min: it has no curve; leave out --curve"));
    }
    let fixed = |&choice: &PolicyChoice| match choice {
        PolicyChoice::Fixed(kind) => Ok(kind),
        PolicyChoice::Auto => Err(refused("estimate auto: it has no curve; leave out --curve")),
    };
    let policies: Vec<PolicyKind> = options.policies.iter().map(fixed).collect::<Result<_, _>>()?;
    let only_lru = options.is_default || policies == [PolicyKind::Lru];
    if let Some(by) = options.by.filter(|_| !only_lru) {
        return Err(refused(format!("make a curve by {}: only lru has one", by.name())));
    }
    if curve == CurveKind::Exact && !only_lru {
        return Err(refused("make an exact curve of other policies: only lru has one"));
    }
    let mut curves = lru(case, curve, options, note)?;
    if options.by.is_some() || curve == CurveKind::Exact {
        return Ok(curves.rows);
    }
    let others = policies.iter().copied().filter(|&kind| kind != PolicyKind::Lru);
    let others: Vec<PolicyKind> = others.collect();
    if !policies.contains(&PolicyKind::Lru) {
        curves.rows.clear();
    }
    if !others.is_empty() {
        curves.rows.extend(miniatures(case, &others, curves.footprint, options, note)?);
    }
    if curves.rows.is_empty() {
        return Err(refused(format!("estimate {}", not_estimated())));
    }
    Ok(curves.rows)
}

/// Curves of lru.
struct LruCurves {
    rows: Vec<Row>,
    /// Pages of the trace, or of its last group.
    footprint: u64,
}

/// A curve of lru under construction.
enum Builder {
    Exact(Box<Exact>),
    /// The exact curve is built as long as the sample has all pages.
    Sampled(Box<SampledCurve>, Option<Box<Exact>>),
}

impl Builder {
    fn new(curve: CurveKind, options: &StudyOptions) -> Self {
        let sample = if options.by.is_some() { SAMPLE_PAGES_OF_MANY } else { SAMPLE_PAGES };
        match curve {
            CurveKind::Exact => Builder::Exact(Box::default()),
            CurveKind::Sampled => {
                let sampled = SampledCurve::new(sample, options.seed);
                Builder::Sampled(Box::new(sampled), Some(Box::default()))
            }
        }
    }

    fn run(&mut self, references: &[Reference]) {
        match self {
            Builder::Exact(exact) => exact.run(references),
            Builder::Sampled(sampled, all) => {
                sampled.run(references);
                *all = all.take().filter(|_| sampled.rate() >= 1.0);
                if let Some(exact) = all {
                    exact.run(references);
                }
            }
        }
    }

    fn references(&self) -> u64 {
        match self {
            Builder::Exact(exact) => exact.references(),
            Builder::Sampled(sampled, _) => sampled.references(),
        }
    }

    /// Returns the number of pages; an estimate for a sampled curve.
    fn footprint(&self) -> u64 {
        match self {
            Builder::Exact(exact) => exact.footprint(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "pages are positive and few"
            )]
            Builder::Sampled(sampled, _) => sampled.footprint().round() as u64,
        }
    }
}

/// Returns the hit ratios at sizes in pages; `None` if there are no references.
fn hit_ratios(builder: &Builder, pages: &[u64]) -> Option<Vec<Estimate>> {
    match builder {
        Builder::Exact(exact) | Builder::Sampled(_, Some(exact)) => {
            let curve: ExactCurve = exact.curve();
            pages.iter().map(|&pages| curve.hit_ratio(pages).map(Estimate::exact)).collect()
        }
        Builder::Sampled(sampled, None) => {
            pages.iter().map(|&pages| sampled.hit_ratio(pages)).collect()
        }
    }
}

fn lru(
    case: &Case<'_>,
    curve: CurveKind,
    options: &StudyOptions,
    note: &mut dyn FnMut(String),
) -> Result<LruCurves, StudyError> {
    let by = options.by;
    let mut builders: BTreeMap<u32, Builder> = BTreeMap::new();
    let mut by_group: BTreeMap<u32, Vec<Reference>> = BTreeMap::new();
    let new_builder = || Builder::new(curve, options);
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
        if builders.len() <= GROUPS_MAX {
            return Ok(());
        }
        Err(refused(format!(
            "make a curve for each {}: there are more than {GROUPS_MAX}; filter the trace first",
            by.map_or("", ReferenceKey::name)
        )))
    })?;
    case.notes(&references).into_iter().for_each(note);
    if builders.is_empty() {
        return Err(case.is_empty());
    }
    let mut curves = LruCurves { rows: Vec::new(), footprint: 0 };
    for (group, builder) in builders {
        curves.footprint = builder.footprint();
        let sizes = options.sizes.iter();
        let pages: Vec<u64> = sizes
            .map(|size| size.pages(case.page_bytes(), curves.footprint))
            .collect::<Result<_, _>>()?;
        let estimates = hit_ratios(&builder, &pages)
            .ok_or_else(|| refused("estimate a trace without references"))?;
        let title = by.map(|by| by.title(group, references.source()));
        for (pages, estimate) in pages.into_iter().zip(estimates) {
            let row = Row::estimated(case, "lru", pages, builder.references(), estimate);
            curves.rows.push(Row { group: title.clone(), ..row });
        }
    }
    Ok(curves)
}

fn miniatures(
    case: &Case<'_>,
    policies: &[PolicyKind],
    footprint: u64,
    options: &StudyOptions,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Row>, StudyError> {
    let capacities = case.capacities(&options.sizes, footprint)?;
    let mut miniature = Miniature::new(policies, &capacities, footprint, options.seed);
    let mut references = 0;
    case.for_each_batch(None, |batch| {
        miniature.run(&batch.references);
        references += batch.references.len() as u64;
        Ok(())
    })?;
    let mut rows = Vec::new();
    let mut all_estimated = true;
    for (policy, kind) in policies.iter().enumerate() {
        for (size, &pages) in capacities.iter().enumerate() {
            let Some(estimate) = miniature.hit_ratio(policy, size) else {
                all_estimated = false;
                continue;
            };
            rows.push(Row::estimated(case, kind.name(), pages.into(), references, estimate));
        }
    }
    if !all_estimated {
        note(format!("no estimate of {}", not_estimated()));
    }
    Ok(rows)
}

/// Describes the policy without estimates, with the reason and the remedy.
fn not_estimated() -> String {
    format!(
        "{}: a sampled cache under it does not behave like a large one; leave out --curve to \
         count its hits",
        NOT_ESTIMATED.name()
    )
}
