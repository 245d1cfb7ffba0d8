//! Measurement of devices: patterns of reads or writes in a closed loop, the model that fits them,
//! and the prediction of a model for the same patterns.
//!
//! A pattern keeps a number of operations in flight, each in a thread of its own. It ends after a
//! time or a number of operations, whichever is first; then it waits for the operations in flight.
//! A file must be open for direct I/O, or the page cache is measured.
//!
//! The rate of a pattern is the slope of a line through its completions, without the first eighth
//! of the time: a throttle grants a burst at the beginning, and then serves in slices of 100 ms.

mod check;
mod fit;

pub use check::{PATTERNS, Pattern, READ_PATTERNS, limits_of, predict};
pub use fit::{DEPTHS, Measurement, SideMeasurement, measure};

use larder_core::clock::{Nanos, SECOND};
use larder_core::units::as_f64;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Minimum length of a device that is measured.
pub const BYTES_MIN: u64 = 16 << 20;
/// Alignment of direct I/O that every device accepts.
const ALIGNMENT: usize = 4096;

/// A device or file to measure.
pub trait Device: Sync {
    /// Returns its length in bytes.
    fn bytes(&self) -> u64;
    /// Opens an access for one thread.
    ///
    /// # Errors
    /// The device cannot be reached.
    fn connect(&self) -> io::Result<Box<dyn DeviceAccess + Send + '_>>;
}

/// Access to a device; each call waits for its operation.
pub trait DeviceAccess {
    /// Reads a range.
    ///
    /// # Errors
    /// The read fails, or the device is shorter.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes a range.
    ///
    /// # Errors
    /// The write fails.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A file or block device that is open for direct I/O.
#[derive(Debug)]
pub struct FileDevice {
    /// The open file.
    pub file: File,
    /// Its length.
    pub bytes: u64,
}

impl Device for FileDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn connect(&self) -> io::Result<Box<dyn DeviceAccess + Send + '_>> {
        Ok(Box::new(&self.file))
    }
}

impl DeviceAccess for &File {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// Limits of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternLimits {
    /// Time after which no operation begins.
    pub time: Duration,
    /// Maximum number of operations; at least 1.
    pub operations: u64,
}

/// Times of an operation since the beginning of its pattern, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedOperation {
    begin: Nanos,
    end: Nanos,
}

/// The result of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatternResult {
    /// Number of operations.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Median time of an operation, nanoseconds.
    pub p50: Nanos,
    /// Time that 99 % of the operations do not exceed, nanoseconds.
    pub p99: Nanos,
}

impl PatternResult {
    /// Evaluates the operations of a pattern; at least one.
    fn of(mut operations: Vec<TimedOperation>) -> Self {
        let operations_per_s = rate(&mut operations);
        let mut times: Vec<Nanos> = operations.iter().map(|it| it.end - it.begin).collect();
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        let operations = times.len() as u64;
        PatternResult { operations, operations_per_s, p50: at(50), p99: at(99) }
    }
}

/// Returns the operations per second.
fn rate(operations: &mut [TimedOperation]) -> f64 {
    operations.sort_unstable_by_key(|it| it.end);
    let last = operations.last().expect("a pattern has at least one operation").end;
    let first = operations.partition_point(|it| it.end < last / 8);
    let ends = operations[first..].iter().map(|it| as_f64(it.end) / as_f64(SECOND));
    let count = as_f64((operations.len() - first) as u64);
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
    as_f64(operations.len() as u64) * as_f64(SECOND) / as_f64(last.max(1))
}

/// Runs a pattern on a device.
///
/// # Errors
/// An operation fails, the device is shorter than [`BYTES_MIN`], or `stop` was set
/// ([`io::ErrorKind::Interrupted`]).
pub fn run(
    device: &dyn Device,
    pattern: &Pattern,
    limits: PatternLimits,
    stop: &AtomicBool,
) -> io::Result<PatternResult> {
    let bytes = device.bytes();
    if bytes < BYTES_MIN {
        let reason = format!("it has {bytes} bytes; the minimum is {} MiB", BYTES_MIN >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let accesses: io::Result<Vec<_>> = (0..pattern.depth).map(|_| device.connect()).collect();
    let worker = &Worker { pattern, limits, bytes, next: AtomicU64::new(0), stop };
    let started = Instant::now();
    let mut operations = Vec::new();
    std::thread::scope(|scope| {
        let spawn = |(access, number)| scope.spawn(move || worker.work(access, number, started));
        let workers: Vec<_> = accesses?.into_iter().zip(0..).map(spawn).collect();
        for worker in workers {
            operations.extend(worker.join().expect("a worker does not panic")?);
        }
        io::Result::Ok(())
    })?;
    if stop.load(Ordering::Relaxed) {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "it was stopped"));
    }
    Ok(PatternResult::of(operations))
}

/// The work of each thread of a pattern.
struct Worker<'a> {
    pattern: &'a Pattern,
    limits: PatternLimits,
    bytes: u64,
    /// Number of the next operation.
    next: AtomicU64,
    stop: &'a AtomicBool,
}

impl Worker<'_> {
    /// Executes operations until the pattern ends.
    fn work(
        &self,
        mut access: Box<dyn DeviceAccess + Send + '_>,
        number: u32,
        started: Instant,
    ) -> io::Result<Vec<TimedOperation>> {
        let len = usize::try_from(self.pattern.len).expect("at most 256 KiB");
        let mut buffer = vec![0; len + ALIGNMENT];
        let skip = buffer.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut buffer[skip..skip + len];
        let mut random = self.pattern.random(number);
        if self.pattern.is_write {
            // Zeros would be cheaper on some devices.
            random.fill(buffer);
        }
        let elapsed = || u64::try_from(started.elapsed().as_nanos()).expect("less than centuries");
        let mut operations = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = number > 0 && started.elapsed() >= self.limits.time;
            if is_over || number >= self.limits.operations || self.stop.load(Ordering::Relaxed) {
                return Ok(operations);
            }
            let offset = self.pattern.offset(number, self.bytes, &mut random);
            let begin = elapsed();
            if self.pattern.is_write {
                access.write(offset, buffer)?;
            } else {
                access.read(offset, buffer)?;
            }
            operations.push(TimedOperation { begin, end: elapsed() });
        }
    }
}

#[cfg(test)]
mod tests;
