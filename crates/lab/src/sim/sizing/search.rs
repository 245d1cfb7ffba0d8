//! Search for the smallest size that reaches the goal, and for the best policies there.
//!
//! The estimates of all policies give an approximate size. The best few policies are then simulated
//! at sizes half an octave apart around it, and twice more between the two neighbors of which one
//! reaches the goal and the other does not: the last sizes are 2 % apart. If the estimates are so
//! inaccurate that none or all of the sizes reach the goal, the search moves by an octave and tries
//! again. Of a server only the best policy is simulated, at the sizes of the whole curve and three
//! times between neighbors.

use super::caches::{CachePlan, ResultTable};
use super::{ProgressCallback, SizingContext, SizingError};
use larder_core::policy::PolicyKind;
use larder_schema::advice::Attainment;

/// Number of policies that the search simulates, besides the engine's default.
const CANDIDATES: usize = 2;
/// Maximum pages of a small cache.
const SMALL_CACHE_PAGES: u32 = 1024;
/// Hit ratios that differ by no more than this count as equal.
const TIE: f64 = 0.001;
/// The same for the hit ratios of simulated servers, which have noise.
const SERVER_TIE: f64 = 0.005;
/// Number of refinements.
const REFINEMENTS: u32 = 2;
/// Default policy of `larder serve`.
pub(super) const ENGINE_DEFAULT: PolicyKind = PolicyKind::S3Fifo;
/// Maximum moves of the search; the sizes of a trace span fewer octaves than this.
const MOVES_MAX: usize = 40;

/// The result of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeChoice {
    pub(super) pages: u32,
    pub(super) reach: Attainment,
    /// The smallest size that reaches the goal, whatever the budget.
    pub(super) target_pages: Option<u32>,
}

/// Returns the sizes of the curve in ascending order: from the footprint down, half an octave
/// apart, below 1/32 of it an octave. They end at 1/1024, or above the sizes of a small cache,
/// which have no miniature and would cost the most.
pub(super) fn grid(footprint: u32) -> Vec<u32> {
    let least = (footprint / 1024).max((footprint / 64).min(SMALL_CACHE_PAGES));
    let halves = (0..10).map(|number| f64::from(number) / 2.0);
    let wholes = (5..=10).map(f64::from);
    let mut sizes: Vec<u32> = halves
        .chain(wholes)
        .map(|octaves| scaled(footprint, -octaves))
        .filter(|&pages| pages > 0 && pages >= least)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the size that is `octaves` octaves larger, or smaller if negative.
fn scaled(pages: u32, octaves: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let scaled = (f64::from(pages) * octaves.exp2()).round() as u32;
    scaled
}

/// Returns the smallest size of the table that has the hit ratio with any policy.
pub(super) fn smallest_reaching(table: &ResultTable, hit_ratio: f64) -> Option<u32> {
    table.sizes().into_iter().find(|&pages| best_hit_ratio(table, pages) >= hit_ratio)
}

fn best_hit_ratio(table: &ResultTable, pages: u32) -> f64 {
    table.at(pages).first().map_or(0.0, |(_, found)| found.hits.hit_ratio)
}

/// Returns the maximum difference between hit ratios that count as equal.
pub(super) fn tie(context: &SizingContext<'_>) -> f64 {
    if context.search_server().is_some() { SERVER_TIE } else { TIE }
}

/// Returns the best policy at a size: among those that tie, the engine's default, else the one with
/// the least memory.
pub(super) fn best_policy(table: &ResultTable, pages: u32, tie: f64) -> Option<PolicyKind> {
    let found = table.at(pages);
    let top = found.first()?.1.hits.hit_ratio;
    found
        .iter()
        .take_while(|(_, found)| found.hits.hit_ratio >= top - tie)
        .filter_map(|(name, _)| PolicyKind::from_name(name))
        .min_by_key(|&kind| (kind != ENGINE_DEFAULT, kind.bytes_per_page()))
}

/// The policies and sizes of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    /// The policies that are simulated.
    pub(super) candidates: &'a [PolicyKind],
    /// The size around which the search begins.
    pub(super) center: u32,
    /// The smallest size.
    pub(super) least: u32,
    pub(super) wanted_hit_ratio: f64,
}

