//! Bins of stack distances: so many to an octave, so that each is as wide as it is far.
//!
//! `BITS` is how many bits of the fraction tell bins apart: an octave has 2^`BITS` of them. The
//! smallest distance that is told apart is a half, since a distance is put in the middle between
//! two whole numbers.

use super::estimate::as_f64;

const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// How many bins distances below 2^`octaves` need.
pub(super) const fn count<const BITS: u32>(octaves: usize) -> usize {
    (octaves + 1) << BITS
}

/// The bin of a distance, of so many: the exponent and the first bits of the fraction.
#[inline]
pub(super) fn bin<const BITS: u32>(distance: f64, bins: usize) -> usize {
    let shifted = (distance.max(0.5) * 2.0).to_bits() >> (FRACTION_BITS - BITS);
    let lowest = 1.0_f64.to_bits() >> (FRACTION_BITS - BITS);
    usize::try_from(shifted - lowest).map_or(bins - 1, |bin| bin.min(bins - 1))
}

/// The smallest distance of a bin.
pub(super) fn edge<const BITS: u32>(bin: usize) -> f64 {
    let lowest = 1.0_f64.to_bits() >> (FRACTION_BITS - BITS);
    f64::from_bits((bin as u64 + lowest) << (FRACTION_BITS - BITS)) / 2.0
}

/// The part of a size's own bin that misses with it, if distances lie evenly in the bin.
pub(super) fn missing_part<const BITS: u32>(bin: usize, pages: u64) -> f64 {
    let (low, high) = (edge::<BITS>(bin), edge::<BITS>(bin + 1));
    ((high - as_f64(pages)) / (high - low)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINS: usize = count::<6>(40);

    #[test]
    fn bins_are_at_most_a_sixty_fourth_wide_and_meet() {
        for place in 0..BINS - 1 {
            let (low, high) = (edge::<6>(place), edge::<6>(place + 1));
            assert!((high - low) / low <= 1.0 / 64.0 + 1e-12);
            assert_eq!(bin::<6>(low, BINS), place);
            assert_eq!(bin::<6>(f64::midpoint(low, high), BINS), place);
        }
        assert_eq!((bin::<6>(0.1, BINS), bin::<6>(1e300, BINS)), (0, BINS - 1));
    }

    #[test]
    fn a_size_misses_the_part_of_its_bin_that_lies_behind_it() {
        let place = bin::<4>(100.0, count::<4>(30));
        let (low, high) = (edge::<4>(place), edge::<4>(place + 1));
        let part = missing_part::<4>(place, 100);
        assert!((part - (high - 100.0) / (high - low)).abs() < 1e-12);
        assert!((missing_part::<4>(0, 10)).abs() < 1e-12);
    }
}
