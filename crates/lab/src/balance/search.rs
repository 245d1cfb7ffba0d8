//! The search for a placement.

use super::placement::{Placement, Score};
use super::reduction::Limit;
use super::{BalanceProblem, MovePlan, PEAK_SLACK, PlannedMove, RESPONSE_SLACK};
use crate::random::Random;
use std::cmp::Ordering;

/// Maximum number of placements that are evaluated: about a second for ten disks.
const EVALUATIONS_MAX: u64 = 1_000_000;
/// Maximum number of placements of one start.
const DESCENT_MAX: u64 = EVALUATIONS_MAX / 16;
/// Number of restarts.
const RESTARTS: u32 = 256;
/// Minimum and maximum number of items of a restart that get random places.
const KICKED_MIN: u32 = 2;
const KICKED_MAX: u32 = 6;
/// Maximum number of items of a disk that a step tries to move, and that it tries to swap.
const MOVED_MAX: usize = 256;
const SWAPPED_MAX: usize = 48;
/// Minimum relative gain of a plan, of the highest utilization or of the response time.
const GAIN_MIN: f64 = 0.02;
const SEED: u64 = 27;

/// Returns the moves that minimize the highest utilization and then the response time, under the
/// free space of each file system, and the use of the disks before and after.
///
/// The highest utilization is at most [`PEAK_SLACK`] above the best one that was found. There is no
/// move if the best placement gains less than 2 %.
#[must_use]
pub fn plan(problem: &BalanceProblem) -> MovePlan {
    let present = Placement::present(problem);
    let mut search = Search { problem, evaluations_left: EVALUATIONS_MAX };
    let mut found = search.candidates(&present);
    let before = present.score();
    let scores: Vec<Score> = found.iter().map(Placement::score).collect();
    let Some(best) = scores.iter().reduce(|a, b| if b.is_better(a) { b } else { a }) else {
        return MovePlan::default();
    };
    let gain = |before: f64, after: f64| before > 0.0 && after < before * (1.0 - GAIN_MIN);
    let is_gain = gain(before.peak(), best.peak()) || gain(before.response, best.response);
    let mut chosen = present.clone();
    if is_gain {
        let limit = Limit {
            peak: best.peak() * (1.0 + PEAK_SLACK),
            response: best.response * (1.0 + RESPONSE_SLACK),
        };
        found.retain(|placement| limit.holds(&placement.score()));
        for placement in &mut found {
            limit.reduce(problem, placement);
        }
        let size = |placement: &Placement<'_>| {
            let (moved, bytes) = placement.moved();
            (moved.len(), bytes)
        };
        chosen = found.into_iter().min_by_key(size).unwrap_or(chosen);
    }
    MovePlan { moves: ordered(&present, &chosen), before: present.uses(), after: chosen.uses() }
}

/// Returns the moves of a placement; each is the one that gains most after those before it.
fn ordered(present: &Placement<'_>, chosen: &Placement<'_>) -> Vec<PlannedMove> {
    let (mut left, mut current) = (chosen.moved().0, present.clone());
    let mut moves = Vec::new();
    while !left.is_empty() {
        let mut score_after = |item: usize| {
            let from = current.place[item];
            current.set(item, chosen.place[item]);
            let score = current.score();
            current.set(item, from);
            score
        };
        // Many moves have no order that matters, and to find it would take long.
        let tried = left.len().min(SWAPPED_MAX);
        let scores: Vec<Score> = left[..tried].iter().map(|&item| score_after(item)).collect();
        let best = (0..tried).reduce(|a, b| if scores[b].is_better(&scores[a]) { b } else { a });
        let item = left.remove(best.unwrap_or(0));
        current.set(item, chosen.place[item]);
        moves.push(PlannedMove { item, place: chosen.place[item] });
    }
    moves
}

struct Search<'a> {
    problem: &'a BalanceProblem,
    evaluations_left: u64,
}