impl Search<'_> {
    /// Searches for the size. The table has results at the sizes of [`grid`], and receives those of
    /// the search.
    pub(super) fn run(
        &self,
        context: &SizingContext<'_>,
        table: &mut ResultTable,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<SizeChoice, SizingError> {
        let Search { least, wanted_hit_ratio, .. } = *self;
        let (pages_max, server) = (context.pages_max(), context.search_server());
        let mut simulated = ResultTable::default();
        let mut run = |sizes: &[u32], simulated: &mut ResultTable| {
            let plan = CachePlan {
                policies: self.candidates,
                pages: sizes,
                page_size: context.page_size(),
                step: "searching the size",
                server,
            };
            plan.run(context, simulated, progress)
        };
        let mut center = self.center.clamp(least, pages_max);
        // The curve of a server has the sizes around the goal already.
        let (moves, refinements) =
            if server.is_some() { (0, REFINEMENTS + 1) } else { (MOVES_MAX, REFINEMENTS) };
        if moves == 0 {
            // The curve of a server, and so the size that reaches the goal, do not depend on the
            // budget.
            simulated = table.clone();
        }
        for _ in 0..moves {
            let mut sizes: Vec<u32> = (-4..=4)
                .map(|number| scaled(center, f64::from(number) / 4.0).clamp(least, pages_max))
                .collect();
            sizes.dedup();
            run(&sizes, &mut simulated)?;
            let first = simulated.sizes()[0];
            match smallest_reaching(&simulated, wanted_hit_ratio) {
                Some(found) if found == first && first > least => center = (first / 2).max(least),
                Some(_) => break,
                None if simulated.sizes().contains(&pages_max) => break,
                None => center = center.saturating_mul(2).min(pages_max),
            }
        }
        for _ in 0..refinements {
            let Some(above) = smallest_reaching(&simulated, wanted_hit_ratio) else { break };
            let smaller = simulated.sizes().into_iter().filter(|&pages| pages < above);
            let below = smaller.max().unwrap_or(least - 1);
            let part = |number: u32| {
                let pages = u64::from(above - below) * u64::from(number) / 4;
                below + u32::try_from(pages).expect("a part of 32 bits")
            };
            let between = (1..4).map(part).filter(|&pages| pages < above);
            let mut between: Vec<u32> = between.filter(|&pages| pages >= least).collect();
            between.dedup();
            run(&between, &mut simulated)?;
        }
        let choice = SizeChoice::of(context, &simulated, table, wanted_hit_ratio);
        table.merge(simulated);
        Ok(choice)
    }
}

impl SizeChoice {
    /// Returns the smallest size that reaches the hit ratio: of the simulated sizes, or beyond the
    /// budget of the table.
    pub(super) fn of(
        context: &SizingContext<'_>,
        simulated: &ResultTable,
        table: &ResultTable,
        wanted_hit_ratio: f64,
    ) -> Self {
        let pages_max = context.pages_max();
        let reached = smallest_reaching(simulated, wanted_hit_ratio);
        let target_pages = reached.or_else(|| {
            smallest_reaching(table, wanted_hit_ratio).filter(|&pages| pages > pages_max)
        });
        let (pages, reach) = match reached {
            Some(pages) => (pages, Attainment::Reached),
            None if pages_max < context.footprint() => (pages_max, Attainment::Budget),
            None => (pages_max, Attainment::End),
        };
        SizeChoice { pages, reach, target_pages }
    }
}

/// Returns the best policies at the nearest size of the grid, and the engine's default; for a
/// server, which takes longer to simulate, the best one.
pub(super) fn candidates(
    context: &SizingContext<'_>,
    table: &ResultTable,
    pages: u32,
) -> Vec<PolicyKind> {
    let distance = |&size: &u32| (f64::from(size) / f64::from(pages.max(1))).ln().abs();
    let nearest = table.sizes().into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some(nearest) = nearest else { return Vec::new() };
    if context.search_server().is_some() {
        return best_policy(table, nearest, tie(context)).into_iter().collect();
    }
    let mut found: Vec<PolicyKind> = table
        .at(nearest)
        .into_iter()
        .filter_map(|(name, _)| PolicyKind::from_name(name))
        .take(CANDIDATES)
        .collect();
    if context.options.policies.contains(&ENGINE_DEFAULT) && !found.contains(&ENGINE_DEFAULT) {
        found.push(ENGINE_DEFAULT);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_ends_with_the_footprint() {
        assert_eq!(grid(1), [1]);
        let sizes = grid(100_000);
        assert_eq!(sizes.last(), Some(&100_000));
        assert_eq!(sizes[0], 1_563);
        assert_eq!(grid(10_000_000)[0], 9_766);
        assert_eq!(grid(100), [1, 2, 3, 4, 6, 9, 13, 18, 25, 35, 50, 71, 100]);
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
