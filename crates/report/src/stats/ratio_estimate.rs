//! Ratio between two samples: the Hodges-Lehmann shift of their logarithms, with the confidence
//! interval of the Mann-Whitney-Wilcoxon test.
//!
//! The method assumes no distribution, so long tails and single outliers of benchmarks do little
//! harm. The estimate is the median of all ratios of a value of one sample to a value of the other;
//! the bounds of the interval are the ratios at the ranks that the exact distribution of the rank
//! sum determines (J. L. Hodges, E. L. Lehmann, "Estimates of location based on rank tests", Ann.
//! Math. Statist. 34, 1963). Ratios have no unit.
//!
//! The ratios are never stored: `m` and `n` values have `m * n` of them. A ratio of a given rank is
//! selected from the two sorted samples (D. B. Johnson, T. Mizoguchi, "Selecting the Kth element in
//! X + Y", SIAM J. Comput. 7, 1978), here by bisection over floating-point numbers, which takes
//! linear memory and at most 64 passes, and returns exactly the value that sorting would.

use super::{CONFIDENCE, as_f64, sorted};

/// Maximum number of values in both samples for the exact distribution; the normal approximation
/// for more values is accurate to three digits.
const EXACT_MAX: usize = 100;

/// A ratio between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// The second sample over the first; 1 means no difference.
    pub ratio: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
    /// Probability that the method covers the true ratio, 0 to 1; below [`CONFIDENCE`] if there are
    /// too few values (three each: 90 %).
    pub confidence: f64,
}

impl Shift {
    /// Estimates the ratio of `second` to `first`. Returns `None` if one is empty, or a value is
    /// not positive or not finite.
    #[must_use]
    pub fn between(first: &[f64], second: &[f64]) -> Option<Shift> {
        let is_positive =
            |values: &[f64]| values.iter().all(|value| value.is_finite() && *value > 0.0);
        if first.is_empty() || second.is_empty() || !is_positive(first) || !is_positive(second) {
            return None;
        }
        let logs = |values: &[f64]| sorted(&values.iter().map(|it| it.ln()).collect::<Vec<_>>());
        let ratios = Ratios { first: logs(first)?, second: logs(second)? };
        let (cut, confidence) = cut(first.len(), second.len());
        let last = first.len() * second.len() - 1;
        let middle = f64::midpoint(ratios.at(last / 2), ratios.at(last.div_ceil(2)));
        Some(Shift {
            ratio: middle.exp(),
            low: ratios.at(cut).exp(),
            high: ratios.at(last - cut).exp(),
            confidence,
        })
    }
}

/// The logarithms of all ratios of a value of the second sample to a value of the first.
struct Ratios {
    /// Logarithms of the first sample, ascending.
    first: Vec<f64>,
    /// Logarithms of the second sample, ascending.
    second: Vec<f64>,
}

impl Ratios {
    /// Returns the ratio with this rank in ascending order, counting from 0.
    fn at(&self, rank: usize) -> f64 {
        let mut low = order(self.second[0] - self.first[self.first.len() - 1]);
        let mut high = order(self.second[self.second.len() - 1] - self.first[0]);
        while low < high {
            // Rounds down, also for negative numbers.
            let middle = (low & high) + ((low ^ high) >> 1);
            if self.count_up_to(of_order(middle)) > rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        of_order(low)
    }

    /// Returns the number of ratios that are at most `limit`. Subtraction rounds monotonically, so
    /// one pass over the first sample is enough.
    fn count_up_to(&self, limit: f64) -> usize {
        let (mut from, mut count) = (0, 0);
        for second in &self.second {
            while self.first.get(from).is_some_and(|first| second - first > limit) {
                from += 1;
            }
            count += self.first.len() - from;
        }
        count
    }
}

/// Maps floating-point numbers to integers with the same order.
fn order(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63) & i64::MAX)
}

/// Returns the number at this position of the order.
fn of_order(rank: i64) -> f64 {
    f64::from_bits((rank ^ ((rank >> 63) & i64::MAX)).cast_unsigned())
}

/// Returns the number of ordered ratios to cut off at each end, and the confidence of the remaining
/// interval.
fn cut(first: usize, second: usize) -> (usize, f64) {
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let pairs = first * second;
    if first + second > EXACT_MAX {
        let deviation = (as_f64(pairs) * as_f64(first + second + 1) / 12.0).sqrt();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        let rank = (as_f64(pairs) / 2.0 - 1.96 * deviation).floor().max(0.0) as usize;
        return (rank, CONFIDENCE);
    }
    // The interval between rank k on both sides misses the true ratio if the statistic is at most k
    // on one side.
    let chances = rank_chances(first, second);
    let mut below = chances[0];
    let mut rank = 0;
    while rank + 1 < pairs / 2 && below + chances[rank + 1] <= tail {
        rank += 1;
        below += chances[rank];
    }
    (rank, (1.0 - 2.0 * below).max(0.0))
}

