//! The second-half rule, and the response times that count by it.
//!
//! The measured part of a trial is from the first cycle that begins after half of the trial, to its
//! end: the first half warms the cache. If no cycle is measured until then, because cycles take
//! long or the machine stalled, the trial continues until one is. The summary states what it
//! counts. Times are nanoseconds.

use larder_core::clock::Nanos;

/// A trial and the response times of its measured half.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    begins_at: Nanos,
    measures_from: Nanos,
    ends_at: Nanos,
    /// Time at which the first measured cycle began.
    measured_from: Option<Nanos>,
    measured_to: Nanos,
    statistics: RunningStatistics,
    unmeasured: u64,
}

/// Mean and deviation, updated with one value at a time (Welford's method).
#[derive(Clone, Copy, Debug, Default)]
struct RunningStatistics {
    count: u64,
    mean: f64,
    squares: f64,
    min: Nanos,
    max: Nanos,
}

/// Response times of a trial, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseTimes {
    /// Cycles measured.
    pub count: u64,
    /// Cycles that began in the first half or ended after the trial, except one that was waited
    /// for.
    pub unmeasured: u64,
    /// Mean, nanoseconds.
    pub mean_ns: f64,
    /// Standard deviation of the sample, nanoseconds; 0 for a single cycle.
    pub sdev_ns: f64,
    /// Shortest, nanoseconds.
    pub min_ns: Nanos,
    /// Longest, nanoseconds.
    pub max_ns: Nanos,
    /// Nanoseconds from the begin of the first measured cycle to the end of the last.
    pub measured_ns: Nanos,
    /// Nanoseconds that the trial continued, because no cycle was measured before its end.
    pub prolonged_ns: Nanos,
}

impl Trial {
    /// Returns a trial of `length` nanoseconds that begins at `begins_at`.
    #[must_use]
    pub fn new(begins_at: Nanos, length: Nanos) -> Self {
        Trial {
            begins_at,
            measures_from: begins_at + length / 2,
            ends_at: begins_at + length,
            measured_from: None,
            measured_to: 0,
            statistics: RunningStatistics::default(),
            unmeasured: 0,
        }
    }

    /// Returns the time at which it began.
    #[must_use]
    pub fn begins_at(&self) -> Nanos {
        self.begins_at
    }

    /// Returns true if the trial is over: no cycle begins at `now`.
    #[must_use]
    pub fn is_over(&self, now: Nanos) -> bool {
        now >= self.ends_at && self.measured_from.is_some()
    }

    /// Returns true if a cycle that begins at `now` is measured.
    #[must_use]
    pub fn measures(&self, now: Nanos) -> bool {
        now >= self.measures_from && !self.is_over(now)
    }

    /// Adds a cycle that ran from `begun_at` to `finished_at` and had a response time of `response`
    /// nanoseconds (from which the caller subtracts its own overhead and, if required, the think
    /// time). Cycles that began in the first half or ended after the trial are counted, not
    /// measured; one is measured in any case. Returns true if this cycle is measured.
    pub fn record(&mut self, begun_at: Nanos, finished_at: Nanos, response: Nanos) -> bool {
        assert!(finished_at >= begun_at, "a cycle ends after it begins");
        let is_late = finished_at > self.ends_at && self.measured_from.is_some();
        if !self.measures(begun_at) || is_late {
            self.unmeasured += 1;
            return false;
        }
        let first = self.measured_from.map_or(begun_at, |from| from.min(begun_at));
        self.measured_from = Some(first);
        self.measured_to = self.measured_to.max(finished_at);
        self.statistics.add(response);
        true
    }

    /// Returns the response times, or `None` if no cycle was measured.
    #[must_use]
    pub fn response_times(&self) -> Option<ResponseTimes> {
        let from = self.measured_from?;
        Some(ResponseTimes {
            count: self.statistics.count,
            unmeasured: self.unmeasured,
            mean_ns: self.statistics.mean,
            sdev_ns: self.statistics.sdev(),
            min_ns: self.statistics.min,
            max_ns: self.statistics.max,
            measured_ns: self.measured_to - from,
            prolonged_ns: self.measured_to.saturating_sub(self.ends_at),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and times stay below 2^53")]
impl RunningStatistics {
    fn add(&mut self, value: Nanos) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        let value = value as f64;
        let deviation = value - self.mean;
        self.mean += deviation / self.count as f64;
        self.squares += deviation * (value - self.mean);
    }

    fn sdev(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cycles_that_begin_in_the_second_half_are_measured() {
        let mut trial = Trial::new(1_000, 300);
        assert!(!trial.measures(1_149) && trial.measures(1_150));
        trial.record(1_000, 1_100, 100);
        // This cycle ends in the second half but began in the first.
        trial.record(1_149, 1_160, 11);
        trial.record(1_160, 1_200, 40);
        trial.record(1_200, 1_260, 60);
        // This cycle ends after the trial.
        trial.record(1_290, 1_310, 20);
        let times = trial.response_times().unwrap();
        assert_eq!((times.count, times.unmeasured), (2, 3));
        assert_eq!((times.min_ns, times.max_ns, times.measured_ns), (40, 60, 100));
        assert_eq!(times.prolonged_ns, 0);
        assert!((times.mean_ns - 50.0).abs() < 1e-9);
        assert!((times.sdev_ns - 200_f64.sqrt()).abs() < 1e-9, "{}", times.sdev_ns);
        assert!(trial.is_over(1_300) && !trial.is_over(1_299) && !trial.measures(1_300));
    }

    #[test]
    fn a_trial_that_measured_nothing_goes_on_until_one_cycle_is() {
        let mut trial = Trial::new(0, 100);
        assert_eq!(trial.response_times(), None);
        trial.record(0, 120, 120);
        assert_eq!(trial.response_times(), None);
        assert!(!trial.is_over(120) && trial.measures(120));
        trial.record(120, 250, 130);
        assert!(trial.is_over(250) && !trial.measures(250));
        trial.record(250, 260, 10);
        let times = trial.response_times().unwrap();
        assert_eq!((times.count, times.unmeasured, times.max_ns), (1, 2, 130));
        assert_eq!((times.measured_ns, times.prolonged_ns), (130, 150));
    }
}