impl<'a> Search<'a> {
    /// Returns the placements that searches from several starts find.
    fn candidates(&mut self, present: &Placement<'a>) -> Vec<Placement<'a>> {
        let spread = self.spread(present);
        let mut found = vec![present.clone()];
        found.extend([present.clone(), spread].map(|start| self.descend(start)));
        let mut best = found[0].clone();
        let mut best_score = best.score();
        for placement in &found[1..] {
            let score = placement.score();
            if score.is_better(&best_score) {
                (best, best_score) = (placement.clone(), score);
            }
        }
        let (mut random, mut last) = (Random::from_seed(SEED), best.clone());
        for round in 0..RESTARTS {
            // Half of the starts are near the best placement, the others near the last one.
            let from = if round % 2 == 0 { &best } else { &last };
            let start =
                self.kicked(from, KICKED_MIN + round % (KICKED_MAX - KICKED_MIN), &mut random);
            last = self.descend(start);
            let score = last.score();
            if score.is_better(&best_score) {
                (best, best_score) = (last.clone(), score);
                found.push(best.clone());
            }
        }
        found
    }

    /// Returns a placement that is built from the items with the most load to those with the least,
    /// each at the best place.
    fn spread(&mut self, present: &Placement<'a>) -> Placement<'a> {
        let mut items: Vec<(f64, usize)> = (0..self.problem.items.len())
            .filter(|&item| self.problem.items[item].is_movable)
            .map(|item| {
                let disks = 0..self.problem.disks.len();
                (disks.map(|disk| present.part(item, disk)).fold(0.0, f64::max), item)
            })
            .collect();
        items.sort_by(by_load);
        let mut placement = present.clone();
        for (_, item) in items {
            self.improve_by(&mut placement, &[item]);
        }
        placement
    }

    /// Returns a placement with some items at random places.
    fn kicked(&self, from: &Placement<'a>, count: u32, random: &mut Random) -> Placement<'a> {
        let mut placement = from.clone();
        let (items, places) = (self.problem.items.len() as u64, self.problem.places.len() as u64);
        if items == 0 || places == 0 {
            return placement;
        }
        let index = |number: u64| usize::try_from(number).unwrap_or(0);
        for _ in 0..count {
            let (item, to) = (index(random.below(items)), index(random.below(places)));
            if placement.can_move(item, to) {
                placement.set(item, to);
            }
        }
        placement
    }

    /// Improves a placement by steps until none helps.
    fn descend(&mut self, mut placement: Placement<'a>) -> Placement<'a> {
        let least = self.evaluations_left.saturating_sub(DESCENT_MAX);
        while self.evaluations_left > least {
            let Some(disk) = placement.busiest() else { break };
            let items = self.items_on(&placement, disk);
            let moved = &items[..items.len().min(MOVED_MAX)];
            if !self.improve_by(&mut placement, moved) && !self.swap(&mut placement, disk, &items) {
                // The busiest disk stays as it is; the others may still improve.
                let all: Vec<usize> = self.heaviest(&placement);
                if !self.improve_by(&mut placement, &all) {
                    break;
                }
            }
        }
        placement
    }

    /// Returns the movable items of a disk, in descending order of their load.
    fn items_on(&self, placement: &Placement<'a>, disk: usize) -> Vec<usize> {
        let items = (0..self.problem.items.len()).filter(|&it| self.problem.items[it].is_movable);
        let parts = items.map(|item| (placement.part(item, disk), item));
        let mut parts: Vec<(f64, usize)> = parts.filter(|(part, _)| *part > 0.0).collect();
        parts.sort_by(by_load);
        parts.into_iter().map(|(_, item)| item).collect()
    }

    /// Returns the first items of each disk.
    fn heaviest(&self, placement: &Placement<'a>) -> Vec<usize> {
        let mut items: Vec<usize> = (0..self.problem.disks.len())
            .flat_map(|disk| {
                let mut items = self.items_on(placement, disk);
                items.truncate(SWAPPED_MAX);
                items
            })
            .collect();
        items.sort_unstable();
        items.dedup();
        items
    }

    /// Makes the best single move of these items; returns false if none improves the placement.
    fn improve_by(&mut self, placement: &mut Placement<'a>, items: &[usize]) -> bool {
        let mut best = (placement.score(), None);
        for &item in items {
            let from = placement.place[item];
            for to in 0..self.problem.places.len() {
                if self.evaluations_left == 0 || !placement.can_move(item, to) {
                    continue;
                }
                placement.set(item, to);
                let score = self.evaluate(placement);
                placement.set(item, from);
                if score.is_better(&best.0) {
                    best = (score, Some((item, to)));
                }
            }
        }
        let Some((item, to)) = best.1 else { return false };
        placement.set(item, to);
        true
    }

    /// Makes the best move of an item of a disk with one of an item that is elsewhere: to the place
    /// of the first, or back to its own.
    fn swap(&mut self, placement: &mut Placement<'a>, disk: usize, items: &[usize]) -> bool {
        let others = self.heaviest(placement);
        let elsewhere: Vec<usize> =
            others.into_iter().filter(|&other| placement.part(other, disk) <= 0.0).collect();
        let mut best = (placement.score(), None);
        for &item in items.iter().take(SWAPPED_MAX) {
            for &other in &elsewhere {
                let home = self.problem.items[other].place;
                for back in [placement.place[item], home] {
                    if let Some(score) = self.try_swap(placement, (item, other), back)
                        && score.is_better(&best.0)
                    {
                        best = (score, Some((item, other, back)));
                    }
                }
            }
        }
        let Some((item, other, back)) = best.1 else { return false };
        let to = placement.place[other];
        placement.set(other, back);
        placement.set(item, to);
        true
    }

    /// Returns the score of a move of `item` to the place of `other`, which moves to `back`; `None`
    /// if one of them cannot move.
    fn try_swap(
        &mut self,
        placement: &mut Placement<'a>,
        (item, other): (usize, usize),
        back: usize,
    ) -> Option<Score> {
        let (from, to) = (placement.place[item], placement.place[other]);
        if self.evaluations_left == 0 || !placement.can_move(other, back) {
            return None;
        }
        placement.set(other, back);
        let score = placement.can_move(item, to).then(|| {
            placement.set(item, to);
            let score = self.evaluate(placement);
            placement.set(item, from);
            score
        });
        placement.set(other, to);
        score
    }

    fn evaluate(&mut self, placement: &Placement<'a>) -> Score {
        self.evaluations_left = self.evaluations_left.saturating_sub(1);
        placement.score()
    }
}

fn by_load(a: &(f64, usize), b: &(f64, usize)) -> Ordering {
    b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then(a.1.cmp(&b.1))
}
