//! Puts the measurements together: from a surveyed trace to everything that is said about it.

use super::caches::{Found, Plan, Table};
use super::search::{self, Choice};
use super::{
    Case, MIN_BYTES_MAX, PAGE_SIZES, Progress, SizingError, TRACKER, Tell, page_bytes, page_memory,
    volumes, windows, working_set,
};
use crate::sim::min::{Future, memory_bytes};
use crate::sim::references::Batch;
use larder_core::curve::estimate::as_f64;
use larder_core::policy::PolicyKind;
use larder_core::share::{self, Claim};
use larder_report::advise::curve::Curve;
use larder_report::advise::divide::{self, MemoryRequest};
use larder_report::advise::page_size::{self, PageSize};
use larder_report::advise::regions::Regions;
use larder_report::advise::stability::Stability;
use larder_report::format;
use larder_report::sizing::{
    BestPoint, Effect, PolicyCurve, PolicyRatio, Recommendation, Sizing, Workload,
};
use larder_report::stats::hit_ratio;

const NS_PER_HOUR: f64 = 3.6e12;

pub(super) fn compose(case: &Case<'_>, tell: &mut Tell<'_>) -> Result<Sizing, SizingError> {
    let picture = working_set::picture(case, windows::WINDOWS)?;
    let workload = workload(case);
    let footprint = u32::try_from(workload.footprint_pages).unwrap_or(u32::MAX);
    let mut table = Table::default();
    let grid = search::grid(footprint);
    let everything =
        Plan { policies: &case.options.policies, pages: &grid, page_size: 0, step: "all policies" };
    everything.run(case, &mut table, tell)?;
    let mut made = Sizing {
        goal: case.options.goal,
        exact: false,
        seed: case.options.seed,
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
        slices: picture.slices,
        heat: picture.heat,
        notes: case.survey.notes.clone(),
        workload,
    };
    if made.workload.ceiling > 0.0 {
        let wanted = case.options.goal.hit_ratio(made.workload.ceiling);
        let choice = search::search(case, &mut table, wanted, tell)?;
        recommend(case, &mut made, &mut table, choice, tell)?;
        let policy = made.recommendation.as_ref().and_then(|r| PolicyKind::from_name(&r.policy));
        if let Some(policy) = policy {
            rest(case, &mut made, (policy, choice.pages), &picture.windows_ns, tell)?;
        }
    }
    curves(case, &mut made, &table);
    if let Some(regions) = &made.regions
        && let Some(recommendation) = &mut made.recommendation
    {
        recommendation.region = Some(regions.region(recommendation.bytes));
    }
    Ok(made)
}

fn workload(case: &Case<'_>) -> Workload {
    let survey = &case.survey;
    let (pages, references) = (survey.footprints[0], survey.references[0]);
    let compulsory = pages.pages.min(references);
    Workload {
        trace: case.options.name.clone(),
        page_bytes: PAGE_SIZES[0],
        requests: survey.requests,
        references,
        bytes: survey.bytes,
        duration_ns: Some(survey.duration_ns).filter(|&duration| duration > 0),
        footprint_pages: pages.pages,
        footprint_exact: pages.exact,
        compulsory_misses: compulsory,
        ceiling: hit_ratio(references - compulsory, references).unwrap_or(0.0),
    }
}

fn beside_plan<'a>(policies: &'a [PolicyKind], pages: &'a [u32]) -> Plan<'a> {
    Plan { policies, pages, page_size: 0, step: "half and twice" }
}

