//! The recommended cache: its size and policy, and the effects of half, once and twice the size.

use super::caches::{CachePlan, CacheResult, ResultTable};
use super::search::{self, Search, SizeChoice, TIE};
use super::server::{Extent, PAGES_MIN};
use super::{PAGE_SIZES, ProgressCallback, SizingContext, SizingError, memory_bytes, page_bytes};
use larder_core::policy::PolicyKind;
use larder_core::units::as_f64;
use larder_schema::sizing::{Effect, PolicyRatio, Recommendation, Sizing};

const NS_PER_HOUR: f64 = 3.6e12;
/// Minimum duration of a trace for misses per hour: a second.
const RATE_TIME_MIN: u64 = 1_000_000_000;
/// Maximum number of searches: one more if another policy is better at the size that was found.
const SEARCHES_MAX: usize = 2;

/// The candidates of the search, and the size around which it begins.
#[derive(Debug)]
pub(super) struct SearchPlan {
    candidates: Vec<PolicyKind>,
    center: u32,
}

/// Plans the search; the table has estimates of all policies by replacement alone, and receives the
/// curve of the server if one is simulated. Returns `None` if no cache has a hit.
pub(super) fn plan(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    table: &mut ResultTable,
    progress: &mut ProgressCallback<'_>,
) -> Result<Option<SearchPlan>, SizingError> {
    let footprint = footprint(context);
    let pages_max = context.pages_max();
    let wanted = context.options.goal.hit_ratio(sizing.workload.ceiling);
    // If no estimate reaches the goal, the search starts at the end of the curve.
    let center = search::smallest_reaching(table, wanted).unwrap_or(footprint).min(pages_max);
    let mut candidates = search::candidates(context, table, center);
    if let Some(server) = context.search_server() {
        if server.search == Some(Extent::Coarse) {
            candidates.truncate(1);
        }
        sizing.workload.ceiling = server.ceiling(context, candidates[0], progress)?;
        *table = ResultTable::default();
        add_curve(context, &candidates[..1], table, progress)?;
    }
    Ok((sizing.workload.ceiling > 0.0).then_some(SearchPlan { candidates, center }))
}

/// Simulates a server with some policies at the sizes of the curve.
fn add_curve(
    context: &SizingContext<'_>,
    policies: &[PolicyKind],
    table: &mut ResultTable,
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    let server = context.search_server();
    let mut pages = search::grid(footprint(context));
    if server.is_some_and(|server| server.search == Some(Extent::Coarse)) {
        pages = pages.into_iter().rev().step_by(2).collect();
    }
    pages.extend([PAGES_MIN, context.pages_max()]);
    pages.sort_unstable();
    pages.dedup();
    let plan = CachePlan { policies, pages: &pages, page_size: 0, step: "the curve", server };
    plan.run(context, table, progress)
}

fn footprint(context: &SizingContext<'_>) -> u32 {
    u32::try_from(context.survey.footprints[0].pages).unwrap_or(u32::MAX)
}

/// Searches for the size, recommends it with the best policy, and adds the effects of half and
/// twice of it. Returns the policy and the size.
pub(super) fn recommend(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    (plan, table): (&mut SearchPlan, &mut ResultTable),
    progress: &mut ProgressCallback<'_>,
) -> Result<Option<(PolicyKind, u32)>, SizingError> {
    let (choice, mut compared) = search_with_all(context, sizing, (plan, table), progress)?;
    let Some(policy) = search::best_policy(&compared, choice.pages) else { return Ok(None) };
    let all_policies = &context.options.policies[..];
    let few = match context.search_server() {
        Some(_) => {
            add_curve(context, &[policy], table, progress)?;
            &plan.candidates[..]
        }
        None => all_policies,
    };
    let (half, twice) = ((choice.pages / 2).max(1), choice.pages.saturating_mul(2));
    let footprint = footprint(context);
    // If the whole trace fits, all policies have the same hit ratio. The shards of a server are not
    // filled equally.
    let fits = twice >= footprint;
    let run_twice = if context.search_server().is_some() { twice } else { twice.min(footprint) };
    let recommended_only = [policy];
    for (pages, few) in [(half, few), (run_twice, if fits { &[] } else { few })] {
        compare(context, few, pages, &mut compared, progress)?;
        if !few.contains(&policy) {
            compare(context, &recommended_only, pages, &mut compared, progress)?;
        }
    }
    table.copy_size(&compared, choice.pages);
    let sizes = [
        ("half", half, half),
        ("recommended", choice.pages, choice.pages),
        ("twice", twice, run_twice),
    ];
    for (label, pages, run) in sizes {
        let Some(result) = compared.get(policy, run) else { continue };
        let mut size_effect = effect(context, label, pages, result);
        size_effect.policies = if label == "twice" && fits {
            all_policies.iter().map(|kind| ratio(kind.name(), result)).collect()
        } else {
            compared.at(run).into_iter().map(|(name, result)| ratio(name, result)).collect()
        };
        sizing.effects.push(size_effect);
    }
    sizing.recommendation = Some(Recommendation {
        bytes: page_bytes(choice.pages.into()),
        memory_bytes: memory_bytes(policy, choice.pages.into()),
        policy: policy.name().to_owned(),
        page_bytes: PAGE_SIZES[0],
        reach: choice.reach,
        wanted_hit_ratio: context.options.goal.hit_ratio(sizing.workload.ceiling),
        target_bytes: choice.target_pages.map(|pages| page_bytes(pages.into())),
        region: None,
    });
    Ok(Some((policy, choice.pages)))
}

