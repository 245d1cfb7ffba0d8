//! The steps of a measurement, and the rates of a model that fits their results.

use super::check::Pattern;
use super::{Device, PatternLimits, PatternResult, run};
use crate::model::{DEPTH_MAX, DeviceRates, Latency, RateLimits};
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::units::as_f64;
use larder_schema::as_u64;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum time of each of the five steps of a direction.
const STEP_TIME: Duration = Duration::from_secs(2);
/// Maximum number of operations of 4 KiB.
const SMALL_OPERATIONS_MAX: u64 = 160_000;
/// Maximum number of operations of 256 KiB.
const LARGE_OPERATIONS_MAX: u64 = 2_048;
/// The queue depths of the small operations.
pub const DEPTHS: [u32; 3] = [1, 8, 32];

pub(super) const SMALL_BYTES: u64 = 4096;
pub(super) const LARGE_BYTES: u64 = 256 << 10;
pub(super) const LARGE_DEPTH: u32 = 32;
/// A rate reaches another one, within what a measurement of seconds can distinguish.
const REACHED: f64 = 0.9;
/// The quantile of 99 % of the normal distribution.
const NORMAL_P99: f64 = 2.326;
/// The slice of the kernel's throttle.
const SLICE: Nanos = 100 * MILLISECOND;

/// The results of the steps of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SideMeasurement {
    /// Random operations of 4 KiB at each of [`DEPTHS`].
    pub small: [PatternResult; DEPTHS.len()],
    /// Operations of 256 KiB in order, at depth 1 and at depth 32.
    pub large: [PatternResult; 2],
}

/// The results of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Reads.
    pub read: SideMeasurement,
    /// Writes, if they were measured.
    pub write: Option<SideMeasurement>,
}

/// Maximum effort of a measurement: the time of a step, and the operations of all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) time: Duration,
    pub(super) small_max: u64,
    pub(super) large_max: u64,
}

impl Effort {
    const MAX: Effort = Effort {
        time: STEP_TIME,
        small_max: SMALL_OPERATIONS_MAX,
        large_max: LARGE_OPERATIONS_MAX,
    };

    /// Returns the steps of a direction: three of small operations, two of large ones.
    fn steps(&self, is_write: bool) -> [(Pattern, PatternLimits); 5] {
        let step = |is_random, len, depth, operations| {
            let pattern = Pattern { is_write, is_random, len, depth };
            (pattern, PatternLimits { time: self.time, operations })
        };
        // The deeper the queue, the more operations a device completes in the same time.
        let small =
            |index: usize, share| step(true, SMALL_BYTES, DEPTHS[index], self.small_max / share);
        let large =
            |depth, quarters| step(false, LARGE_BYTES, depth, self.large_max * quarters / 4);
        [small(0, 8), small(1, 4), small(2, 2), large(1, 1), large(LARGE_DEPTH, 3)]
    }
}

/// Measures reads and, with `writes`, writes, which destroy the content of the device: for each
/// direction at most 140,000 operations of 4 KiB and 2,048 of 256 KiB, in at most ten seconds.
///
/// # Errors
/// See [`run`].
pub fn measure(device: &dyn Device, writes: bool, stop: &AtomicBool) -> io::Result<Measurement> {
    measure_within(device, writes, Effort::MAX, stop)
}

pub(super) fn measure_within(
    device: &dyn Device,
    writes: bool,
    effort: Effort,
    stop: &AtomicBool,
) -> io::Result<Measurement> {
    let side = |is_write| -> io::Result<SideMeasurement> {
        let run_step =
            |(pattern, limits): &(Pattern, PatternLimits)| run(device, pattern, *limits, stop);
        let [one, two, three, alone, deep] = &effort.steps(is_write);
        let small = [run_step(one)?, run_step(two)?, run_step(three)?];
        Ok(SideMeasurement { small, large: [run_step(alone)?, run_step(deep)?] })
    };
    // The blocks of a new file may have no data yet, so writes are first.
    let write = if writes { Some(side(true)?) } else { None };
    Ok(Measurement { read: side(false)?, write })
}

impl Measurement {
    /// Returns the patterns of the steps with their limits and results.
    pub fn steps(&self) -> impl Iterator<Item = (Pattern, PatternLimits, PatternResult)> {
        let sides = [(false, Some(self.read)), (true, self.write)];
        let results = |(is_write, side): (bool, Option<SideMeasurement>)| {
            let steps = Effort::MAX.steps(is_write).into_iter();
            let results = side.into_iter().flat_map(|it| it.small.into_iter().chain(it.large));
            steps.zip(results).map(|((pattern, limits), result)| (pattern, limits, result))
        };
        sides.into_iter().flat_map(results)
    }

    /// Returns the rates of a model with these results. If writes were not measured, the limits of
    /// reads are taken as limits of both directions together.
    #[must_use]
    pub fn fit(&self) -> DeviceRates {
        let read = self.read.fit();
        let write = self.write.map(|it| it.fit());
        let sides = [Some(read), write].into_iter().flatten();
        let mut rates = DeviceRates {
            slice: if sides.clone().any(|it| it.has_slices) { SLICE } else { 0 },
            burst: sides.clone().map(|it| it.burst).max().unwrap_or(0),
            depth: if sides.clone().any(|it| it.is_limited) { DEPTH_MAX } else { DEPTHS[2] },
            ..DeviceRates::fixed(0)
        };
        // One rate is for both directions.
        let transfers = sides.map(|it| it.transfer_bytes_per_s).collect::<Option<Vec<u64>>>();
        rates.transfer_bytes_per_s = transfers.and_then(|it| it.into_iter().min());
        rates.read_latency = read.latency;
        rates.write_latency = write.unwrap_or(read).latency;
        match write {
            Some(write) => (rates.read, rates.write) = (read.limits, write.limits),
            None => rates.total = read.limits,
        }
        rates
    }
}

