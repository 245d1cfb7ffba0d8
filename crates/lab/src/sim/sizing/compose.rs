//! The complete result of a measurement, composed from the results of all steps.

use super::caches::{CachePlan, CacheResult, ResultTable};
use super::search::{self, SizeChoice};
use super::{
    MIN_BYTES_MAX, PAGE_SIZES, Progress, ProgressCallback, SizingContext, SizingError, TRACKER,
    page_bytes, page_memory, volumes, windows, working_set,
};
use crate::sim::min::{Future, memory_bytes};
use larder_core::policy::PolicyKind;
use larder_core::share::{self, Claim};
use larder_core::units::as_f64;
use larder_report::advise::divide::{self, MemoryRequest};
use larder_report::advise::page_size;
use larder_report::advise::{regions, stability};
use larder_schema::curve::Curve;
use larder_schema::format;
use larder_schema::share;
use larder_schema::sizing::{
    BestPoint, Effect, PolicyCurve, PolicyRatio, Recommendation, Sizing, Workload,
};

const NS_PER_HOUR: f64 = 3.6e12;
/// Minimum duration of a trace for misses per hour: a second.
const RATE_TIME_MIN: u64 = 1_000_000_000;

pub(super) fn compose(
    context: &SizingContext<'_>,
    progress: &mut ProgressCallback<'_>,
) -> Result<Sizing, SizingError> {
    let profile = working_set::profile(context, windows::WINDOWS)?;
    let workload = workload(context);
    let footprint = u32::try_from(workload.footprint_pages).unwrap_or(u32::MAX);
    let mut table = ResultTable::default();
    let grid = search::grid(footprint);
    let grid_plan = CachePlan {
        policies: &context.options.policies,
        pages: &grid,
        page_size: 0,
        step: "all policies",
    };
    grid_plan.run(context, &mut table, progress)?;
    let mut sizing = Sizing {
        goal: context.options.goal,
        exact: false,
        seed: context.options.seed,
        curve: Vec::new(),
        policies: Vec::new(),
        regions: None,
        regions_why: Vec::new(),
        recommendation: None,
        effects: Vec::new(),
        min_hit_ratio: None,
        windows: Vec::new(),
        stability: None,
        volumes: Vec::new(),
        page_sizes: Vec::new(),
        slices: profile.slices,
        heat: profile.heat,
        notes: context.survey.notes.clone(),
        workload,
    };
    if sizing.workload.ceiling > 0.0 {
        let target_hit_ratio = context.options.goal.hit_ratio(sizing.workload.ceiling);
        let choice = search::search(context, &mut table, target_hit_ratio, progress)?;
        recommend(context, &mut sizing, &mut table, choice, progress)?;
        let policy = sizing.recommendation.as_ref().and_then(|r| PolicyKind::from_name(&r.policy));
        if let Some(policy) = policy {
            measure_recommended_size(
                context,
                &mut sizing,
                (policy, choice.pages),
                &profile.windows_ns,
                progress,
            )?;
        }
    }
    curves(context, &mut sizing, &table);
    if let Some(found) = &sizing.regions
        && let Some(recommendation) = &mut sizing.recommendation
    {
        recommendation.region = Some(regions::region(found, recommendation.bytes));
    }
    Ok(sizing)
}

fn workload(context: &SizingContext<'_>) -> Workload {
    let survey = &context.survey;
    let (pages, references) = (survey.footprints[0], survey.references[0]);
    let compulsory = pages.pages.min(references);
    Workload {
        trace: context.options.name.clone(),
        page_bytes: PAGE_SIZES[0],
        requests: survey.requests,
        references,
        bytes: survey.bytes,
        duration_ns: Some(survey.duration_ns).filter(|&duration| duration > 0),
        footprint_pages: pages.pages,
        footprint_exact: pages.exact,
        compulsory_misses: compulsory,
        ceiling: share(references - compulsory, references).unwrap_or(0.0),
    }
}

fn comparison_plan<'a>(policies: &'a [PolicyKind], pages: &'a [u32]) -> CachePlan<'a> {
    CachePlan { policies, pages, page_size: 0, step: "half and twice" }
}

