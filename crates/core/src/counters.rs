//! Counters and latency histograms: one catalogue, and one recorder per thread.
//!
//! A recorder has a single writer, so counting is a load and a store without a locked instruction
//! or a shared cache line. A reader adds up all recorders.

mod catalogue;
mod class;
mod histogram;
mod interface;

pub use catalogue::{
    COUNTERS, Counter, GAUGES, Gauge, HISTOGRAMS, Latency, MetricDefinition, Unit,
};
pub use class::{Class, Classes};
pub use histogram::{Histogram, HistogramSnapshot};
pub use interface::Interface;

use crate::clock::Nanos;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The counters and histograms of one thread, on separate cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct Recorder {
    counters: [AtomicU64; COUNTERS.len()],
    histograms: [Histogram; HISTOGRAMS.len()],
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            histograms: std::array::from_fn(|_| Histogram::default()),
        }
    }
}

impl Recorder {
    /// Adds `n`; only the thread that owns the recorder may call this.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        let cell = &self.counters[counter as usize];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Records a duration; only the thread that owns the recorder may call this.
    #[inline]
    pub fn record(&self, latency: Latency, duration: Nanos) {
        self.histograms[latency as usize].record(duration);
    }

    /// Adds the values of this recorder to `total`.
    pub fn add_to(&self, total: &mut Totals) {
        for (sum, cell) in total.counters.iter_mut().zip(&self.counters) {
            *sum += cell.load(Ordering::Relaxed);
        }
        // The fast path updates only one counter: each of its reads hits one page.
        let fast = self.counters[Counter::FastReads as usize].load(Ordering::Relaxed);
        total.counters[Counter::ReadHit as usize] += fast;
        for (sum, histogram) in total.histograms.iter_mut().zip(&self.histograms) {
            histogram.add_to(sum);
        }
    }
}

/// Sums of counters and histograms over recorders.
#[derive(Clone, Debug)]
pub struct Totals {
    counters: [u64; COUNTERS.len()],
    histograms: [HistogramSnapshot; HISTOGRAMS.len()],
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            counters: [0; COUNTERS.len()],
            histograms: std::array::from_fn(|_| HistogramSnapshot::default()),
        }
    }
}

impl Totals {
    /// Returns the value of a counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Returns a histogram.
    #[must_use]
    pub fn latency(&self, latency: Latency) -> &HistogramSnapshot {
        &self.histograms[latency as usize]
    }

    /// Adds other totals to these.
    pub fn add(&mut self, other: &Totals) {
        for (sum, n) in self.counters.iter_mut().zip(&other.counters) {
            *sum += n;
        }
        for (sum, histogram) in self.histograms.iter_mut().zip(&other.histograms) {
            sum.add(histogram);
        }
    }

    /// Returns the counts since `earlier`; the histograms are those of `self`.
    #[must_use]
    pub fn since(&self, earlier: &Totals) -> Totals {
        let mut difference = self.clone();
        for (n, before) in difference.counters.iter_mut().zip(&earlier.counters) {
            *n -= before;
        }
        difference
    }

    /// Returns the number of pages that reads referenced.
    #[must_use]
    pub fn read_pages(&self) -> u64 {
        let classes = [
            Counter::ReadHit,
            Counter::ReadAheadHit,
            Counter::ReadAheadWait,
            Counter::ReadPartialHit,
            Counter::ReadMiss,
            Counter::ReadBypass,
        ];
        classes.iter().map(|&class| self.get(class)).sum()
    }

    /// Returns the number of pages that reads referenced and that were served without waiting for
    /// the store, read-ahead hits included.
    #[must_use]
    pub fn read_hits(&self) -> u64 {
        self.get(Counter::ReadHit) + self.get(Counter::ReadAheadHit)
    }

    /// Returns the number of pages that writes referenced.
    #[must_use]
    pub fn write_pages(&self) -> u64 {
        [
            Counter::WriteAbsorbed,
            Counter::WriteNewDirty,
            Counter::WritePartial,
            Counter::WriteThrough,
            Counter::WriteBypass,
        ]
        .iter()
        .map(|&c| self.get(c))
        .sum()
    }

    /// Returns the share of referenced pages that were served without waiting for the store,
    /// read-ahead hits included, weighted by reference; `None` if there were no reads.
    #[must_use]
    pub fn read_hit_ratio(&self) -> Option<f64> {
        let pages = self.read_pages();
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        (pages > 0).then(|| self.read_hits() as f64 / pages as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(counts: &[(Counter, u64)]) -> Totals {
        let recorder = Recorder::default();
        for &(counter, n) in counts {
            recorder.add(counter, n);
        }
        let mut totals = Totals::default();
        recorder.add_to(&mut totals);
        totals
    }

    #[test]
    fn the_hit_ratio_is_the_share_of_read_pages_that_did_not_wait_for_the_store() {
        assert_eq!(totals(&[(Counter::WriteAbsorbed, 3)]).read_hit_ratio(), None, "no reads");
        let reads = totals(&[
            (Counter::ReadHit, 4),
            (Counter::ReadAheadHit, 3),
            (Counter::FastReads, 2),
            (Counter::ReadAheadWait, 5),
            (Counter::ReadPartialHit, 6),
            (Counter::ReadMiss, 7),
            (Counter::ReadBypass, 9),
        ]);
        assert_eq!((reads.read_hits(), reads.read_pages()), (9, 36));
        assert_eq!(reads.read_hit_ratio(), Some(0.25));
    }

    #[test]
    fn the_pages_of_writes_are_those_of_all_write_classes() {
        let writes = totals(&[
            (Counter::WriteAbsorbed, 1),
            (Counter::WriteNewDirty, 20),
            (Counter::WritePartial, 300),
            (Counter::WriteThrough, 4000),
            (Counter::WriteBypass, 50000),
            (Counter::ReadHit, 7),
        ]);
        assert_eq!(writes.write_pages(), 54321);
    }

    #[test]
    fn totals_can_be_added_and_subtracted() {
        let earlier = totals(&[(Counter::ReadMiss, 5)]);
        let mut later = totals(&[(Counter::ReadMiss, 3), (Counter::ReadHit, 2)]);
        later.add(&earlier);
        assert_eq!(later.get(Counter::ReadMiss), 8);
        let between = later.since(&earlier);
        assert_eq!((between.get(Counter::ReadMiss), between.get(Counter::ReadHit)), (3, 2));
    }
}
