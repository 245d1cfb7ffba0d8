//! Weighted means of the samples of a log. A rate or mean in a log describes the interval before
//! the sample, so it is weighted by that interval, and a ratio or mean per call also by the number
//! of calls: sum of (rate x ratio) over sum of rates. The unweighted mean, which monitors show, is
//! kept as well.
//!
//! Invariant: intervals are positive.

/// An interval longer than this multiple of the median is a gap in the log, for which nothing is
/// known; the sample after the gap counts with the median interval.
const GAP: f64 = 3.0;

/// The interval of each sample, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Intervals {
    pub(super) seconds: Vec<f64>,
    /// Median interval; 1 if there is only one sample.
    pub(super) median: f64,
    pub(super) gaps: u64,
}

impl Intervals {
    /// Computes the intervals of rising times.
    pub(super) fn of(times: &[f64]) -> Intervals {
        let mut lengths: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        lengths.sort_by(f64::total_cmp);
        let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1.0);
        let mut gaps = 0;
        let mut seconds: Vec<f64> = Vec::with_capacity(times.len());
        seconds.extend(times.first().map(|_| median));
        for pair in times.windows(2) {
            let length = pair[1] - pair[0];
            let gap = length > GAP * median;
            gaps += u64::from(gap);
            seconds.push(if gap { median } else { length });
        }
        Intervals { seconds, median, gaps }
    }

    /// Returns the mean over time, or `None` without samples.
    pub(super) fn mean(&self, values: &[Option<f64>]) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (value, seconds) in values.iter().zip(&self.seconds) {
            if let Some(value) = value {
                sum += value * seconds;
                weight += seconds;
            }
        }
        (weight > 0.0).then(|| sum / weight)
    }

    /// Returns the mean per call, or `None` without a call that has a value.
    pub(super) fn per_call(&self, values: &[Option<f64>], rates: &[Option<f64>]) -> Option<f64> {
        let (mut sum, mut calls) = (0.0, 0.0);
        for ((value, rate), seconds) in values.iter().zip(rates).zip(&self.seconds) {
            if let (Some(value), Some(rate)) = (value, rate) {
                sum += value * rate * seconds;
                calls += rate * seconds;
            }
        }
        (calls > 0.0).then(|| sum / calls)
    }

    /// Returns the ratio of the sums of two rates, over all samples that have both.
    pub(super) fn ratio_of_sums(
        &self,
        values: &[Option<f64>],
        divisors: &[Option<f64>],
    ) -> Option<f64> {
        let (mut numerator, mut denominator) = (0.0, 0.0);
        for ((value, divisor), seconds) in values.iter().zip(divisors).zip(&self.seconds) {
            if let (Some(value), Some(divisor)) = (value, divisor) {
                numerator += value * seconds;
                denominator += divisor * seconds;
            }
        }
        (denominator > 0.0).then(|| numerator / denominator)
    }
}

/// Returns the unweighted mean of the samples, as monitors show it.
pub(super) fn unweighted_mean(values: &[Option<f64>]) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values.iter().flatten() {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

/// Returns the smallest and the largest value.
pub(super) fn range(values: &[Option<f64>]) -> Option<(f64, f64)> {
    let mut values = values.iter().flatten().copied();
    let first = values.next()?;
    Some(values.fold((first, first), |(low, high), value| (low.min(value), high.max(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Option<f64>, wanted: f64) {
        let found = found.expect("a value");
        assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn a_ratio_is_weighted_by_its_calls_and_its_interval() {
        let intervals = Intervals::of(&[0.0, 10.0, 20.0, 40.0]);
        assert_eq!(intervals.seconds, [10.0, 10.0, 10.0, 20.0]);
        let rates = [Some(100.0), Some(0.0), None, Some(50.0)];
        let hits = [Some(90.0), Some(0.0), Some(50.0), Some(80.0)];
        near(intervals.per_call(&hits, &rates), (90.0 * 1000.0 + 80.0 * 1000.0) / 2000.0);
        near(unweighted_mean(&hits), 55.0);
        near(intervals.mean(&rates), 2000.0 / 40.0);
        near(intervals.ratio_of_sums(&hits, &rates), (900.0 + 1600.0) / 2000.0);
        assert_eq!(range(&rates), Some((0.0, 100.0)));
    }

    #[test]
    fn gaps_count_as_one_interval() {
        let intervals = Intervals::of(&[0.0, 5.0, 10.0, 1000.0, 1005.0]);
        assert_eq!(intervals.seconds, [5.0; 5]);
        assert_eq!(intervals.gaps, 1);
    }

    #[test]
    fn nothing_and_one_sample_are_no_trouble() {
        for times in [&[][..], &[17.0]] {
            let intervals = Intervals::of(times);
            assert_eq!(intervals.seconds.len(), times.len());
            let none = vec![None; times.len()];
            assert_eq!(intervals.mean(&none), None);
            assert_eq!(intervals.per_call(&none, &none), None);
            assert_eq!(unweighted_mean(&none), None);
            assert_eq!(range(&none), None);
        }
    }
}