/// Measures half the size, the size and twice the size with all policies; then recommends a policy.
fn recommend(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    table: &mut ResultTable,
    choice: SizeChoice,
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    let all_policies = &context.options.policies[..];
    let mut comparison = ResultTable::default();
    comparison_plan(all_policies, &[choice.pages]).run(context, &mut comparison, progress)?;
    let Some(policy) = search::best_policy(&comparison, choice.pages) else { return Ok(()) };
    let (half, twice) = ((choice.pages / 2).max(1), choice.pages.saturating_mul(2));
    comparison_plan(all_policies, &[half]).run(context, &mut comparison, progress)?;
    let footprint = u32::try_from(sizing.workload.footprint_pages).unwrap_or(u32::MAX);
    // If the whole trace fits, all policies have the same hit ratio.
    let fits = twice >= footprint;
    let recommended_only = [policy];
    let policies = if fits { &recommended_only[..] } else { all_policies };
    comparison_plan(policies, &[twice.min(footprint)]).run(context, &mut comparison, progress)?;
    table.copy_size(&comparison, choice.pages);
    let sizes = [
        ("half", half, half),
        ("recommended", choice.pages, choice.pages),
        ("twice", twice, twice.min(footprint)),
    ];
    for (label, pages, run) in sizes {
        let Some(result) = comparison.get(policy, run) else { continue };
        let mut size_effect = effect(context, label, pages, result);
        size_effect.policies = if label == "twice" && fits {
            all_policies.iter().map(|kind| ratio(kind.name(), result)).collect()
        } else {
            comparison.at(run).into_iter().map(|(name, result)| ratio(name, result)).collect()
        };
        sizing.effects.push(size_effect);
    }
    sizing.recommendation = Some(Recommendation {
        bytes: page_bytes(choice.pages.into()),
        memory_bytes: page_memory(policy) * u64::from(choice.pages) + TRACKER,
        policy: policy.name().to_owned(),
        page_bytes: PAGE_SIZES[0],
        reach: choice.reach,
        wanted_hit_ratio: context.options.goal.hit_ratio(sizing.workload.ceiling),
        target_bytes: choice.target_pages.map(|pages| page_bytes(pages.into())),
        region: None,
    });
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn effect(context: &SizingContext<'_>, label: &str, pages: u32, result: &CacheResult) -> Effect {
    let misses = (1.0 - result.hits.hit_ratio) * context.survey.references[0] as f64;
    Effect {
        what: label.to_owned(),
        point: result.point(page_bytes(pages.into())),
        counted: result.counted,
        misses_per_hour: (context.survey.duration_ns >= RATE_TIME_MIN)
            .then(|| misses * NS_PER_HOUR / context.survey.duration_ns as f64),
        store_bytes: page_bytes(result.read_misses),
        policies: Vec::new(),
    }
}

fn ratio(policy: &str, result: &CacheResult) -> PolicyRatio {
    PolicyRatio {
        policy: policy.to_owned(),
        hit_ratio: result.hits.hit_ratio,
        low: result.hits.low,
        high: result.hits.high,
    }
}

/// Measures the recommended size beyond its effects: windows, MIN, page sizes and volumes.
fn measure_recommended_size(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    (policy, pages): (PolicyKind, u32),
    windows_ns: &[u64],
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    let footprint = u32::try_from(sizing.workload.footprint_pages).unwrap_or(u32::MAX);
    let mut sizes = search::grid(footprint);
    sizes.push(pages.min(footprint));
    sizes.sort_unstable();
    sizes.dedup();
    sizing.windows = windows::windows(context, policy, (&sizes, pages), windows_ns, progress)?;
    sizing.stability = stability::assess(&sizing.windows, page_bytes(pages.into()));
    sizing.min_hit_ratio = min(context, pages, progress)?;
    if sizing.min_hit_ratio.is_none() {
        sizing.notes.push(format!(
            "MIN was left out: for this trace it takes more than {} of memory; \
             `larder sim --policy min` may take more",
            format::bytes(MIN_BYTES_MAX)
        ));
    }
    if context.options.page_sizes {
        if context.survey.sample == 1 {
            page_sizes(context, sizing, (policy, pages), progress)?;
        } else {
            sizing.notes.push(
                "page sizes were not compared: of a sample of the pages, neighbors are missing"
                    .to_owned(),
            );
        }
    }
    if context.survey.volumes.len() > 1 {
        let memory_requests = volumes::memory_requests(context, progress)?;
        if memory_requests.len() < context.survey.volumes.len() {
            sizing.notes.push(format!(
                "memory is divided among the {} volumes with the most references, of {}",
                volumes::VOLUMES_MAX,
                context.survey.volumes.len()
            ));
        }
        let budget = page_bytes(pages.into());
        let claims: Vec<Claim> = memory_requests.iter().map(claim).collect();
        let shares = share::divide(&claims, budget);
        sizing.volumes = divide::shares(&memory_requests, &shares, PAGE_SIZES[0].into());
    }
    Ok(())
}

/// Returns the claim of a volume on memory: the hits of its curve.
fn claim(request: &MemoryRequest) -> Claim {
    let references = as_f64(request.references);
    let points = request.curve.points().iter();
    let points = points.map(|point| (point.bytes, point.hit_ratio * references)).collect();
    Claim { points, floor: 0, ceiling: u64::MAX }
}

/// Returns the hit ratio of MIN, if MIN takes no more memory than allowed.
fn min(
    context: &SizingContext<'_>,
    pages: u32,
    progress: &mut ProgressCallback<'_>,
) -> Result<Option<f64>, SizingError> {
    let total = context.survey.references[0];
    if memory_bytes(total, context.survey.footprints[0].pages) > MIN_BYTES_MAX {
        return Ok(None);
    }
    let mut future = Future::new();
    let mut done = 0;
    context.references(PAGE_SIZES[0])?.for_each_batch(|batch| {
        future.add(&batch.references).expect("far fewer references than 2^32");
        done += batch.references.len() as u64;
        progress(Progress { step: "the bound", done, total });
        Ok::<_, SizingError>(())
    })?;
    let counts = future.known().run(pages).counts;
    Ok(share(counts.hits().references, counts.all().references))
}

fn page_sizes(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    (policy, pages): (PolicyKind, u32),
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    for (index, &bytes) in PAGE_SIZES.iter().enumerate() {
        let capacity = pages / (bytes / PAGE_SIZES[0]);
        if capacity == 0 {
            continue;
        }
        let mut table = ResultTable::default();
        let plan = CachePlan {
            policies: &[policy],
            pages: &[capacity],
            page_size: index,
            step: "page sizes",
        };
        plan.run(context, &mut table, progress)?;
        let Some(result) = table.get(policy, capacity) else { continue };
        sizing.page_sizes.push(larder_schema::sizing::PageSize {
            page_bytes: bytes,
            byte_hit_ratio: result.byte_hits.hit_ratio,
            low: result.byte_hits.low,
            high: result.byte_hits.high,
            store_bytes: result.read_misses.saturating_mul(bytes.into()),
            read_misses: result.read_misses,
            footprint_bytes: context.survey.footprints[index].pages.saturating_mul(bytes.into()),
        });
    }
    let chosen = page_size::choose(&sizing.page_sizes);
    if let (Some(chosen), Some(recommendation)) = (chosen, &mut sizing.recommendation) {
        recommendation.page_bytes = sizing.page_sizes[chosen].page_bytes;
    }
    Ok(())
}

/// Adds the curves of all results and their regions.
fn curves(context: &SizingContext<'_>, sizing: &mut Sizing, table: &ResultTable) {
    let mut best = 0.0;
    for pages in table.sizes() {
        let found = table.at(pages);
        if let Some((policy, result)) = found.first() {
            // The search simulates some policies only, of which none may be the best.
            if found.len() < context.options.policies.len() && result.hits.hit_ratio < best {
                continue;
            }
            best = result.hits.hit_ratio.max(best);
            let point = result.point(page_bytes(pages.into()));
            sizing.exact |= sizing.curve.is_empty();
            sizing.exact &= result.counted;
            sizing.curve.push(BestPoint { policy: (*policy).to_owned(), point });
        }
    }
    let rank = |name: &str| {
        let best = sizing.recommended().map(|effect| &effect.policies);
        best.and_then(|best| best.iter().position(|one| one.policy == name)).unwrap_or(usize::MAX)
    };
    let mut policies: Vec<PolicyCurve> = context
        .options
        .policies
        .iter()
        .map(|&kind| PolicyCurve {
            policy: kind.name().to_owned(),
            points: Curve::new(
                table.of(kind).map(|(pages, result)| result.point(page_bytes(pages.into()))),
            ),
        })
        .collect();
    policies.sort_by_key(|curve| rank(&curve.policy));
    sizing.policies = policies;
    sizing.regions = regions::find(&sizing.best_curve(), sizing.workload.ceiling);
    sizing.regions_why =
        sizing.regions.as_ref().map(|found| regions::reasons(found).into()).unwrap_or_default();
}
