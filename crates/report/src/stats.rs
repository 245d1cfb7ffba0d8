//! Statistics of samples: summaries of repeated measurements, and their confidence.
//!
//! Medians are preferred, since benchmark times have a long tail on one side. Invariants: a sample
//! that is empty or contains a value that is not finite has no summary. Results have the unit of
//! the sample; ratios have none.

pub mod ratio_estimate;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Target confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Number of bootstrap resamples: enough to fix the bounds of a 95 % interval to about 1 % of its
/// width.
const RESAMPLES: usize = 2_000;

/// Summary statistics of a sample, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); 0 for a single value.
    pub stdev: f64,
    /// Minimum.
    pub min: f64,
    /// First quartile.
    pub lower_quartile: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub upper_quartile: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Returns the summary of `values`, or `None` if they are empty or one is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values)?;
        let count = as_f64(sorted.len());
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = if sorted.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
        Some(Summary {
            count: sorted.len(),
            mean,
            stdev,
            min: sorted[0],
            lower_quartile: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper_quartile: quantile(&sorted, 0.75),
            max: sorted[sorted.len() - 1],
        })
    }
}

/// Returns the median of `values`, or `None` if they are empty or one is not finite.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    sorted(values).map(|sorted| quantile(&sorted, 0.5))
}

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
/// deterministic. With fewer than six values no such interval reaches 95 %; the result is then the
/// whole range with its actual confidence (five values: 93.75 %).
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

/// Returns the 95 % bootstrap interval for the median (percentiles of 2,000 resamples), which
/// depends only on `values` and `seed`. With few values it is too narrow; prefer [`sign_interval`].
#[must_use]
pub fn bootstrap_interval(values: &[f64], seed: u64) -> Option<Interval> {
    let sorted_values = sorted(values)?;
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = sorted_values.len();
    let mut resample = vec![0.0; count];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for value in &mut resample {
            let index = (u128::from(generator.next_u64()) * (count as u128)) >> 64;
            *value = sorted_values[usize::try_from(index).expect("below the count")];
        }
        medians.push(median(&resample).expect("finite values"));
    }
    medians.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let (low, high) = (quantile(&medians, tail), quantile(&medians, 1.0 - tail));
    Some(Interval { low, high, confidence: CONFIDENCE })
}

/// Ratios of samples taken in pairs: value `i` of Larder directly before or after value `i` of the
/// alternative, so that disturbances of the machine affect both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// Summary of the ratios; no unit.
    pub summary: Summary,
    /// Confidence interval of the median ratio.
    pub interval: Interval,
}

impl PairedRatio {
    /// Computes `ours[i] / theirs[i]` for every pair. Returns `None` if there are no pairs, the
    /// lengths differ, or a ratio is not finite.
    #[must_use]
    pub fn of(ours: &[f64], theirs: &[f64]) -> Option<PairedRatio> {
        if ours.len() != theirs.len() {
            return None;
        }
        let ratios: Vec<f64> =
            ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Some(PairedRatio { summary: Summary::of(&ratios)?, interval: sign_interval(&ratios)? })
    }
}

/// Returns the ratio over several intervals: each `(weight, ratio)` counts by its weight, as in
/// sum(requests * hit ratio) / sum(requests). The mean of the ratios would be a mean of means.
/// Returns `None` if the sum of the weights is 0.
#[must_use]
pub fn weighted_ratio(parts: &[(f64, f64)]) -> Option<f64> {
    let weights: f64 = parts.iter().map(|(weight, _)| weight).sum();
    // An interval without requests has no ratio; its value is ignored.
    let counted = parts.iter().filter(|(weight, _)| *weight != 0.0);
    let sum: f64 = counted.map(|(weight, ratio)| weight * ratio).sum();
    (weights > 0.0 && sum.is_finite()).then(|| sum / weights)
}

/// Returns `hits / references`, or `None` without references. No unit.
#[must_use]
pub fn hit_ratio(hits: u64, references: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 53 bits")]
    let ratio = hits as f64 / references as f64;
    (references > 0).then_some(ratio)
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

/// Returns the quantile `fraction` of the sorted values, interpolated between neighbours (type 7 of
/// Hyndman and Fan, as in R and `NumPy`).
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let index = as_f64(sorted.len() - 1) * fraction;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let below = index.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (index - index.floor())
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
