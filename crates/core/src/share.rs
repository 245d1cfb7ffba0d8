//! Division of memory among volumes by marginal gain: each unit goes to the claim that gains the
//! most hits from it.
//!
//! Stone, Turek, Wolf, "Optimal partitioning of cache memory", IEEE Transactions on Computers
//! 41(9), 1992: if every curve is concave, the greedy division is optimal. For curves with cliffs
//! it is not, since greedy stops in front of a cliff. Each curve is therefore replaced by its
//! concave hull, so that a cliff is one step that is taken completely or not at all (Beckmann,
//! Sanchez, "Talus: a simple way to remove cliffs in cache performance", HPCA '15, makes a cache
//! behave like its hull; this cache does not). The rest of the memory is assigned by the curves.
//!
//! Amounts of memory may have any unit, the same for all claims; so may gains.

use crate::units::as_f64;

/// The claim of one volume to memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Amounts of memory in rising order, each with its gain: hits, or hits per second. A gain
    /// below that of a smaller amount is raised to it.
    pub points: Vec<(u64, f64)>,
    /// Minimum amount.
    pub floor: u64,
    /// Maximum amount.
    pub ceiling: u64,
}

/// A segment of a hull.
#[derive(Clone, Copy, Debug)]
struct Step {
    claim: usize,
    amount: u64,
    /// Gain per unit.
    slope: f64,
}

/// Returns the amount of each claim, out of `budget`. Floors are met first, in order, as far as the
/// budget lasts. Memory from which no claim gains is not assigned.
#[must_use]
pub fn divide(claims: &[Claim], budget: u64) -> Vec<u64> {
    let mut left = budget;
    let mut given: Vec<u64> = claims
        .iter()
        .map(|claim| {
            let floor = claim.floor.min(left);
            left -= floor;
            floor
        })
        .collect();
    let mut steps: Vec<Step> = Vec::new();
    for (number, claim) in claims.iter().enumerate() {
        let hull = hull(&claim.points, claim.floor, claim.ceiling);
        steps.extend(hull.windows(2).map(|pair| {
            let amount = pair[1].0 - pair[0].0;
            Step { claim: number, amount, slope: (pair[1].1 - pair[0].1) / as_f64(amount) }
        }));
    }
    // The slopes of one hull decrease, and the sort is stable, so its steps stay in order.
    steps.sort_by(|a, b| b.slope.total_cmp(&a.slope));
    for step in steps.iter().filter(|step| step.slope > 0.0) {
        if step.amount > left {
            divide_remainder(claims, left, step.claim, &mut given);
            break;
        }
        given[step.claim] += step.amount;
        left -= step.amount;
    }
    given
}

/// Assigns a remainder that is too small for the next step of the hulls, that of the claim `next`:
/// each time to the claim that really gains the most from it. For concave curves this is `next`.
fn divide_remainder(claims: &[Claim], mut left: u64, next: usize, given: &mut [u64]) {
    let room = |claim: &Claim, given: u64, left: u64| {
        let largest = claim.points.last().map_or(0, |&(at, _)| at);
        left.min(claim.ceiling.min(largest).saturating_sub(given))
    };
    let order = || std::iter::once(next).chain((0..claims.len()).filter(|&it| it != next));
    while left > 0 {
        let mut best = (0.0, None);
        for claim in order() {
            let (Claim { points, .. }, now) = (&claims[claim], given[claim]);
            let amount = room(&claims[claim], now, left);
            let gained = gain(points, now + amount) - gain(points, now);
            if gained > best.0 {
                best = (gained, Some((claim, amount)));
            }
        }
        let Some((claim, amount)) = best.1 else { break };
        given[claim] += amount;
        left -= amount;
    }
}

/// Returns the gain of a claim from an amount, interpolated linearly between its points and the
/// origin.
#[must_use]
pub fn gain(points: &[(u64, f64)], amount: u64) -> f64 {
    let behind = points.partition_point(|&(at, _)| at < amount);
    let before = behind.checked_sub(1).map_or((0, 0.0), |at| points[at]);
    let Some(&after) = points.get(behind) else { return before.1 };
    if after.0 == before.0 {
        return after.1;
    }
    let part = as_f64(amount - before.0) / as_f64(after.0 - before.0);
    before.1 + (after.1 - before.1) * part
}

