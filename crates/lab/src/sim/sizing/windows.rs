//! The cache size that each part of the trace needs: windows with equal numbers of references,
//! measured with caches that continue from one window to the next. Of a server, hits are those of
//! reads.

use super::caches::{ResultTable, TABLE_BYTES_PER_PAGE, TABLES_BYTES_MAX};
use super::search;
use super::{
    COUNTED_MAX, PAGE_SIZES, Progress, ProgressCallback, SizingContext, SizingError, page_bytes,
};
use crate::sim::engine::{PARTS, PartReads};
use crate::sim::references::Reference;
use larder_core::curve::miniature::{Miniature, NOT_ESTIMATED};
use larder_core::policy::PolicyKind;
use larder_core::replace::{self, IndexKind, Replace};
use larder_schema::curve::{Curve, Point};
use larder_schema::share;
use larder_schema::sizing::Window;

/// Number of windows.
pub(super) const WINDOWS: u64 = PARTS as u64;

/// The simulated caches, in full or in miniature.
enum Caches {
    Full(Vec<Box<dyn Replace>>),
    Small(Miniature),
}

impl Caches {
    /// Creates full caches where they are cheap: they run in one thread, so the limit on references
    /// is lower than elsewhere; and for the policy without estimates, which is among the policies
    /// only if a full cache is cheap enough elsewhere.
    fn new(context: &SizingContext<'_>, policy: PolicyKind, sizes: &[u32]) -> Self {
        let run = context.survey.references[0].saturating_mul(sizes.len() as u64);
        let pages: u64 = sizes.iter().map(|&pages| u64::from(pages)).sum();
        let fits = pages * TABLE_BYTES_PER_PAGE <= TABLES_BYTES_MAX && run <= COUNTED_MAX / 20;
        if (fits && !context.uses_samples()) || policy == NOT_ESTIMATED {
            let cache = |&pages: &u32| replace::cache(policy, pages, IndexKind::Page);
            return Caches::Full(sizes.iter().map(cache).collect());
        }
        let footprint = context.survey.footprints[0].pages;
        Caches::Small(Miniature::new(&[policy], sizes, footprint, context.options.seed))
    }

    fn run(&mut self, references: &[Reference]) {
        match self {
            Caches::Full(caches) => caches.iter_mut().for_each(|cache| cache.run(references, &[])),
            Caches::Small(miniature) => miniature.run(references),
        }
    }

    /// Returns the misses so far at the size with this index.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn misses(&self, size: usize) -> f64 {
        match self {
            Caches::Full(caches) => caches[size].counts().misses().references as f64,
            Caches::Small(miniature) => {
                let misses = miniature.total(0, size, |counts| counts.misses().references);
                misses.expect("a policy with estimates").0
            }
        }
    }
}

/// Returns the windows of a server from the results of its simulations.
pub(super) fn of_server(
    context: &SizingContext<'_>,
    table: &ResultTable,
    (policy, recommended): (PolicyKind, u32),
    starts_ns: &[u64],
) -> Vec<Window> {
    let runs: Vec<_> =
        table.of(policy).filter_map(|(pages, result)| Some((pages, result.server?.1))).collect();
    let sizes: Vec<u32> = runs.iter().map(|(pages, _)| *pages).collect();
    let window_of = |part: usize| {
        let reads = |(_, parts): &(u32, [PartReads; PARTS])| parts[part];
        let references = runs.first().map_or(0, |run| reads(run).references);
        let ratio = |part: PartReads| share(part.hits, part.pages).unwrap_or(0.0);
        let ratios: Vec<f64> = runs.iter().map(|run| ratio(reads(run))).collect();
        let begin_ns = starts_ns.get(part).copied().unwrap_or(0);
        window(context, &sizes, recommended, &ratios, (begin_ns, references))
    };
    (0..PARTS).map(window_of).collect()
}

/// Measures the windows by replacement alone, with caches of the sizes of the curve and the
/// recommended one.
pub(super) fn windows(
    context: &SizingContext<'_>,
    (policy, recommended): (PolicyKind, u32),
    starts_ns: &[u64],
    progress: &mut ProgressCallback<'_>,
) -> Result<Vec<Window>, SizingError> {
    let footprint = u32::try_from(context.survey.footprints[0].pages).unwrap_or(u32::MAX);
    let mut sizes = search::grid(footprint);
    sizes.push(recommended.min(footprint));
    sizes.sort_unstable();
    sizes.dedup();
    let sizes = &sizes[..];
    let total = context.survey.references[0];
    let mut caches = Caches::new(context, policy, sizes);
    let mut before = vec![0.0; sizes.len()];
    let mut windows = Vec::new();
    let (mut done, mut window_start) = (0_u64, 0_u64);
    context.references(PAGE_SIZES[0])?.for_each_batch(|batch| {
        let mut rest = &batch.references[..];
        while !rest.is_empty() {
            let number = windows.len() as u64 + 1;
            let end = u64::try_from(u128::from(total) * u128::from(number) / u128::from(WINDOWS))
                .expect("a part of 64 bits");
            let count = usize::try_from(end - done).map_or(rest.len(), |left| left.min(rest.len()));
            caches.run(&rest[..count]);
            rest = &rest[count..];
            done += count as u64;
            if done == end {
                let misses: Vec<f64> = (0..sizes.len()).map(|size| caches.misses(size)).collect();
                let ratios = ratios(&before, &misses, end - window_start);
                let begin_ns = starts_ns.get(windows.len()).copied().unwrap_or(0);
                windows.push(window(
                    context,
                    sizes,
                    recommended,
                    &ratios,
                    (begin_ns, end - window_start),
                ));
                (before, window_start) = (misses, end);
            }
        }
        progress(Progress { step: "parts of the trace", done, total });
        Ok::<_, SizingError>(())
    })?;
    Ok(windows)
}

/// Returns the hit ratios of a window from the misses before and after.
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn ratios(before: &[f64], after: &[f64], references: u64) -> Vec<f64> {
    let references = references.max(1) as f64;
    let ratio =
        |(before, after): (&f64, &f64)| (1.0 - (after - before) / references).clamp(0.0, 1.0);
    before.iter().zip(after).map(ratio).collect()
}

fn window(
    context: &SizingContext<'_>,
    sizes: &[u32],
    recommended: u32,
    ratios: &[f64],
    (begin_ns, references): (u64, u64),
) -> Window {
    let point = |(&pages, &ratio): (&u32, &f64)| Point::exact(page_bytes(pages.into()), ratio);
    let curve = Curve::new(sizes.iter().zip(ratios).map(point));
    let ceiling = ratios.iter().copied().fold(0.0, f64::max);
    let needed_bytes = (ceiling > 0.0)
        .then(|| curve.rising().reaching(context.options.goal.hit_ratio(ceiling)))
        .flatten();
    let hit_ratio = curve.at(page_bytes(recommended.into())).map_or(0.0, |point| point.hit_ratio);
    Window { begin_ns, references, needed_bytes, ceiling, hit_ratio }
}
