//! The recommended cache: its size and policy, and the effects of half, once and twice the size.

use super::caches::{CachePlan, CacheResult, ResultTable};
use super::search::{self, Search, SizeChoice};
use super::server::{Extent, PAGES_MIN};
use super::{PAGE_SIZES, ProgressCallback, SizingContext, SizingError, memory_bytes, page_bytes};
use larder_core::policy::PolicyKind;
use larder_core::units::as_f64;
use larder_schema::curve::Point;
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
    let footprint = context.footprint();
    let pages_max = context.pages_max();
    let wanted = context.options.goal.hit_ratio(sizing.workload.ceiling);
    // If no estimate reaches the goal, the search starts at the end of the curve.
    let center = search::smallest_reaching(table, wanted).unwrap_or(footprint).min(pages_max);
    let candidates = search::candidates(context, table, center);
    if context.search_server().is_some() {
        *table = ResultTable::default();
        add_curve(context, &candidates, table, progress)?;
        sizing.workload.ceiling = table.highest();
    }
    Ok((sizing.workload.ceiling > 0.0).then_some(SearchPlan { candidates, center }))
}

/// Simulates a server with some policies at the sizes of the curve, the last of which holds
/// everything.
fn add_curve(
    context: &SizingContext<'_>,
    policies: &[PolicyKind],
    table: &mut ResultTable,
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    let server = context.search_server();
    let footprint = context.footprint();
    let mut pages = search::grid(footprint);
    if server.is_some_and(|server| server.search == Some(Extent::Coarse)) {
        pages = pages.into_iter().rev().step_by(2).collect();
    }
    // The shards of a server are not filled equally.
    pages.extend([PAGES_MIN, footprint.saturating_mul(2)]);
    pages.sort_unstable();
    pages.dedup();
    let page_size = context.page_size();
    let plan = CachePlan { policies, pages: &pages, page_size, step: "the curve", server };
    plan.run(context, table, progress)
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
    let all_policies = &context.options.policies[..];
    let is_server = context.search_server().is_some();
    let (policy, few) = if is_server {
        (plan.candidates.first().copied(), &plan.candidates[..])
    } else {
        (search::best_policy(&compared, choice.pages, search::tie(context)), all_policies)
    };
    let Some(policy) = policy else { return Ok(None) };
    let (half, twice) = ((choice.pages / 2).max(1), choice.pages.saturating_mul(2));
    let footprint = context.footprint();
    // If the whole trace fits, all policies have the same hit ratio. The shards of a server are not
    // filled equally.
    let fits = twice >= footprint;
    let run_twice = if is_server { twice } else { twice.min(footprint) };
    let recommended_only = [policy];
    for (pages, few) in [(half, few), (run_twice, if fits { &[] } else { few })] {
        compare(context, few, pages, &mut compared, progress)?;
        if !few.contains(&policy) {
            compare(context, &recommended_only, pages, &mut compared, progress)?;
        }
    }
    let curve = is_server.then(|| table.curve(policy));
    if !is_server {
        table.copy_size(&compared, choice.pages);
    }
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
        // The curve of a server has less noise than one simulation.
        if let Some(point) = curve.as_ref().and_then(|curve| curve.at(page_bytes(pages.into()))) {
            set_point(&mut size_effect, policy, point);
        }
        sizing.effects.push(size_effect);
    }
    sizing.recommendation = Some(Recommendation {
        bytes: page_bytes(choice.pages.into()),
        memory_bytes: memory_bytes(policy, choice.pages.into()),
        policy: policy.name().to_owned(),
        page_bytes: PAGE_SIZES[context.page_size()],
        reach: choice.reach,
        wanted_hit_ratio: context.options.goal.hit_ratio(sizing.workload.ceiling),
        target_bytes: choice.target_pages.map(|pages| page_bytes(pages.into())),
        region: None,
    });
    Ok(Some((policy, choice.pages)))
}

/// Searches with the candidates, and compares all policies at the size that was found. If one that
/// was no candidate is better, it becomes one for another search; for a server the only one.
fn search_with_all(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
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
        };
        let mut choice = search.run(context, table, progress)?;
        if server.is_some() {
            // More sizes may have changed the curve.
            plan.candidates.iter().for_each(|&policy| table.smooth(policy));
            sizing.workload.ceiling = table.highest();
            let wanted = context.options.goal.hit_ratio(sizing.workload.ceiling);
            choice = SizeChoice::of(context, &table.up_to(context.pages_max()), table, wanted);
        }
        let mut compared = ResultTable::default();
        compare(context, &context.options.policies, choice.pages, &mut compared, progress)?;
        searches += 1;
        let all = compared.at(choice.pages);
        let is_candidate = |name: &str| plan.candidates.iter().any(|kind| kind.name() == name);
        let ratio = |(_, result): &(&str, &CacheResult)| result.hits.hit_ratio;
        let best_candidate = all.iter().find(|(name, _)| is_candidate(name)).map_or(0.0, ratio);
        let better = all.first().filter(|best| ratio(best) > best_candidate + search::tie(context));
        let better = better.and_then(|(name, _)| PolicyKind::from_name(name));
        let Some(better) = better.filter(|_| searches < SEARCHES_MAX) else {
            return Ok((choice, compared));
        };
        if server.is_some() {
            plan.candidates.clear();
            *table = ResultTable::default();
            add_curve(context, &[better], table, progress)?;
            sizing.workload.ceiling = table.highest();
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
    let (server, page_size) = (context.search_server(), context.page_size());
    let step = "half and twice";
    CachePlan { policies, pages: &[pages], page_size, step, server }.run(context, table, progress)
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

/// Sets the hit ratio of the recommended policy.
fn set_point(effect: &mut Effect, policy: PolicyKind, point: Point) {
    effect.point = point;
    let all = &mut effect.policies;
    for own in all.iter_mut().filter(|ratio| ratio.policy == policy.name()) {
        (own.hit_ratio, own.low, own.high) = (point.hit_ratio, point.low, point.high);
    }
    all.sort_by(|one, other| other.hit_ratio.total_cmp(&one.hit_ratio));
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
    if context.search_server().is_some() {
        return Ok(());
    }
    let page_size = PAGE_SIZES.iter().position(|&bytes| bytes == advice.page_bytes).unwrap_or(0);
    let pages = |effect: &Effect| {
        u32::try_from(effect.point.bytes / u64::from(PAGE_SIZES[0])).unwrap_or(u32::MAX)
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
