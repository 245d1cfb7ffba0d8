//! An estimated hit ratio with its error bar.

use crate::units::as_f64;

/// The confidence level of the error bars.
pub const CONFIDENCE: f64 = 0.95;
/// Rounding error of a hit ratio, which is computed in several ways.
const ROUNDING: f64 = 1e-9;

/// A hit ratio estimated from a sample of the pages, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub hit_ratio: f64,
    /// Lower end of the bar that holds the true value in 95 of 100 samples.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// Returns an exact hit ratio.
    #[must_use]
    pub fn exact(hit_ratio: f64) -> Estimate {
        Estimate { hit_ratio, low: hit_ratio, high: hit_ratio }
    }

    /// Returns an estimate with a bar of `half` on both sides, clamped to 0 to 1.
    pub(super) fn around(hit_ratio: f64, half: f64) -> Estimate {
        Estimate::between(hit_ratio, half, half)
    }

    /// Returns an estimate with a bar of `below` and `above` it, clamped to 0 to 1.
    pub(super) fn between(hit_ratio: f64, below: f64, above: f64) -> Estimate {
        let within = |ratio: f64| ratio.clamp(0.0, 1.0);
        Estimate {
            hit_ratio: within(hit_ratio),
            low: within(hit_ratio - below),
            high: within(hit_ratio + above),
        }
    }

    /// Returns true if the bar contains `ratio`, except for a rounding error.
    #[must_use]
    pub fn holds(&self, ratio: f64) -> bool {
        self.low - ROUNDING <= ratio && ratio <= self.high + ROUNDING
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / as_f64(values.len() as u64)
}

/// Returns the sum of the squared deviations from the mean.
pub(super) fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Returns the slope of the least-squares line through the points, 0 if all have the same `x`, and
/// the residual sum of squares.
pub(super) fn regression(x: &[f64], y: &[f64]) -> (f64, f64) {
    let (mean_x, mean_y) = (mean(x), mean(y));
    let mixed: f64 = x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let spread = squares(x);
    let slope = if spread > 0.0 { mixed / spread } else { 0.0 };
    (slope, (squares(y) - slope * mixed).max(0.0))
}

/// Returns the probability that a hash is below `threshold`, i.e. its share of 2^64.
pub(super) fn rate(threshold: u64) -> f64 {
    as_f64(threshold) / as_f64(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_with_its_slope_and_what_is_off_it() {
        let (slope, rest) = regression(&[1.0, 2.0, 3.0], &[5.0, 7.0, 9.0]);
        assert!((slope - 2.0).abs() < 1e-12 && rest < 1e-12);
        let (slope, rest) = regression(&[1.0, 1.0], &[4.0, 6.0]);
        assert!(slope.abs() < 1e-12 && (rest - 2.0).abs() < 1e-12);
    }

    #[test]
    fn bars_end_where_ratios_end() {
        let made = Estimate::around(0.99, 0.05);
        assert!(made.holds(1.0) && made.holds(0.94) && !made.holds(0.9));
    }
}
