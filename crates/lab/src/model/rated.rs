//! A device with rates: limits on operations and bytes per second, a latency and a queue depth.
//!
//! An operation takes one of the places of the device, waits for its tokens, and is in service for
//! the latency and its transfer. A token bucket is kept as the time at which it will be full again
//! (the generic cell rate algorithm of ITU-T I.371), which is exact in whole nanoseconds and needs
//! no refilling. Tokens are granted in the order in which operations take their places. With a
//! slice they do not arrive continuously: all tokens of a slice of time arrive at its begin.
//!
//! A read counts against the limits of reads and those of both directions; every other operation
//! counts like a write, and only reads and writes count bytes. This is the accounting of the
//! kernel's blkio throttle, which has separate limits for each direction, and of cloud volumes,
//! which have limits for both together.
//!
//! Times are nanoseconds, sizes are bytes, rates are per second.

mod bucket;
mod transfers;

use super::{Access, Latency, Model};
use crate::random::Random;
use bucket::{Limiter, TokenBucket, time_of};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;
use larder_core::units::as_f64;
use transfers::Transfers;

/// Maximum number of operations in service: more than a cache ever has in flight.
pub const DEPTH_MAX: u32 = 1024;

/// Limits of one direction, or of both together; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Operations per second; at least 1.
    pub operations_per_s: Option<u64>,
    /// Bytes per second; at least 1.
    pub bytes_per_s: Option<u64>,
}

/// Operations that a device may do beyond a rate until they are used up, and which it earns back at
/// that rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstCredit {
    /// Operations per second that are always possible, and earned; at least 1.
    pub operations_per_s: u64,
    /// Maximum number of earned operations, which a new device has; at least 1.
    pub operations: u64,
}

/// The rates of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRates {
    /// Limits of all operations together.
    pub total: RateLimits,
    /// Limits of reads.
    pub read: RateLimits,
    /// Limits of writes, flushes, discards and zeroings.
    pub write: RateLimits,
    /// Credit of all operations together; `None` for no such limit.
    pub credit: Option<BurstCredit>,
    /// Time of a read that waits for no token.
    pub read_latency: Latency,
    /// Time of any other operation that waits for no token.
    pub write_latency: Latency,
    /// Rate at which the bytes of reads and writes are transferred, one operation after the other,
    /// before the latency of each begins; at least 1. `None` for no time.
    pub transfer_bytes_per_s: Option<u64>,
    /// Time whose tokens an idle device collects, nanoseconds. Without a slice, one operation is
    /// always collected.
    pub burst: Nanos,
    /// Time whose tokens arrive together, nanoseconds; 0 if tokens arrive continuously. The blkio
    /// throttle of the kernel has slices of 100 ms (`DFL_THROTL_SLICE` in block/blk-throttle.c).
    pub slice: Nanos,
    /// Maximum operations in service at a time, from 1 to [`DEPTH_MAX`].
    pub depth: u32,
}

impl DeviceRates {
    /// Returns a device without limits that takes this time for each operation.
    #[must_use]
    pub const fn fixed(latency: Nanos) -> Self {
        const NONE: RateLimits = RateLimits { operations_per_s: None, bytes_per_s: None };
        DeviceRates {
            total: NONE,
            read: NONE,
            write: NONE,
            credit: None,
            read_latency: Latency::constant(latency),
            write_latency: Latency::constant(latency),
            transfer_bytes_per_s: None,
            burst: 0,
            slice: 0,
            depth: DEPTH_MAX,
        }
    }

    /// Returns the reads per second of a closed loop that keeps `depth` reads of `len` bytes in
    /// flight, as long as there is credit; infinite if reads take no time.
    #[must_use]
    pub fn reads_per_s(&self, depth: u32, len: u64) -> f64 {
        let sides = [self.total, self.read];
        let transfer = sides.iter().filter_map(|it| Some(as_f64(len) / as_f64(it.bytes_per_s?)));
        let transfer = transfer.fold(0.0, f64::max);
        let operations = sides.iter().filter_map(|it| Some(as_f64(it.operations_per_s?)));
        let places = f64::from(depth.min(self.depth));
        // Without a burst or a slice, a read waits until its last byte has its token.
        let wait = if self.burst == 0 && self.slice == 0 { transfer } else { 0.0 };
        let own = self.transfer_time(len);
        let service = self.read_latency.mean + own;
        let by_latency = places / (as_f64(service) / as_f64(SECOND) + wait);
        let transfer = transfer.max(as_f64(own) / as_f64(SECOND));
        operations.fold(by_latency, f64::min).min(1.0 / transfer)
    }

    /// Returns the time in service that the transfer of these bytes adds to the latency.
    fn transfer_time(&self, bytes: u64) -> Nanos {
        self.transfer_bytes_per_s.map_or(0, |per_s| time_of(bytes, per_s))
    }
}

/// The state of a device with rates.
#[derive(Clone, Debug)]
pub struct RatedDevice {
    rates: DeviceRates,
    total: Limiter,
    read: Limiter,
    write: Limiter,
    credit: Option<TokenBucket>,
    transfers: Transfers,
    random: Random,
}

impl RatedDevice {
    /// Creates a device with full buckets. `seed` is that of its times, if they vary.
    ///
    /// # Panics
    /// If a limit or the depth is 0.
    #[must_use]
    pub fn new(rates: DeviceRates, seed: u64) -> Self {
        assert!(rates.depth > 0, "a device that serves nothing never ends");
        let limiter = |limits| Limiter::new(limits, rates.burst, rates.slice);
        RatedDevice {
            rates,
            total: limiter(rates.total),
            read: limiter(rates.read),
            write: limiter(rates.write),
            credit: rates.credit.map(|credit| {
                let filled = time_of(credit.operations, credit.operations_per_s);
                TokenBucket::new(credit.operations_per_s, filled, 0)
            }),
            transfers: Transfers::default(),
            random: Random::from_seed(seed),
        }
    }
}

impl Model for RatedDevice {
    fn max_concurrency(&self) -> usize {
        self.rates.depth as usize
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        let bytes = match access.kind {
            StoreOpKind::Read | StoreOpKind::Write { .. } => access.len,
            StoreOpKind::Flush | StoreOpKind::Discard | StoreOpKind::Zero { .. } => 0,
        };
        let transfer = self.rates.transfer_time(bytes);
        let (side, latency) = match access.kind {
            StoreOpKind::Read => (&mut self.read, self.rates.read_latency),
            _ => (&mut self.write, self.rates.write_latency),
        };
        let earned_at = self.credit.as_mut().map_or(now, |credit| credit.take(now, 1));
        let admitted_at = self.total.take(now, bytes).max(side.take(now, bytes)).max(earned_at);
        let transferred_at = self.transfers.add(now, admitted_at, transfer);
        transferred_at.saturating_add(latency.draw(&mut self.random))
    }
}

#[cfg(test)]
mod tests;