/// Returns the corners of the concave hull of the curve, from the floor to its highest point below
/// the ceiling.
fn hull(points: &[(u64, f64)], floor: u64, ceiling: u64) -> Vec<(u64, f64)> {
    let slope = |from: (u64, f64), to: (u64, f64)| (to.1 - from.1) / as_f64(to.0 - from.0);
    let mut corners: Vec<(u64, f64)> = vec![(floor, gain(points, floor))];
    let inside = points.iter().copied().filter(|&(at, _)| floor < at && at < ceiling);
    let end = (ceiling > floor).then(|| (ceiling, gain(points, ceiling)));
    let last = points.last().map_or(0, |&(at, _)| at);
    let end = end.filter(|&(at, _)| at <= last);
    let mut highest = corners[0].1;
    for (at, gained) in inside.chain(end) {
        highest = highest.max(gained);
        let next = (at, highest);
        while let [.., before, last] = corners[..]
            && slope(before, last) <= slope(last, next)
        {
            corners.pop();
        }
        corners.push(next);
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::testing::Random;

    fn claim(points: &[(u64, f64)]) -> Claim {
        Claim { points: points.to_vec(), floor: 0, ceiling: u64::MAX }
    }

    /// Returns the highest gain of any division that respects floors and ceilings.
    fn best(claims: &[Claim], units: u64) -> f64 {
        let Some((first, rest)) = claims.split_first() else { return 0.0 };
        let (low, high) = (first.floor, units.min(first.ceiling));
        let gains = (low..=high).map(|n| gain(&first.points, n) + best(rest, units - n));
        gains.fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn a_cliff_that_does_not_fit_leaves_the_memory_to_others() {
        let cliff = claim(&[(99, 0.0), (100, 1000.0)]);
        let line = claim(&[(50, 50.0)]);
        assert_eq!(divide(&[cliff.clone(), line.clone()], 60), [0, 50]);
        assert_eq!(divide(&[cliff, line], 120), [100, 20]);
    }

    #[test]
    fn no_division_of_concave_curves_is_better() {
        for seed in 0..200 {
            let mut random = Random::from_seed(seed);
            let claims: Vec<Claim> = (0..3)
                .map(|_| {
                    let mut gains: Vec<u64> = (0..8).map(|_| random.below(100)).collect();
                    gains.sort_unstable_by(|a, b| b.cmp(a));
                    let weight = as_f64(1 + random.below(1000));
                    let mut sum = 0;
                    let points = gains.iter().zip(1_u64..).map(|(gain, at)| {
                        sum += gain;
                        (at, as_f64(sum) * weight)
                    });
                    let points = points.collect();
                    let floor = random.below(3);
                    Claim { points, floor, ceiling: floor + random.below(8) }
                })
                .collect();
            let budget = 6 + random.below(19);
            let given = divide(&claims, budget);
            assert!(given.iter().sum::<u64>() <= budget);
            for (claim, given) in claims.iter().zip(&given) {
                assert!(claim.floor <= *given && *given <= claim.ceiling, "seed {seed}: {given}");
            }
            let made: f64 = claims.iter().zip(&given).map(|(c, n)| gain(&c.points, *n)).sum();
            let most = best(&claims, budget);
            assert!(made >= most * (1.0 - 1e-9), "seed {seed}: {made} of {most}");
        }
    }

    #[test]
    fn a_cliff_is_taken_as_a_whole() {
        let smooth = claim(&[(10, 10.0), (20, 20.0), (30, 30.0)]);
        let cliff = claim(&[(19, 0.0), (20, 90.0)]);
        assert_eq!(divide(&[smooth, cliff], 25), [5, 20]);
    }

    #[test]
    fn memory_that_nobody_gains_from_is_not_given_out() {
        assert_eq!(divide(&[claim(&[(10, 5.0), (20, 5.0)]), claim(&[])], 1000), [10, 0]);
    }

    #[test]
    fn a_floor_above_the_budget_takes_what_there_is() {
        let greedy = Claim { floor: 100, ceiling: 200, ..claim(&[(300, 1.0)]) };
        assert_eq!(divide(&[greedy.clone(), greedy], 150), [100, 50]);
    }

    #[test]
    fn a_curve_that_falls_is_raised_to_what_less_memory_gains() {
        assert_eq!(divide(&[claim(&[(10, 9.0), (20, 1.0), (30, 9.5)])], 15), [10]);
        assert_eq!(divide(&[claim(&[(10, 9.0), (20, 1.0), (30, 9.5)])], 30), [30]);
        assert_eq!(divide(&[claim(&[(10, 9.0), (20, 1.0)])], 15), [10]);
    }
}
