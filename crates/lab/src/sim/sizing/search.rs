//! Looks for the smallest size that reaches the goal, and for the best policies there.
//!
//! The estimates of all policies say about where it is. The best few are then simulated at sizes
//! half an octave apart around it, and twice more between the two neighbours of which one reaches
//! the goal and the other does not: the last ones are 2 % apart. If the estimates were so far off
//! that none or all of them reach it, the search moves on by an octave and looks again.

use super::caches::{Plan, Table};
use super::{Case, SizingError, Tell};
use larder_core::policy::PolicyKind;
use larder_report::advise::goal::Attainment;

/// Policies that are looked at closely, besides the engine's default.
const CANDIDATES: usize = 2;
/// Pages of a cache that is small for anybody.
const SMALL: u32 = 1024;
/// A policy that is as good as the best up to this is as good as it.
const TIE: f64 = 0.001;
/// How often it looks closer.
const CLOSER: u32 = 2;
/// What `larder serve` takes if it is not told.
const ENGINE_DEFAULT: PolicyKind = PolicyKind::S3Fifo;
/// How often the search may move on; the sizes of a trace span fewer octaves than this.
const MOVES_MAX: usize = 40;

/// What the search ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) pages: u32,
    pub(super) reach: Attainment,
    /// The smallest size that reaches the goal, whatever the budget.
    pub(super) target_pages: Option<u32>,
}

/// Sizes of the curve by rising size: from the footprint down, half an octave apart, below 1/32 of
/// it an octave. It ends at 1/1024, or before sizes that are small for any cache and, having no
/// miniature, would cost the most.
pub(super) fn grid(footprint: u32) -> Vec<u32> {
    let least = (footprint / 1024).max((footprint / 64).min(SMALL));
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

/// A size so many octaves up or down.
fn scaled(pages: u32, octaves: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let scaled = (f64::from(pages) * octaves.exp2()).round() as u32;
    scaled
}

/// The smallest size of the table that has the hit ratio with any policy.
pub(super) fn reaching(table: &Table, hit_ratio: f64) -> Option<u32> {
    table.sizes().into_iter().find(|&pages| best(table, pages) >= hit_ratio)
}

fn best(table: &Table, pages: u32) -> f64 {
    table.at(pages).first().map_or(0.0, |(_, found)| found.hits.hit_ratio)
}

/// The best policy of those at a size: among those that tie, the engine's default, else the one
/// that takes the least memory.
pub(super) fn best_policy(table: &Table, pages: u32) -> Option<PolicyKind> {
    let found = table.at(pages);
    let top = found.first()?.1.hits.hit_ratio;
    found
        .iter()
        .take_while(|(_, found)| found.hits.hit_ratio >= top - TIE)
        .filter_map(|(name, _)| PolicyKind::from_name(name))
        .min_by_key(|&kind| (kind != ENGINE_DEFAULT, kind.bytes_per_page()))
}

/// Searches; the table has estimates of all policies at the sizes of [`grid`].
pub(super) fn search(
    case: &Case<'_>,
    table: &mut Table,
    wanted: f64,
    tell: &mut Tell<'_>,
) -> Result<Choice, SizingError> {
    let footprint = u32::try_from(case.survey.footprints[0].pages).unwrap_or(u32::MAX);
    let most = case.pages_max();
    // Without an estimate that reaches it, the end of the curve is as near as it gets.
    let about = reaching(table, wanted).unwrap_or(footprint);
    let candidates = candidates(case, table, about.min(most));
    let mut looked = Table::default();
    let mut run = |sizes: &[u32], looked: &mut Table| {
        let plan =
            Plan { policies: &candidates, pages: sizes, page_size: 0, step: "searching the size" };
        plan.run(case, looked, tell)
    };
    let mut centre = about.min(most);
    for _ in 0..MOVES_MAX {
        let mut sizes: Vec<u32> =
            (-4..=4).map(|number| scaled(centre, f64::from(number) / 4.0).clamp(1, most)).collect();
        sizes.dedup();
        run(&sizes, &mut looked)?;
        let first = looked.sizes()[0];
        match reaching(&looked, wanted) {
            Some(found) if found == first && first > 1 => centre = (first / 2).max(1),
            Some(_) => break,
            None if looked.sizes().contains(&most) => break,
            None => centre = centre.saturating_mul(2).min(most),
        }
    }
    for _ in 0..CLOSER {
        let Some(above) = reaching(&looked, wanted) else { break };
        let below = looked.sizes().into_iter().filter(|&pages| pages < above).max().unwrap_or(0);
        let part = |number: u32| {
            let pages = u64::from(above - below) * u64::from(number) / 4;
            below + u32::try_from(pages).expect("a part of 32 bits")
        };
        let between = (1..4).map(part).filter(|&pages| pages > below && pages < above);
        let mut between: Vec<u32> = between.collect();
        between.dedup();
        run(&between, &mut looked)?;
    }
    let reached = reaching(&looked, wanted);
    let target_pages = reached.or_else(|| reaching(table, wanted).filter(|&pages| pages > most));
    table.take(looked);
    let (pages, reach) = match reached {
        Some(pages) => (pages, Attainment::Reached),
        None if most < footprint => (most, Attainment::Budget),
        None => (most, Attainment::End),
    };
    Ok(Choice { pages, reach, target_pages })
}

/// The best policies at the size of the grid that is nearest, and the engine's default.
fn candidates(case: &Case<'_>, table: &Table, pages: u32) -> Vec<PolicyKind> {
    let distance = |&size: &u32| (f64::from(size) / f64::from(pages.max(1))).ln().abs();
    let nearest = table.sizes().into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut found: Vec<PolicyKind> = nearest
        .map(|size| table.at(size))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, _)| PolicyKind::from_name(name))
        .take(CANDIDATES)
        .collect();
    if case.options.policies.contains(&ENGINE_DEFAULT) && !found.contains(&ENGINE_DEFAULT) {
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
