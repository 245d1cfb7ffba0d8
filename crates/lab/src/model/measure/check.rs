//! Patterns that compare a model with a device, and the prediction of a model for them.

use super::{PatternLimits, PatternResult, TimedOperation};
use crate::model::StoreModel;
use crate::random::Random;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, StoreOp, StoreOpKind};
use larder_schema::format;
use std::time::Duration;

const KIB: u64 = 1 << 10;
/// Maximum number of operations of a pattern.
const OPERATIONS_MAX: u64 = 200_000;
/// Maximum bytes of a pattern.
const PATTERN_BYTES_MAX: u64 = 1 << 30;

/// Operations of one kind and length, with a number of them in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// True for writes, false for reads.
    pub is_write: bool,
    /// True if each offset is random, false if each follows the one before.
    pub is_random: bool,
    /// Length of an operation in bytes, at most 256 KiB.
    pub len: u64,
    /// Operations in flight, at least 1.
    pub depth: u32,
}

/// Eight patterns of reads.
pub const READ_PATTERNS: [Pattern; 8] = [
    read(true, 4 * KIB, 1),
    read(true, 4 * KIB, 8),
    read(true, 4 * KIB, 32),
    read(true, 64 * KIB, 4),
    read(true, 256 * KIB, 8),
    read(false, 4 * KIB, 1),
    read(false, 64 * KIB, 8),
    read(false, 256 * KIB, 1),
];

/// Eight patterns of reads and writes.
pub const PATTERNS: [Pattern; 8] = [
    read(true, 4 * KIB, 1),
    read(true, 4 * KIB, 32),
    read(false, 64 * KIB, 8),
    read(false, 256 * KIB, 1),
    write(true, 4 * KIB, 1),
    write(true, 4 * KIB, 32),
    write(false, 64 * KIB, 8),
    write(false, 256 * KIB, 1),
];

const fn read(is_random: bool, len: u64, depth: u32) -> Pattern {
    Pattern { is_write: false, is_random, len, depth }
}

const fn write(is_random: bool, len: u64, depth: u32) -> Pattern {
    Pattern { is_write: true, is_random, len, depth }
}

impl Pattern {
    /// Returns the name, such as `random read, 4 KiB, depth 8`.
    #[must_use]
    pub fn name(&self) -> String {
        let order = if self.is_random { "random" } else { "sequential" };
        let direction = if self.is_write { "write" } else { "read" };
        format!("{order} {direction}, {}, depth {}", format::bytes(self.len), self.depth)
    }

    /// Returns the random numbers of a thread.
    pub(super) fn random(&self, thread: u32) -> Random {
        Random::from_seed(u64::from(self.depth) << 32 | u64::from(thread))
    }

    /// Returns the offset of the operation with a number on a device of `bytes` bytes.
    pub(super) fn offset(&self, number: u64, bytes: u64, random: &mut Random) -> u64 {
        let places = bytes / self.len;
        let place = if self.is_random { random.below(places) } else { number % places };
        place * self.len
    }
}

/// Returns the limits of a pattern of this duration: at most 1 GiB, and 200,000 operations.
#[must_use]
pub fn limits_of(pattern: &Pattern, time: Duration) -> PatternLimits {
    PatternLimits { time, operations: (PATTERN_BYTES_MAX / pattern.len).min(OPERATIONS_MAX) }
}

/// Returns the result of a pattern on a modeled device of `bytes` bytes.
#[must_use]
pub fn predict(
    model: &StoreModel,
    bytes: u64,
    pattern: &Pattern,
    limits: PatternLimits,
) -> PatternResult {
    let mut store = model.build(Geometry { length: bytes, granule: 512, read_only: false });
    let (frames, mut random) = (NoFrames::new(0), pattern.random(0));
    let kind = if pattern.is_write { StoreOpKind::Write { fua: false } } else { StoreOpKind::Read };
    let (mut now, mut number, mut in_flight) = (0, 0, 0);
    let (mut done, mut operations) = (Vec::new(), Vec::new());
    loop {
        let is_over = number > 0 && Duration::from_nanos(now) >= limits.time;
        while in_flight < pattern.depth && number < limits.operations && !is_over {
            let offset = pattern.offset(number, bytes, &mut random);
            let (segments, len) = (Vec::new(), pattern.len);
            let op = StoreOp { tag: number, kind, offset, len, segments, queued_at: now };
            store.submit(now, &frames, op);
            number += 1;
            in_flight += 1;
        }
        let Some(event) = store.next_event() else { return PatternResult::of(operations) };
        now = now.max(event);
        store.reap(now, &frames, &mut done);
        for each in done.drain(..) {
            operations.push(TimedOperation { begin: each.started_at, end: each.finished_at });
            in_flight -= 1;
        }
    }
}