/// Returns the probability of each value of the Mann-Whitney statistic, from 0 to `first * second`,
/// if both samples come from the same distribution.
fn rank_chances(first: usize, second: usize) -> Vec<f64> {
    // `subsets[taken][sum]` is the number of subsets of `taken` ranks with this sum above the
    // minimum; the loop adds one rank at a time.
    let top = first * second;
    let mut subsets = vec![vec![0.0; top + 1]; first + 1];
    subsets[0][0] = 1.0;
    for rank in 1..=first + second {
        for taken in (1..=first.min(rank)).rev() {
            // As the `taken`-th rank of a subset, rank r adds r - taken to the statistic.
            let adds = rank - taken;
            for sum in (adds..=top).rev() {
                let more = subsets[taken - 1][sum - adds];
                subsets[taken][sum] += more;
            }
        }
    }
    let all: f64 = subsets[first].iter().sum();
    subsets[first].iter().map(|subsets| subsets / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_of_ranks_is_that_of_the_tables() {
        // All 20 subsets of three and three: 1 1 2 3 3 3 3 2 1 1.
        let counts: Vec<f64> = rank_chances(3, 3).iter().map(|chance| chance * 20.0).collect();
        let expected = [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0, 1.0];
        assert!(counts.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{counts:?}");
        // Two-sided 5 % limits of the tables of Mann and Whitney: 2 for 5 and 5, 23 for 10 and 10,
        // 127 for 20 and 20.
        for (count, limit) in [(5, 2), (10, 23), (20, 127)] {
            let (rank, confidence) = cut(count, count);
            assert_eq!(rank, limit, "{count} and {count}");
            assert!((CONFIDENCE..0.98).contains(&confidence), "{confidence}");
        }
        assert_eq!(cut(3, 3).0, 0);
        assert!((cut(3, 3).1 - 0.9).abs() < 1e-9 && cut(1, 1).1.abs() < 1e-9);
        assert!((cut(4, 4).1 - (1.0 - 2.0 / 70.0)).abs() < 1e-9);
    }

    #[test]
    fn many_values_agree_with_few() {
        let (exact, near) = (cut(50, 50), cut(51, 50));
        assert!(near.0.abs_diff(exact.0) <= 25, "{near:?} and {exact:?} of 2,500 places");
    }

    #[test]
    fn a_factor_is_found_whatever_the_outliers() {
        let first = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];
        let mut second: Vec<f64> = first.iter().map(|value| value * 1.1).collect();
        let shift = Shift::between(&first, &second).unwrap();
        assert!((shift.ratio - 1.1).abs() < 0.005 && shift.low > 1.08 && shift.high < 1.12);
        assert!(shift.confidence >= CONFIDENCE);
        second[3] *= 50.0;
        let shift = Shift::between(&first, &second).unwrap();
        assert!((shift.ratio - 1.1).abs() < 0.01 && shift.low > 1.08, "{shift:?}");
        let back = Shift::between(&second, &first).unwrap();
        assert!((back.ratio * shift.ratio - 1.0).abs() < 1e-9, "the other way round it is 1/ratio");
    }

    /// Computes the estimator by its definition, from all ratios; quadratic in memory.
    fn by_definition(first: &[f64], second: &[f64]) -> Shift {
        let logs = |of: &[f64]| of.iter().map(|value| value.ln()).collect::<Vec<f64>>();
        let (first, second) = (logs(first), logs(second));
        let mut ratios: Vec<f64> =
            second.iter().flat_map(|y| first.iter().map(move |x| y - x)).collect();
        ratios.sort_by(f64::total_cmp);
        let (cut, confidence) = cut(first.len(), second.len());
        Shift {
            ratio: super::super::middle(&ratios).exp(),
            low: ratios[cut].exp(),
            high: ratios[ratios.len() - 1 - cut].exp(),
            confidence,
        }
    }

    #[test]
    fn the_shift_is_the_one_of_all_ratios() {
        use rand_xoshiro::Xoshiro256PlusPlus;
        use rand_xoshiro::rand_core::{Rng, SeedableRng};
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut below = |end: u64| u32::try_from(random.next_u64() % end).unwrap();
        for round in 0..larder_testing::budget(50, 400) {
            // Every second round has few distinct values, so that many ratios are equal.
            let kinds = if round % 2 == 0 { 4 } else { 1 << 20 };
            let mut sample = || -> Vec<f64> {
                let count = 1 + below(60);
                (0..count).map(|_| f64::from(1 + below(kinds)) * 1e-3).collect()
            };
            let (first, second) = (sample(), sample());
            assert_eq!(Shift::between(&first, &second), Some(by_definition(&first, &second)));
        }
        let ends = [f64::MIN_POSITIVE, 1.0, f64::MAX];
        assert_eq!(Shift::between(&ends, &ends), Some(by_definition(&ends, &ends)));
    }

    #[test]
    fn many_values_are_compared_without_all_their_ratios() {
        let first: Vec<f64> = (0..30_000).map(|at| 1.0 + f64::from(at % 1_000) * 1e-6).collect();
        let second: Vec<f64> = first.iter().rev().map(|value| value * 1.25).collect();
        let shift = Shift::between(&first, &second).unwrap();
        assert!((shift.ratio - 1.25).abs() < 1e-9, "{shift:?}");
        assert!(1.2499 < shift.low && shift.high < 1.2501, "{shift:?}");
    }

    #[test]
    fn what_has_no_ratio_has_none() {
        assert_eq!(Shift::between(&[], &[1.0]), None);
        assert_eq!(Shift::between(&[1.0], &[0.0]), None);
        assert_eq!(Shift::between(&[1.0, f64::NAN], &[1.0]), None);
        let same = Shift::between(&[7.0; 6], &[7.0; 6]).unwrap();
        assert!((same.ratio - 1.0).abs() < 1e-12 && (same.high - same.low).abs() < 1e-12);
    }
}
