//! The complete result of a measurement, composed from the results of all steps.

use super::caches::{CachePlan, ResultTable};
use super::search;
use super::{
    MIN_BYTES_MAX, PAGE_SIZES, Progress, ProgressCallback, SizingContext, SizingError, page_bytes,
    recommend, volumes, windows, working_set,
};
use crate::sim::min::{Future, memory_bytes};
use larder_core::policy::PolicyKind;
use larder_core::share::{self, Claim};
use larder_core::units::as_f64;
use larder_report::advise::divide::{self, MemoryRequest};
use larder_report::advise::page_size;
use larder_report::advise::{regions, stability};
use larder_schema::format;
use larder_schema::share;
use larder_schema::sizing::{BestPoint, PolicyCurve, Sizing, Workload};

/// Minimum difference of simulated servers from their curve that a note states.
const SPREAD_MIN: f64 = 0.003;

/// Returns the sizes at which all policies are compared.
fn grid(context: &SizingContext<'_>) -> Vec<u32> {
    let footprint = u32::try_from(context.survey.footprints[0].pages).unwrap_or(u32::MAX);
    search::grid(footprint)
}

/// Returns the caches of all policies at all sizes of the grid.
fn all_policies<'a>(context: &SizingContext<'a>, grid: &'a [u32]) -> CachePlan<'a> {
    let policies = &context.options.policies;
    CachePlan { policies, pages: grid, page_size: 0, step: "all policies", server: None }
}

/// Returns true if all policies run in caches of full size.
pub(super) fn counts_all_policies(context: &SizingContext<'_>) -> bool {
    let grid = grid(context);
    all_policies(context, &grid).runs_in_full(context)
}

