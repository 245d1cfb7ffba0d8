//! Reproducible random numbers: a generator whose stream never changes between releases, and the
//! distributions of the workloads.
//!
//! Invariant: the same seed gives the same numbers on every machine; only additions and
//! multiplications of doubles are used, and IEEE 754 fixes their results. A number has the unit of
//! the drawn quantity.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Uniform numbers summed for one normal number. Fourteen is the number of the Response Probe;
/// their sum has a standard deviation of sqrt(14 / 12) = 1.08, so the numbers are 8 % wider than
/// specified.
const UNIFORMS: u32 = 14;

/// Bytes between two marks: the block sizes of storage deduplication are multiples of it.
pub const MARK_EVERY: usize = 512;

/// Makes every 512 bytes different from those with other marks: the first 512 bytes get the mark
/// `first`, the next 512 bytes get the next number, and so on. Returns the first unused mark.
pub fn mark(bytes: &mut [u8], first: u64) -> u64 {
    let mut next = first;
    for sector in bytes.chunks_mut(MARK_EVERY) {
        let mark = mark_bytes(next);
        let len = sector.len().min(mark.len());
        sector[..len].copy_from_slice(&mark[..len]);
        next += 1;
    }
    next
}

/// Returns the bytes of a mark: an odd factor keeps different numbers different, and spreads them
/// over all bits.
#[must_use]
pub fn mark_bytes(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// A random number generator with a seed.
#[derive(Clone, Debug)]
pub struct Random {
    generator: Xoshiro256PlusPlus,
}

impl Random {
    /// Creates the generator of the stream of `seed`.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Random { generator: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.bits().to_le_bytes()[..part.len()]);
        }
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        // A double holds 53 bits exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
        let high = (self.bits() >> 11) as f64;
        high / 9_007_199_254_740_992.0
    }

    /// Returns a whole number from 0 up to, but not including, `end`; `end` is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "a range that holds a number");
        // The high half of the product is uniform except for a bias of end / 2^64, far below the
        // resolution of a run.
        let product = u128::from(self.bits()) * u128::from(end);
        u64::try_from(product >> 64).expect("the high half of 128 bits")
    }

    /// Returns a normal number as the Response Probe computes it: `mean + ((sum of 14 uniform
    /// numbers) - 7) * sdev`.
    pub fn normal(&mut self, spread: Spread) -> f64 {
        let sum: f64 = (0..UNIFORMS).map(|_| self.unit()).sum();
        spread.mean + (sum - 7.0) * spread.sdev
    }

    /// Returns a normal number as a whole number, folded into `0..=max`; see [`fold`].
    pub fn normal_within(&mut self, spread: Spread, max: u64) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is folded next")]
        let value = self.normal(spread) as i64;
        fold(value, max)
    }
}

/// A mean and a standard deviation, in the unit of the drawn quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Mean of the drawn numbers, before folding.
    pub mean: f64,
    /// Standard deviation as specified; the drawn numbers are 8 % wider.
    pub sdev: f64,
}

impl Spread {
    /// A distribution that always yields `value`.
    #[must_use]
    pub fn exactly(value: f64) -> Self {
        Spread { mean: value, sdev: 0.0 }
    }
}

/// Folds `value` into `0..=max` as the Response Probe does: a negative value becomes its absolute
/// value, one above `max` is mirrored at `max`, both repeatedly if necessary (205 of 100 gives 5).
#[must_use]
pub fn fold(value: i64, max: u64) -> u64 {
    if max == 0 {
        return 0;
    }
    // Mirroring at both ends repeats every 2 * max, so the loop is a remainder.
    let period = u128::from(max) * 2;
    let rest = u128::from(value.unsigned_abs()) % period;
    let folded = if rest > u128::from(max) { period - rest } else { rest };
    u64::try_from(folded).expect("at most max")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_mirrors_at_both_ends_as_often_as_it_takes() {
        for (value, max, folded) in [
            (205, 100, 5),
            (-7, 100, 7),
            (130, 100, 70),
            (-130, 100, 70),
            (100, 100, 100),
            (9, 0, 0),
        ] {
            assert_eq!(fold(value, max), folded, "{value} into 0..={max}");
        }
        assert!(fold(i64::MIN, 1_000) <= 1_000);
    }

    #[test]
    fn one_seed_gives_one_stream() {
        let draw = |seed| {
            let mut random = Random::from_seed(seed);
            (0..8).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn normal_numbers_are_eight_percent_wider_than_asked() {
        let mut random = Random::from_seed(1);
        let spread = Spread { mean: 1_000.0, sdev: 100.0 };
        let drawn: Vec<f64> = (0..20_000).map(|_| random.normal(spread)).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!((mean - 1_000.0).abs() < 3.0, "mean {mean}");
        assert!((variance.sqrt() - 108.0).abs() < 3.0, "sdev {}", variance.sqrt());
    }
}
