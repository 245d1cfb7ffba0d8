//! A latency histogram with a bounded relative error and no allocation: 8 buckets per power of two
//! (an error of at most 1/16 of the value at the bucket's middle) up to 2^40 ns (18 minutes), and
//! exact values below 8 ns.

use crate::clock::Nanos;
use crate::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 3;
const SUB: usize = 1 << SUB_BITS;
const POWERS: usize = 40;
const BUCKETS: usize = (POWERS - SUB_BITS as usize + 1) * SUB;

fn bucket(value: u64) -> usize {
    let value = value.min((1 << POWERS) - 1);
    if value < SUB as u64 {
        return usize::try_from(value).expect("below 8");
    }
    let shift = value.ilog2() - SUB_BITS;
    let within = usize::try_from((value >> shift) & (SUB as u64 - 1)).expect("below 8");
    (shift as usize + 1) * SUB + within
}

/// Returns the middle of a bucket.
fn value(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    let low = (SUB + bucket % SUB) as u64;
    (low << shift) + ((1u64 << shift) >> 1)
}

/// A histogram with one writer and any number of readers.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Records a duration; only the thread that owns the recorder may call this.
    pub fn record(&self, duration: Nanos) {
        let cell = &self.counts[bucket(duration)];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let sum = self.sum.load(Ordering::Relaxed);
        self.sum.store(sum.wrapping_add(duration), Ordering::Relaxed);
        if duration > self.max.load(Ordering::Relaxed) {
            self.max.store(duration, Ordering::Relaxed);
        }
    }

    /// Adds the counts to a snapshot.
    pub fn add_to(&self, snapshot: &mut HistogramSnapshot) {
        for (sum, cell) in snapshot.counts.iter_mut().zip(self.counts.iter()) {
            *sum += cell.load(Ordering::Relaxed);
        }
        snapshot.sum += self.sum.load(Ordering::Relaxed);
        snapshot.max = snapshot.max.max(self.max.load(Ordering::Relaxed));
    }
}

/// The counts of a histogram at one point in time.
#[derive(Clone, Debug)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        HistogramSnapshot { counts: vec![0; BUCKETS], sum: 0, max: 0 }
    }
}

impl HistogramSnapshot {
    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of durations shorter than `1 << power` nanoseconds; exact, as buckets end
    /// there. Durations of 2^40 ns and more count as just below that.
    #[must_use]
    pub fn below(&self, power: u32) -> u64 {
        let end = match power {
            0..=SUB_BITS => 1 << power,
            _ => (power - SUB_BITS + 1) as usize * SUB,
        };
        self.counts.iter().take(end).sum()
    }

    /// Returns the sum of all durations, in nanoseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the longest duration, in nanoseconds; exact.
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// Returns the mean duration, in nanoseconds.
    #[must_use]
    pub fn mean(&self) -> Option<Nanos> {
        self.sum.checked_div(self.count())
    }

    /// Returns the duration that the share `q` (0 to 1) of the durations does not exceed.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank between 1 and count"
        )]
        let rank = ((count as f64 * q).ceil() as u64).clamp(1, count);
        if rank == count {
            return Some(self.max);
        }
        let mut seen = 0;
        for (bucket, &n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Some(value(bucket).min(self.max));
            }
        }
        Some(self.max)
    }

    /// Returns the buckets that are not empty, shortest durations first: the middle of the bucket
    /// in nanoseconds, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (value(bucket), *count))
    }

    /// Adds another snapshot.
    pub fn add(&mut self, other: &HistogramSnapshot) {
        for (sum, n) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n;
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let histogram = Histogram::default();
        for i in 1..=100_000u64 {
            histogram.record(i * 37);
        }
        let mut snapshot = HistogramSnapshot::default();
        histogram.add_to(&mut snapshot);
        for percent in [1u64, 50, 90, 99] {
            let exact = percent * 1000 * 37;
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let got = snapshot.quantile(percent as f64 / 100.0).unwrap();
            assert!(got.abs_diff(exact) * 16 <= exact, "{percent} %: {got} for {exact}");
        }
        assert_eq!(snapshot.max(), 3_700_000);
        assert_eq!(snapshot.count(), 100_000);
    }

    #[test]
    fn every_quantile_of_one_duration_is_exact() {
        let histogram = Histogram::default();
        histogram.record(1_234_567);
        let mut snapshot = HistogramSnapshot::default();
        histogram.add_to(&mut snapshot);
        assert_eq!([0.5, 0.99].map(|q| snapshot.quantile(q)), [Some(1_234_567); 2]);
    }

    #[test]
    fn buckets_are_in_order_and_hold_everything() {
        let histogram = Histogram::default();
        for value in [5, 5, 1_000_000, 7] {
            histogram.record(value);
        }
        let mut snapshot = HistogramSnapshot::default();
        assert_eq!(snapshot.buckets().count(), 0);
        histogram.add_to(&mut snapshot);
        let buckets: Vec<_> = snapshot.buckets().collect();
        assert_eq!(buckets[..2], [(5, 2), (7, 1)]);
        assert_eq!((buckets.len(), buckets[2].1), (3, 1));
        assert!(buckets[2].0.abs_diff(1_000_000) * 16 <= 1_000_000, "{buckets:?}");
    }

    #[test]
    fn counts_below_a_power_of_two_are_exact() {
        let histogram = Histogram::default();
        let values = [1, 2, 3, 7, 8, 9, 1023, 1024, 1025, 1 << 39, 1 << 45];
        for value in values {
            histogram.record(value);
        }
        let mut snapshot = HistogramSnapshot::default();
        histogram.add_to(&mut snapshot);
        for power in 0..40 {
            let below = values.iter().filter(|&&value| value < 1 << power).count() as u64;
            assert_eq!(snapshot.below(power), below, "below 2^{power}");
        }
        assert_eq!(snapshot.below(40), snapshot.count());
        assert_eq!(snapshot.sum(), values.iter().sum());
    }

    #[test]
    fn every_value_lands_in_a_bucket_near_it() {
        for shift in 0..63 {
            for value_in in [1u64 << shift, (1 << shift) + 1, (1 << shift) * 2 - 1] {
                let clamped = value_in.min((1 << POWERS) - 1);
                let middle = value(bucket(value_in));
                assert!(middle.abs_diff(clamped) * 8 <= clamped, "{value_in} -> {middle}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(value(bucket(0)), 0);
    }
}
