//! Measurement of a device or file, and the rates of a model that fits it.
//!
//! The measurement only reads. It keeps 1, 8 and 32 random reads of 4 KiB in flight, each in a
//! thread of its own, and then 32 sequential reads of 256 KiB, which few devices split. Each step
//! ends after [`STEP_TIME`] or its maximum number of reads, whichever is first; then it waits for
//! the reads in flight. The file must be opened for direct I/O, or the page cache is measured.
//!
//! The rate of a step is the slope of a line through its completions, without the first eighth of
//! the time: a throttle grants a burst at the beginning, and then serves in slices of 100 ms.

use super::{DEPTH_MAX, DeviceRates, RateLimits};
use crate::random::Random;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::units::as_f64;
use larder_schema::as_u64;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum time of each of the four steps.
pub const STEP_TIME: Duration = Duration::from_millis(2_300);
/// Maximum number of reads of 4 KiB.
pub const SMALL_READS_MAX: u64 = 160_000;
/// Maximum number of reads of 256 KiB.
pub const LARGE_READS_MAX: u64 = 2_048;
/// Minimum length of a file that is measured.
pub const BYTES_MIN: u64 = 16 << 20;
/// The queue depths of the small reads.
pub const DEPTHS: [u32; 3] = [1, 8, 32];

const SMALL_BYTES: u64 = 4096;
const LARGE_BYTES: u64 = 256 << 10;
const LARGE_DEPTH: u32 = 32;
/// Alignment of direct I/O that every device accepts.
const ALIGNMENT: usize = 4096;
/// A rate reaches another one, within what a measurement of seconds can distinguish.
const REACHED: f64 = 0.9;
/// The slice of the kernel's throttle.
const SLICE: Nanos = 100 * MILLISECOND;

/// The results of the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Reads of 4 KiB per second at each of [`DEPTHS`].
    pub reads_per_s: [f64; DEPTHS.len()],
    /// Median time of a read at depth 1, nanoseconds.
    pub median: Nanos,
    /// Reads of 256 KiB per second.
    pub large_reads_per_s: f64,
}

/// Measures a file of `bytes` bytes that is open for direct I/O.
///
/// # Errors
/// A read fails, or the file is shorter than [`BYTES_MIN`].
pub fn measure(file: &File, bytes: u64) -> io::Result<Measurement> {
    measure_within(file, bytes, STEP_TIME, SMALL_READS_MAX, LARGE_READS_MAX)
}

