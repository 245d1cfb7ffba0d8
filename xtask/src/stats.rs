//! Medians, spreads, and alternating trials.

use std::fmt;

use anyhow::Result;

/// Returns the middle value, or the mean of the two in the middle; NaN if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
    }
}

/// Returns the mean and the maximum.
pub(crate) fn mean_and_max(values: &[f64]) -> (f64, f64) {
    let count = to_f64(values.len().max(1) as u64);
    (values.iter().sum::<f64>() / count, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// Median, minimum and maximum. Displayed with the precision of the format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let fold = |first, least: fn(f64, f64) -> f64| values.iter().copied().fold(first, least);
        let (min, max) = (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max));
        Self { median: median(values), min, max }
    }

    /// Returns the spread of the ratios of trials of the same round.
    pub(crate) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        Self::of(&ours.iter().zip(theirs).map(|(a, b)| a / b).collect::<Vec<_>>())
    }

    /// Formats a spread of ratios.
    pub(crate) fn times(&self) -> String {
        format!("{:.2} times ({:.2} to {:.2})", self.median, self.min, self.max)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = out.precision().unwrap_or(2);
        let Self { median, min, max } = self;
        if out.sign_plus() {
            write!(out, "{median:+.digits$} ({min:+.digits$} to {max:+.digits$})")
        } else {
            write!(out, "{median:.digits$} ({min:.digits$} to {max:.digits$})")
        }
    }
}

/// An interval that contains the median of a population with a probability of at least 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Returns the interval between two order statistics of a sample, which holds for every
    /// distribution: the median lies below the k-th value with the probability that fewer than k of
    /// n fair coins show heads. Of fewer than six values it is unbounded.
    pub(crate) fn of_median(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = to_f64(sorted.len() as u64);
        let (mut coins, mut below, mut rank) = (0.5_f64.powf(count), 0.0, 0);
        // `below` is the probability of at most `rank` heads.
        loop {
            below += coins;
            if below > 0.025 || rank >= sorted.len() {
                break;
            }
            let heads = to_f64(rank as u64);
            coins *= (count - heads) / (heads + 1.0);
            rank += 1;
        }
        match rank.checked_sub(1) {
            Some(index) => Self { low: sorted[index], high: sorted[sorted.len() - 1 - index] },
            None => Self { low: f64::NEG_INFINITY, high: f64::INFINITY },
        }
    }
}

/// Runs a trial of each of `count` participants in each round; the order rotates from round to
/// round.
pub(crate) fn run_alternating(
    rounds: usize,
    count: usize,
    mut trial: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    (0..rounds)
        .try_for_each(|round| (0..count).try_for_each(|index| trial((round + index) % count)))
}

/// Converts a count to a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "counts here stay far below 2^53")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_ratios_is_that_of_the_rounds() {
        let spread = Spread::of_ratios(&[150.0, 130.0, 140.0], &[100.0, 100.0, 100.0]);
        assert_eq!(spread, Spread { median: 1.4, min: 1.3, max: 1.5 });
        assert_eq!(format!("{spread:.1}"), "1.4 (1.3 to 1.5)");
        assert_eq!(format!("{spread:+.1}"), "+1.4 (+1.3 to +1.5)");
        assert!((median(&[1.0, 4.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn the_interval_of_a_median_has_the_ranks_of_the_tables() {
        let ranks = |count: u32| {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let Interval { low, high } = Interval::of_median(&values);
            (low, high)
        };
        assert_eq!(ranks(5), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(ranks(6), (1.0, 6.0));
        assert_eq!(ranks(20), (6.0, 15.0));
        assert_eq!(ranks(40), (14.0, 27.0));
    }

    #[test]
    fn the_order_rotates_from_round_to_round() {
        let mut order = Vec::new();
        run_alternating(2, 3, |index| {
            order.push(index);
            Ok(())
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 1, 2, 0]);
    }
}