/// Searches with the candidates, and compares all policies at the size that was found. If one that
/// was no candidate is better, it becomes one for another search.
fn search_with_all(
    context: &SizingContext<'_>,
    sizing: &Sizing,
    (plan, table): (&mut SearchPlan, &mut ResultTable),
    progress: &mut ProgressCallback<'_>,
) -> Result<(SizeChoice, ResultTable), SizingError> {
    let server = context.search_server();
    let mut searches = 0;
    loop {
        let search = Search {
            candidates: &plan.candidates,
            center: plan.center,
            least: server.map_or(1, |_| PAGES_MIN),
            wanted_hit_ratio: context.options.goal.hit_ratio(sizing.workload.ceiling),
            server,
        };
        let choice = search.run(context, table, progress)?;
        let mut compared = ResultTable::default();
        compare(context, &context.options.policies, choice.pages, &mut compared, progress)?;
        searches += 1;
        let all = compared.at(choice.pages);
        let is_candidate = |name: &str| plan.candidates.iter().any(|kind| kind.name() == name);
        let ratio = |(_, result): &(&str, &CacheResult)| result.hits.hit_ratio;
        let best_candidate = all.iter().find(|(name, _)| is_candidate(name)).map_or(0.0, ratio);
        let better = all.first().filter(|best| ratio(best) > best_candidate + TIE);
        let better = better.and_then(|(name, _)| PolicyKind::from_name(name));
        let Some(better) = better.filter(|_| searches < SEARCHES_MAX) else {
            return Ok((choice, compared));
        };
        if server.is_some() {
            add_curve(context, &[better], table, progress)?;
        }
        plan.candidates.push(better);
        plan.center = choice.pages;
    }
}

fn compare(
    context: &SizingContext<'_>,
    policies: &[PolicyKind],
    pages: u32,
    table: &mut ResultTable,
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    let server = context.search_server();
    let step = "half and twice";
    CachePlan { policies, pages: &[pages], page_size: 0, step, server }
        .run(context, table, progress)
}

fn effect(context: &SizingContext<'_>, label: &str, pages: u32, result: &CacheResult) -> Effect {
    let misses = (1.0 - result.hits.hit_ratio) * as_f64(context.survey.references[0]);
    let misses = result.run().map_or(misses, |run| as_f64(run.waiting_pages));
    Effect {
        what: label.to_owned(),
        point: result.point(page_bytes(pages.into())),
        counted: result.counted,
        misses_per_hour: per_hour(context, misses),
        store_bytes: result.store_bytes(PAGE_SIZES[0]),
        server: result.run(),
        policies: Vec::new(),
    }
}

fn per_hour(context: &SizingContext<'_>, count: f64) -> Option<f64> {
    let duration = context.survey.duration_ns;
    (duration >= RATE_TIME_MIN).then(|| count * NS_PER_HOUR / as_f64(duration))
}

fn ratio(policy: &str, result: &CacheResult) -> PolicyRatio {
    PolicyRatio {
        policy: policy.to_owned(),
        hit_ratio: result.hits.hit_ratio,
        low: result.hits.low,
        high: result.hits.high,
    }
}

/// Simulates a server with the recommended policy and page size at the sizes of the effects.
pub(super) fn predict_server(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    policy: PolicyKind,
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    let (Some(server), Some(advice)) = (&context.server, &sizing.recommendation) else {
        return Ok(());
    };
    let page_size = PAGE_SIZES.iter().position(|&bytes| bytes == advice.page_bytes).unwrap_or(0);
    if page_size == 0 && server.search.is_some() {
        return Ok(());
    }
    let pages = |effect: &Effect| {
        let pages = effect.point.bytes / u64::from(PAGE_SIZES[page_size]);
        u32::try_from(pages).unwrap_or(u32::MAX)
    };
    let sizes: Vec<u32> = sizing.effects.iter().map(pages).collect();
    let plan = CachePlan {
        policies: &[policy],
        pages: &sizes,
        page_size,
        step: "the server",
        server: Some(server),
    };
    let mut table = ResultTable::default();
    plan.run(context, &mut table, progress)?;
    for (effect, pages) in sizing.effects.iter_mut().zip(sizes) {
        effect.server = table.get(policy, pages).and_then(CacheResult::run);
        let Some(run) = effect.server else { continue };
        effect.misses_per_hour = per_hour(context, as_f64(run.waiting_pages));
        effect.store_bytes = run.read_bytes;
    }
    Ok(())
}