/// Half the size, the size and twice the size, with all policies; then the policy.
fn recommend(
    case: &Case<'_>,
    made: &mut Sizing,
    table: &mut Table,
    choice: Choice,
    tell: &mut Tell<'_>,
) -> Result<(), SizingError> {
    let everyone = &case.options.policies[..];
    let mut beside = Table::default();
    beside_plan(everyone, &[choice.pages]).run(case, &mut beside, tell)?;
    let Some(policy) = search::best_policy(&beside, choice.pages) else { return Ok(()) };
    let (half, twice) = ((choice.pages / 2).max(1), choice.pages.saturating_mul(2));
    beside_plan(everyone, &[half]).run(case, &mut beside, tell)?;
    let footprint = u32::try_from(made.workload.footprint_pages).unwrap_or(u32::MAX);
    // Where everything fits, policies have nothing to decide.
    let fits = twice >= footprint;
    let one = [policy];
    let who = if fits { &one[..] } else { everyone };
    beside_plan(who, &[twice.min(footprint)]).run(case, &mut beside, tell)?;
    table.enter_all(&beside, choice.pages);
    let sizes = [
        ("half", half, half),
        ("recommended", choice.pages, choice.pages),
        ("twice", twice, twice.min(footprint)),
    ];
    for (what, pages, run) in sizes {
        let Some(found) = beside.get(policy, run) else { continue };
        let mut made_of_it = effect(case, what, pages, found);
        made_of_it.policies = if what == "twice" && fits {
            everyone.iter().map(|kind| ratio(kind.name(), found)).collect()
        } else {
            beside.at(run).into_iter().map(|(name, found)| ratio(name, found)).collect()
        };
        made.effects.push(made_of_it);
    }
    made.recommendation = Some(Recommendation {
        bytes: page_bytes(choice.pages.into()),
        memory_bytes: page_memory(policy) * u64::from(choice.pages) + TRACKER,
        policy: policy.name().to_owned(),
        page_bytes: PAGE_SIZES[0],
        reach: choice.reach,
        wanted_hit_ratio: case.options.goal.hit_ratio(made.workload.ceiling),
        target_bytes: choice.target_pages.map(|pages| page_bytes(pages.into())),
        region: None,
    });
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn effect(case: &Case<'_>, what: &str, pages: u32, found: &Found) -> Effect {
    let misses = (1.0 - found.hits.hit_ratio) * case.survey.references[0] as f64;
    Effect {
        what: what.to_owned(),
        point: found.point(page_bytes(pages.into())),
        counted: found.counted,
        misses_per_hour: (case.survey.duration_ns > 0)
            .then(|| misses * NS_PER_HOUR / case.survey.duration_ns as f64),
        store_bytes: page_bytes(found.read_misses),
        policies: Vec::new(),
    }
}

fn ratio(policy: &str, found: &Found) -> PolicyRatio {
    PolicyRatio {
        policy: policy.to_owned(),
        hit_ratio: found.hits.hit_ratio,
        low: found.hits.low,
        high: found.hits.high,
    }
}

/// What is said about the recommended size beyond its effects.
fn rest(
    case: &Case<'_>,
    made: &mut Sizing,
    (policy, pages): (PolicyKind, u32),
    windows_ns: &[u64],
    tell: &mut Tell<'_>,
) -> Result<(), SizingError> {
    let footprint = u32::try_from(made.workload.footprint_pages).unwrap_or(u32::MAX);
    let mut sizes = search::grid(footprint);
    sizes.push(pages.min(footprint));
    sizes.sort_unstable();
    sizes.dedup();
    made.windows = windows::windows(case, policy, (&sizes, pages), windows_ns, tell)?;
    made.stability = Stability::of(&made.windows, page_bytes(pages.into()));
    made.min_hit_ratio = min(case, pages, tell)?;
    if made.min_hit_ratio.is_none() {
        made.notes.push(format!(
            "MIN was left out: for this trace it takes more than {} of memory; \
             `larder sim --policy min` may take more",
            format::bytes(MIN_BYTES_MAX)
        ));
    }
    if case.survey.sample == 1 {
        page_sizes(case, made, (policy, pages), tell)?;
    } else {
        made.notes.push(
            "page sizes were not compared: of a sample of the pages, neighbours are missing"
                .to_owned(),
        );
    }
    if case.survey.volumes.len() > 1 {
        let claimants = volumes::claimants(case, tell)?;
        if claimants.len() < case.survey.volumes.len() {
            made.notes.push(format!(
                "memory is divided among the {} volumes with the most references, of {}",
                volumes::VOLUMES_MAX,
                case.survey.volumes.len()
            ));
        }
        let budget = page_bytes(pages.into());
        let claims: Vec<Claim> = claimants.iter().map(claim).collect();
        let given = share::divide(&claims, budget);
        made.volumes = divide::shares(&claimants, &given, PAGE_SIZES[0].into());
    }
    Ok(())
}

/// What a volume gains from memory: hits of its curve.
fn claim(claimant: &MemoryRequest) -> Claim {
    let references = as_f64(claimant.references);
    let points = claimant.curve.points().iter();
    let points = points.map(|point| (point.bytes, point.hit_ratio * references)).collect();
    Claim { points, floor: 0, ceiling: u64::MAX }
}

/// The bound, if it takes no more memory than it may.
fn min(case: &Case<'_>, pages: u32, tell: &mut Tell<'_>) -> Result<Option<f64>, SizingError> {
    let total = case.survey.references[0];
    if memory_bytes(total, case.survey.footprints[0].pages) > MIN_BYTES_MAX {
        return Ok(None);
    }
    let mut future = Future::new();
    let mut stream = case.references(PAGE_SIZES[0])?;
    let (mut batch, mut done) = (Batch::default(), 0);
    loop {
        stream.read_batch(&mut batch)?;
        if batch.references.is_empty() {
            break;
        }
        future.add(&batch.references).expect("far fewer references than 2^32");
        done += batch.references.len() as u64;
        tell(Progress { step: "the bound", done, total });
    }
    let counts = future.known().run(pages).counts;
    Ok(hit_ratio(counts.hits().references, counts.all().references))
}

fn page_sizes(
    case: &Case<'_>,
    made: &mut Sizing,
    (policy, pages): (PolicyKind, u32),
    tell: &mut Tell<'_>,
) -> Result<(), SizingError> {
    for (place, &bytes) in PAGE_SIZES.iter().enumerate() {
        let capacity = pages / (bytes / PAGE_SIZES[0]);
        if capacity == 0 {
            continue;
        }
        let mut table = Table::default();
        let plan =
            Plan { policies: &[policy], pages: &[capacity], page_size: place, step: "page sizes" };
        plan.run(case, &mut table, tell)?;
        let Some(found) = table.get(policy, capacity) else { continue };
        made.page_sizes.push(PageSize {
            page_bytes: bytes,
            byte_hit_ratio: found.byte_hits.hit_ratio,
            low: found.byte_hits.low,
            high: found.byte_hits.high,
            store_bytes: found.read_misses.saturating_mul(bytes.into()),
            read_misses: found.read_misses,
            footprint_bytes: case.survey.footprints[place].pages.saturating_mul(bytes.into()),
        });
    }
    let chosen = page_size::choose(&made.page_sizes);
    if let (Some(chosen), Some(recommendation)) = (chosen, &mut made.recommendation) {
        recommendation.page_bytes = made.page_sizes[chosen].page_bytes;
    }
    Ok(())
}

/// The curves and their regions, of everything that is known.
fn curves(case: &Case<'_>, made: &mut Sizing, table: &Table) {
    for pages in table.sizes() {
        if let Some((policy, found)) = table.at(pages).first() {
            let point = found.point(page_bytes(pages.into()));
            made.exact |= made.curve.is_empty();
            made.exact &= found.counted;
            made.curve.push(BestPoint { policy: (*policy).to_owned(), point });
        }
    }
    let place = |name: &str| {
        let best = made.recommended().map(|effect| &effect.policies);
        best.and_then(|best| best.iter().position(|one| one.policy == name)).unwrap_or(usize::MAX)
    };
    let mut policies: Vec<PolicyCurve> = case
        .options
        .policies
        .iter()
        .map(|&kind| PolicyCurve {
            policy: kind.name().to_owned(),
            points: Curve::new(
                table.of(kind).map(|(pages, found)| found.point(page_bytes(pages.into()))),
            ),
        })
        .collect();
    policies.sort_by_key(|curve| place(&curve.policy));
    made.policies = policies;
    made.regions = Regions::of(&made.best_curve(), made.workload.ceiling);
    made.regions_why =
        made.regions.as_ref().map(|found| found.reasons().into()).unwrap_or_default();
}