/// The parts of a model for one direction.
#[derive(Clone, Copy, Debug)]
struct SideFit {
    limits: RateLimits,
    latency: Latency,
    transfer_bytes_per_s: Option<u64>,
    has_slices: bool,
    /// Time whose tokens an idle device collects.
    burst: Nanos,
    /// True if the rates are below what the latency allows at the largest depth.
    is_limited: bool,
}

impl SideMeasurement {
    fn fit(&self) -> SideFit {
        let per_s = self.small.map(|it| it.operations_per_s);
        let ([alone, .., deep], median) = (per_s, self.small[0].p50);
        let plateau = per_s.into_iter().fold(0.0, f64::max);
        // If the rate of a single operation is that of all depths, operations wait for a limit, and
        // most of them do not wait long: a throttle serves them in slices.
        let waits = alone >= REACHED * plateau;
        let mean = as_f64(SECOND) / alone;
        let time = if waits { as_f64(median) } else { mean };
        // Most operations take far less than the mean: they wait for a slice, and then all are
        // served.
        let has_slices = waits && 2.0 * time < mean;
        let is_limited = plateau < REACHED * f64::from(DEPTHS[2]) * as_f64(SECOND) / time;
        let [large_alone, large] = self.large;
        let large_is_limited = large.operations_per_s < REACHED * deep;
        let bytes_per_s = large.operations_per_s * as_f64(LARGE_BYTES);
        // Small operations at the same bytes per second have no other limit.
        let is_by_bytes = large_is_limited && plateau * as_f64(SMALL_BYTES) > REACHED * bytes_per_s;
        let bytes_per_s = large_is_limited.then(|| rounded(bytes_per_s, 1 << 20).max(1));
        // Without slices, an operation waits for the tokens of its own bytes.
        let own = bytes_per_s.filter(|_| !has_slices);
        let own = own.map_or(0.0, time_of_small);
        let transfer_bytes_per_s = self.transfer(large_is_limited);
        let own = own + transfer_bytes_per_s.map_or(0.0, time_of_small);
        let mean = rounded((time - own).max(0.0), 1_000);
        let median = rounded((as_f64(median) - own).max(0.0), 1_000).min(mean);
        let latency = if waits { median } else { mean.min(self.tail_mean(median)) };
        // With a burst, the tokens of an operation have often arrived before it; otherwise it waits
        // for them after its latency.
        let own_of_large = own * as_f64(LARGE_BYTES / SMALL_BYTES);
        let (with, without) = (as_f64(latency).max(own_of_large), as_f64(latency) + own_of_large);
        let has_burst = as_f64(large_alone.p50) < f64::midpoint(with, without);
        let operations_per_s = (is_limited && !is_by_bytes).then(|| rounded(plateau, 1).max(1));
        SideFit {
            limits: RateLimits { operations_per_s, bytes_per_s },
            latency: Latency::new(latency, median).unwrap_or(Latency::constant(latency)),
            transfer_bytes_per_s,
            has_slices,
            burst: if has_burst { as_u64(own_of_large) } else { 0 },
            is_limited,
        }
    }

    /// Returns the rate at which the device transfers, if large operations take longer than small
    /// ones and no rate explains that.
    fn transfer(&self, large_is_limited: bool) -> Option<u64> {
        let [alone, deep] = self.large;
        let longer = as_f64(alone.p50) - as_f64(self.small[0].p50);
        let bytes_per_s = as_f64(LARGE_BYTES - SMALL_BYTES) * as_f64(SECOND) / longer.max(1.0);
        // A device that transfers several operations at a time is faster with more depth.
        let is_reached = deep.operations_per_s * as_f64(LARGE_BYTES) <= bytes_per_s / REACHED;
        let has_transfer = !large_is_limited && is_reached && longer > 0.0;
        has_transfer.then(|| rounded(bytes_per_s, 1 << 20).max(1))
    }

    /// Returns the mean of the times with this median and the measured ratio of p99 to the median.
    /// A few operations that take very long raise the measured mean, but not this one.
    fn tail_mean(&self, median: Nanos) -> Nanos {
        let PatternResult { p50, p99, .. } = self.small[0];
        let deviation = (as_f64(p99) / as_f64(p50.max(1))).max(1.0).ln() / NORMAL_P99;
        as_u64(as_f64(median) * (deviation * deviation / 2.0).exp())
    }
}

/// Returns the nanoseconds in which a rate transfers a small operation.
fn time_of_small(bytes_per_s: u64) -> f64 {
    as_f64(SMALL_BYTES * SECOND) / as_f64(bytes_per_s)
}

/// Rounds to a multiple of `step`, or to a whole number if that is less than ten of them.
fn rounded(value: f64, step: u64) -> u64 {
    let steps = value / as_f64(step);
    if steps >= 10.0 { as_u64(steps.round()) * step } else { as_u64(value.round()) }
}
