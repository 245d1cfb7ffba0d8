//! Bins of stack distances: a fixed number per octave, so that the width of a bin is proportional
//! to its distance.
//!
//! `BITS` is the number of bits of the fraction that select a bin: an octave has 2^`BITS` bins. The
//! smallest distance with a bin of its own is a half, since a distance lies in the middle between
//! two integers.

use crate::units::as_f64;

const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// Returns the number of bins for distances below 2^`octaves`.
pub(super) const fn count<const BITS: u32>(octaves: usize) -> usize {
    (octaves + 1) << BITS
}

/// Returns the bin of a distance, out of `bins`: the exponent and the first bits of the fraction.
#[inline]
pub(super) fn bin<const BITS: u32>(distance: f64, bins: usize) -> usize {
    let shifted = (distance.max(0.5) * 2.0).to_bits() >> (FRACTION_BITS - BITS);
    let lowest = 1.0_f64.to_bits() >> (FRACTION_BITS - BITS);
    usize::try_from(shifted - lowest).map_or(bins - 1, |bin| bin.min(bins - 1))
}

/// Returns the smallest distance of a bin.
pub(super) fn edge<const BITS: u32>(bin: usize) -> f64 {
    let lowest = 1.0_f64.to_bits() >> (FRACTION_BITS - BITS);
    f64::from_bits((bin as u64 + lowest) << (FRACTION_BITS - BITS)) / 2.0
}

/// Returns the share of `bin`, the bin of the size `pages`, that misses at this size, if distances
/// are evenly distributed within the bin.
pub(super) fn missing_share<const BITS: u32>(bin: usize, pages: u64) -> f64 {
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
        let part = missing_share::<4>(place, 100);
        assert!((part - (high - 100.0) / (high - low)).abs() < 1e-12);
        assert!((missing_share::<4>(0, 10)).abs() < 1e-12);
    }
}