fn measure_within(
    file: &File,
    bytes: u64,
    time: Duration,
    small_max: u64,
    large_max: u64,
) -> io::Result<Measurement> {
    if bytes < BYTES_MIN {
        let reason = format!("it has {bytes} bytes; the minimum is {} MiB", BYTES_MIN >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    // The deeper the queue, the more reads a device completes in the same time.
    let shares = [8, 4, 2].map(|share| small_max / share);
    let (mut reads_per_s, mut median) = ([0.0; DEPTHS.len()], 0);
    for (index, depth) in DEPTHS.into_iter().enumerate() {
        let step = Step { depth, len: SMALL_BYTES, reads_max: shares[index], time };
        let mut reads = step.run(file, bytes)?;
        reads_per_s[index] = rate(&mut reads);
        if depth == 1 {
            let mut times: Vec<Nanos> = reads.iter().map(|read| read.end - read.begin).collect();
            times.sort_unstable();
            median = times[times.len() / 2];
        }
    }
    let step = Step { depth: LARGE_DEPTH, len: LARGE_BYTES, reads_max: large_max, time };
    let large_reads_per_s = rate(&mut step.run(file, bytes)?);
    Ok(Measurement { reads_per_s, median, large_reads_per_s })
}

/// Times of a read since the beginning of its step.
#[derive(Clone, Copy, Debug)]
struct TimedRead {
    begin: Nanos,
    end: Nanos,
}

/// A closed loop of reads.
#[derive(Clone, Copy, Debug)]
struct Step {
    depth: u32,
    len: u64,
    reads_max: u64,
    time: Duration,
}

impl Step {
    /// Returns the reads; at least one.
    fn run(&self, file: &File, bytes: u64) -> io::Result<Vec<TimedRead>> {
        let (next, start) = (AtomicU64::new(0), Instant::now());
        let mut reads = Vec::new();
        std::thread::scope(|scope| {
            let worker = |seed| {
                let next = &next;
                scope.spawn(move || self.work(file, bytes, (next, start), seed))
            };
            let workers: Vec<_> = (0..self.depth).map(worker).collect();
            for worker in workers {
                reads.extend(worker.join().expect("a worker does not panic")?);
            }
            io::Result::Ok(())
        })?;
        Ok(reads)
    }

    /// Reads until the step ends: small reads at random, large ones in order.
    fn work(
        &self,
        file: &File,
        bytes: u64,
        (next, start): (&AtomicU64, Instant),
        seed: u32,
    ) -> io::Result<Vec<TimedRead>> {
        let len = usize::try_from(self.len).expect("at most 256 KiB");
        let mut buffer = vec![0; len + ALIGNMENT];
        let skip = buffer.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut buffer[skip..skip + len];
        let mut random = Random::from_seed(u64::from(self.depth) << 32 | u64::from(seed));
        let elapsed = || u64::try_from(start.elapsed().as_nanos()).expect("seconds");
        let mut reads = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.reads_max || number > 0 && start.elapsed() >= self.time {
                return Ok(reads);
            }
            let places = bytes / self.len;
            let place =
                if self.len == SMALL_BYTES { random.below(places) } else { number % places };
            let begin = elapsed();
            file.read_exact_at(buffer, place * self.len)?;
            reads.push(TimedRead { begin, end: elapsed() });
        }
    }
}

/// Returns the reads per second.
fn rate(reads: &mut [TimedRead]) -> f64 {
    reads.sort_unstable_by_key(|read| read.end);
    let last = reads.last().expect("a step has at least one read").end;
    let first = reads.partition_point(|read| read.end < last / 8);
    let ends = reads[first..].iter().map(|read| as_f64(read.end) / as_f64(SECOND));
    let count = as_f64((reads.len() - first) as u64);
    let (mean_at, mean_number) = (ends.clone().sum::<f64>() / count, (count - 1.0) / 2.0);
    let (mut products, mut squares, mut number) = (0.0, 0.0, 0.0);
    for at in ends {
        products += (at - mean_at) * (number - mean_number);
        squares += (at - mean_at) * (at - mean_at);
        number += 1.0;
    }
    if squares > 0.0 && products > 0.0 {
        return products / squares;
    }
    as_f64(reads.len() as u64) * as_f64(SECOND) / as_f64(last.max(1))
}

impl Measurement {
    /// Returns the rates of a model with these results. Limits of writes are unknown, so those of
    /// reads are taken as limits of both directions together.
    #[must_use]
    pub fn fit(&self) -> DeviceRates {
        let [alone, .., deep] = self.reads_per_s;
        let plateau = self.reads_per_s.into_iter().fold(0.0, f64::max);
        // If the rate of a single reader is that of all depths, its reads wait for a limit, and
        // most of them do not wait long: a throttle serves them in slices.
        let waits = alone >= REACHED * plateau;
        let mean = as_f64(SECOND) / alone;
        let time = if waits { as_f64(self.median) } else { mean };
        // Most reads take far less than the mean: they wait for a slice, and then all are served.
        let has_slices = waits && 2.0 * time < mean;
        let is_limited = plateau < REACHED * f64::from(DEPTHS[2]) * as_f64(SECOND) / time;
        let large_is_limited = self.large_reads_per_s < REACHED * deep;
        let bytes_per_s = self.large_reads_per_s * as_f64(LARGE_BYTES);
        let bytes_per_s = large_is_limited.then(|| rounded(bytes_per_s, 1 << 20).max(1));
        let transfer = bytes_per_s.map_or(0.0, |it| as_f64(SMALL_BYTES * SECOND) / as_f64(it));
        let latency = rounded((time - transfer).max(0.0), 1_000);
        let operations_per_s = is_limited.then(|| rounded(plateau, 1).max(1));
        DeviceRates {
            total: RateLimits { operations_per_s, bytes_per_s },
            slice: if has_slices { SLICE } else { 0 },
            depth: if is_limited { DEPTH_MAX } else { DEPTHS[2] },
            ..DeviceRates::fixed(latency)
        }
    }
}

/// Rounds to a multiple of `step`, or to a whole number if that is less than ten of them.
fn rounded(value: f64, step: u64) -> u64 {
    let steps = value / as_f64(step);
    if steps >= 10.0 { as_u64(steps.round()) * step } else { as_u64(value.round()) }
}

#[cfg(test)]
mod tests;
