//! Fewer and smaller moves with nearly the same result.

use super::BalanceProblem;
use super::placement::{Placement, Score};

/// Maximum number of smaller items that are tried instead of an item.
const TRIED_MAX: usize = 256;

/// The highest utilization and response time that a plan may have.
pub(super) struct Limit {
    pub(super) peak: f64,
    pub(super) response: f64,
}

impl Limit {
    pub(super) fn holds(&self, score: &Score) -> bool {
        score.peak() <= self.peak && score.response <= self.response
    }

    /// Returns items to their places, the largest first, and replaces them by smaller ones.
    pub(super) fn reduce(&self, problem: &BalanceProblem, placement: &mut Placement<'_>) {
        let by_size = |placement: &Placement<'_>| {
            let mut moved = placement.moved().0;
            moved.sort_by_key(|&item| (std::cmp::Reverse(problem.items[item].bytes), item));
            moved
        };
        for item in by_size(placement) {
            let to = placement.place[item];
            placement.set(item, problem.items[item].place);
            if !self.holds(&placement.score()) {
                placement.set(item, to);
            }
        }
        for item in by_size(placement) {
            self.replace(problem, placement, item);
        }
    }

    /// Replaces a moved item by the smallest other one of its file system that is enough.
    fn replace(&self, problem: &BalanceProblem, placement: &mut Placement<'_>, item: usize) {
        let (to, home) = (placement.place[item], problem.items[item].place);
        let is_smaller = |&other: &usize| {
            let it = &problem.items[other];
            it.is_movable
                && it.place == home
                && placement.place[other] == home
                && it.bytes < problem.items[item].bytes
        };
        let mut others: Vec<usize> = (0..problem.items.len()).filter(is_smaller).collect();
        others.sort_by_key(|&other| (problem.items[other].bytes, other));
        placement.set(item, home);
        for other in others.into_iter().take(TRIED_MAX) {
            placement.set(other, to);
            if self.holds(&placement.score()) {
                return;
            }
            placement.set(other, home);
        }
        placement.set(item, to);
    }
}