pub(super) fn compose(
    context: &mut SizingContext<'_>,
    progress: &mut ProgressCallback<'_>,
) -> Result<Sizing, SizingError> {
    let profile = working_set::profile(context, windows::WINDOWS)?;
    let workload = workload(context);
    let mut estimates = ResultTable::default();
    let grid = grid(context);
    all_policies(context, &grid).run(context, &mut estimates, progress)?;
    let unsized_trace = Sizing {
        goal: context.options.goal,
        exact: false,
        server: context.server.as_ref().map(|it| it.model(context.search_server().is_some())),
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
    let (mut sizing, mut table) = (unsized_trace.clone(), estimates.clone());
    let mut found = search_size(context, &mut sizing, &mut table, progress)?;
    // The size and all figures are those of the recommended page size.
    let page_bytes = sizing.recommendation.as_ref().map(|advice| advice.page_bytes);
    let page_size = PAGE_SIZES.iter().position(|&bytes| Some(bytes) == page_bytes);
    if let Some(page_size) = page_size.filter(|&it| it != context.page_size())
        && context.search_server().is_some()
    {
        context.server.iter_mut().for_each(|server| server.page_size = page_size);
        (sizing, table) = (unsized_trace, estimates);
        found = search_size(context, &mut sizing, &mut table, progress)?;
    }
    if let Some(at) = found {
        let windows_ns = &profile.windows_ns;
        sizing.windows = if context.search_server().is_some() {
            windows::of_server(context, &table, at, windows_ns)
        } else {
            windows::windows(context, at, windows_ns, progress)?
        };
        measure_recommended_size(context, &mut sizing, at.1, progress)?;
        recommend::predict_server(context, &mut sizing, at.0, progress)?;
    }
    curves(context, &mut sizing, &table);
    if let Some(found) = &sizing.regions
        && let Some(recommendation) = &mut sizing.recommendation
    {
        recommendation.region = Some(regions::region(found, recommendation.bytes));
    }
    Ok(sizing)
}

/// Searches for the policy and the size, which it returns, and for the page size. The table has the
/// estimates of all policies, and receives the results of the search.
fn search_size(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    table: &mut ResultTable,
    progress: &mut ProgressCallback<'_>,
) -> Result<Option<(PolicyKind, u32)>, SizingError> {
    let Some(mut search) = recommend::plan(context, sizing, table, progress)? else {
        return Ok(None);
    };
    let found = recommend::recommend(context, sizing, (&mut search, table), progress)?;
    if let Some(at) = found
        && context.options.page_sizes
        && context.survey.sample == 1
    {
        page_sizes(context, sizing, at, progress)?;
    }
    Ok(found)
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

/// Measures the recommended size beyond its effects: MIN and volumes.
fn measure_recommended_size(
    context: &SizingContext<'_>,
    sizing: &mut Sizing,
    pages: u32,
    progress: &mut ProgressCallback<'_>,
) -> Result<(), SizingError> {
    sizing.stability = stability::assess(&sizing.windows, page_bytes(pages.into()));
    sizing.min_hit_ratio = min(context, pages, progress)?;
    if sizing.min_hit_ratio.is_none() {
        sizing.notes.push(format!(
            "MIN was left out: for this trace it takes more than {} of memory; \
             `larder sim --policy min` may take more",
            format::bytes(MIN_BYTES_MAX)
        ));
    }
    if context.options.page_sizes && context.survey.sample > 1 {
        sizing.notes.push(
            "page sizes were not compared: of a sample of the pages, neighbors are missing"
                .to_owned(),
        );
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
        let server = context.search_server();
        let capacity = if server.is_some() { pages } else { pages / (bytes / PAGE_SIZES[0]) };
        if capacity == 0 {
            continue;
        }
        let mut table = ResultTable::default();
        let plan = CachePlan {
            policies: &[policy],
            pages: &[capacity],
            page_size: index,
            step: "page sizes",
            server,
        };
        plan.run(context, &mut table, progress)?;
        let Some(result) = table.get(policy, capacity) else { continue };
        sizing.page_sizes.push(larder_schema::sizing::PageSize {
            page_bytes: bytes,
            byte_hit_ratio: result.byte_hits.hit_ratio,
            low: result.byte_hits.low,
            high: result.byte_hits.high,
            store_bytes: result.store_bytes(bytes),
            read_misses: result.read_misses,
            server: result.run(),
            footprint_bytes: context.survey.footprints[index].pages.saturating_mul(bytes.into()),
        });
    }
    let chosen = page_size::choose(&sizing.page_sizes);
    // The second time the size was searched with the page size that was chosen the first time.
    if let (Some(chosen), Some(recommendation)) = (chosen, &mut sizing.recommendation)
        && context.page_size() == 0
    {
        recommendation.page_bytes = sizing.page_sizes[chosen].page_bytes;
    }
    Ok(())
}

/// Adds the curves of all results and their regions.
fn curves(context: &SizingContext<'_>, sizing: &mut Sizing, table: &ResultTable) {
    let mut best = 0.0;
    // Of a server, only the policy of the search has a curve.
    let recommended = sizing.recommendation.as_ref().map(|advice| advice.policy.clone());
    let server_policy = recommended.filter(|_| context.search_server().is_some());
    let is_shown = |name: &str| server_policy.as_ref().is_none_or(|policy| policy == name);
    for pages in table.sizes() {
        let mut found = table.at(pages);
        found.retain(|(name, _)| is_shown(name));
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
        .filter(|kind| is_shown(kind.name()))
        .map(|&kind| PolicyCurve { policy: kind.name().to_owned(), points: table.curve(kind) })
        .collect();
    policies.sort_by_key(|curve| rank(&curve.policy));
    sizing.policies = policies;
    let spread = server_policy.as_deref().and_then(PolicyKind::from_name);
    let spread = spread.map_or(0.0, |policy| table.spread(policy));
    if spread >= SPREAD_MIN {
        sizing.notes.push(format!(
            "simulated servers of nearly the same size differ by up to {:.1} points; the curve is \
             the rising one that fits them best",
            100.0 * spread
        ));
    }
    sizing.regions = regions::find(&sizing.best_curve(), sizing.workload.ceiling);
    sizing.regions_why =
        sizing.regions.as_ref().map(|found| regions::reasons(found).into()).unwrap_or_default();
}
