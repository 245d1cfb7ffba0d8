//! Statistics over samples: what repeated measurements say, and how sure that is.
//!
//! Medians lead, since the time of a benchmark has a long tail on one side. Invariants: a sample
//! that is empty or holds a value that is not finite has no summary, rather than a wrong one.
//! Results carry the unit of the sample; ratios have none.

pub mod ratio_estimate;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The confidence that intervals aim at.
pub const CONFIDENCE: f64 = 0.95;
/// Resamples of a bootstrap: enough that the ends of a 95 % interval are steady to about 1 % of
/// its width.
const RESAMPLES: usize = 2_000;

/// A sample in nine numbers, in the unit of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); 0 for a single value.
    pub stdev: f64,
    /// Smallest.
    pub min: f64,
    /// A quarter of the values lie below.
    pub lower_quartile: f64,
    /// Half of the values lie below.
    pub median: f64,
    /// A quarter of the values lie above.
    pub upper_quartile: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// The summary of `values`; nothing if there are none or one is not finite.
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

/// The median of `values`; nothing if there are none or one is not finite.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    sorted(values).map(|sorted| quantile(&sorted, 0.5))
}

/// A range that holds the true median with a stated confidence, in the unit of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The chance that the method covers the true median, 0 to 1.
    pub confidence: f64,
}

/// The interval for the median that the signs give: exact for any distribution, without chance.
/// Below six values no such interval reaches 95 %; then it is the whole range with the confidence
/// that it has (five values: 93.75 %).
#[must_use]
pub fn sign_interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values)?;
    let count = sorted.len();
    // The chance that fewer than `cut + 1` of `count` values lie on one side of the median.
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
    // A thousand values underflow to a term of 0, and then the loop above ends in the middle; the
    // normal approximation is good long before that.
    if count > 500 {
        let half_width = 1.96 * as_f64(count).sqrt() / 2.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let place = (as_f64(count) / 2.0 - half_width).floor() as usize;
        let (low, high) = (sorted[place], sorted[count - 1 - place]);
        return Some(Interval { low, high, confidence: CONFIDENCE });
    }
    let (low, high) = (sorted[cut], sorted[count - 1 - cut]);
    Some(Interval { low, high, confidence: (1.0 - 2.0 * tail).max(0.0) })
}

/// The 95 % interval for the median by bootstrap (percentiles of 2,000 resamples), the same for
/// the same `seed`. With few values it is narrower than it should be; prefer [`sign_interval`].
#[must_use]
pub fn bootstrap_interval(values: &[f64], seed: u64) -> Option<Interval> {
    let sorted_values = sorted(values)?;
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = sorted_values.len();
    let mut resample = vec![0.0; count];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for value in &mut resample {
            let place = (u128::from(generator.next_u64()) * (count as u128)) >> 64;
            *value = sorted_values[usize::try_from(place).expect("below the count")];
        }
        medians.push(median(&resample).expect("finite values"));
    }
    medians.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let (low, high) = (quantile(&medians, tail), quantile(&medians, 1.0 - tail));
    Some(Interval { low, high, confidence: CONFIDENCE })
}

/// Ratios of samples taken in pairs: run `i` of ours right beside run `i` of theirs, so that what
/// the machine does meanwhile falls on both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// The ratios, summarised; no unit.
    pub summary: Summary,
    /// Where the true median ratio lies.
    pub interval: Interval,
}

impl PairedRatio {
    /// `ours[i] / theirs[i]` for every pair. Nothing if there are no pairs, the lengths differ, or
    /// a ratio is not finite.
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

/// The true ratio over several intervals: each `(weight, ratio)` counts by its weight, as in
/// sum(requests * hit ratio) / sum(requests). The mean of the ratios would be a mean of means.
/// Nothing if the weights sum to nothing.
#[must_use]
pub fn weighted_ratio(parts: &[(f64, f64)]) -> Option<f64> {
    let weights: f64 = parts.iter().map(|(weight, _)| weight).sum();
    // An interval without requests has no ratio of its own; whatever stands there does not count.
    let counted = parts.iter().filter(|(weight, _)| *weight != 0.0);
    let sum: f64 = counted.map(|(weight, ratio)| weight * ratio).sum();
    (weights > 0.0 && sum.is_finite()).then(|| sum / weights)
}

/// `hits / references`; nothing without references. No unit.
#[must_use]
pub fn hit_ratio(hits: u64, references: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 53 bits")]
    let ratio = hits as f64 / references as f64;
    (references > 0).then_some(ratio)
}

/// The values in order; nothing if there are none or one is not finite.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// The value below which `part` of the sorted values lie, interpolated between neighbours (type 7
/// of Hyndman and Fan, as R and `NumPy` do).
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = as_f64(sorted.len() - 1) * part;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
