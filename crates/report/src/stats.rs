//! Statistics of samples: summaries of repeated measurements, and their confidence.
//!
//! Medians are preferred, since benchmark times have a long tail on one side. Invariants: a sample
//! that is empty or contains a value that is not finite has no summary. Results have the unit of
//! the sample.

pub mod ratio_estimate;

/// Target confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Summary statistics of a sample, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Returns the summary of `values`, or `None` if they are empty or one is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values)?;
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Some(Summary { min, median: middle(&sorted), max })
    }
}

/// Returns the median of `values`, or `None` if they are empty or one is not finite.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    sorted(values).map(|sorted| middle(&sorted))
}

/// Minimum number of values with which a [`confidence_interval`] exists.
pub const INTERVAL_VALUES_MIN: u64 = 6;

/// Minimum number of values of each of two samples with which their ratio has a 95 % interval. With
/// this number, the interval excludes 1 only if all values of one sample are beyond those of the
/// other.
pub const RATIO_VALUES_MIN: u64 = 4;

/// A confidence interval for the median, in the unit of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Probability that the method covers the true median, 0 to 1.
    pub confidence: f64,
}

/// Returns the confidence interval of the sign test for the median: exact for any distribution, and
/// deterministic. With fewer than [`INTERVAL_VALUES_MIN`] values no such interval reaches 95 %; the
/// result is then the whole range with its actual confidence (five values: 93.75 %).
#[must_use]
pub fn sign_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values)?;
    let count = sorted.len();
    // Probability that fewer than `cut + 1` of `count` values lie on one side of the median.
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut tail = term;
    let mut cut = 0;
    loop {
        term *= as_f64(count - cut) / as_f64(cut + 1);
        if 1.0 - 2.0 * (tail + term) < CONFIDENCE || 2 * (cut + 1) + 1 >= count {
            break;
        }
        tail += term;
        cut += 1;
    }
    // With about a thousand values `term` underflows to 0, and the loop above ends in the middle;
    // the normal approximation is accurate for far smaller samples.
    if count > 500 {
        let half_width = 1.96 * as_f64(count).sqrt() / 2.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (as_f64(count) / 2.0 - half_width).floor() as usize;
        let (low, high) = (sorted[index], sorted[count - 1 - index]);
        return Some(Interval { low, high, confidence: CONFIDENCE });
    }
    let (low, high) = (sorted[cut], sorted[count - 1 - cut]);
    Some(Interval { low, high, confidence: (1.0 - 2.0 * tail).max(0.0) })
}

/// Returns the [`sign_interval`] if it reaches the target confidence.
#[must_use]
pub fn confidence_interval(values: &[f64]) -> Option<Interval> {
    sign_interval(values).filter(|interval| interval.confidence >= CONFIDENCE)
}

/// Returns the values in order, or `None` if there are none or one is not finite.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// Returns the median of the sorted values.
fn middle(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    low + (high - low) * 0.5
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
