//! One rotating disk.
//!
//! The model is that of C. Ruemmler and J. Wilkes, "An introduction to disk drive modeling", IEEE
//! Computer 27(3), March 1994: a seek curve of two parts, a rotational position computed from the
//! time, zones, the disk's own read-ahead, controller overhead, and (off by default) a write cache.
//! The disk serves the operation in its command queue with the shortest positioning time first,
//! rotation included, minus a credit for its waiting time, so that no operation starves: "aged
//! shortest access time first" of D. Jacobson and J. Wilkes, "Disk scheduling algorithms based on
//! rotational position", HPL-CSP-91-7, and of M. Seltzer, P. Chen and J. Ousterhout, "Disk
//! scheduling revisited", USENIX Winter 1990.
//!
//! Not modeled: head switches in a cylinder and remapped sectors; the sustained rate includes
//! both.
//! Times are nanoseconds, sizes are bytes, rates are bytes per second.

mod presets;

use super::curve::SeekCurve;
use super::layout::{Layout, PlatterPosition, scale};
use super::stream::Stream;
use super::{Access, Model};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;
use std::collections::BTreeMap;

/// Cached writes on each side of the head that are candidates for the next destaging.
const DESTAGE_CANDIDATES: usize = 8;

/// The figures of a disk's data sheet, and its firmware settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// Capacity of the data sheet, bytes. It changes no time: a model spreads the full stroke over
    /// the length of its store.
    pub capacity_bytes: u64,
    /// Actuators, each of which serves an equal part of the addresses; at least 1. A [`Disk`] has
    /// one; [`super::StoreModel`] builds one `Disk` for each.
    pub actuators: u32,
    /// Bytes of a sector.
    pub sector_bytes: u64,
    /// Revolutions per minute.
    pub rpm: u32,
    /// Seek to the next track, nanoseconds.
    pub track_to_track: Nanos,
    /// Average seek over random pairs of tracks, nanoseconds.
    pub average_seek: Nanos,
    /// Seek from the first to the last track, nanoseconds.
    pub full_stroke: Nanos,
    /// Additional seek time before a write, because the head must be exactly in place; nanoseconds.
    pub write_settle: Nanos,
    /// Sustained rate at the first byte, bytes per second.
    pub outer_bytes_per_s: u64,
    /// Sustained rate at the last byte, bytes per second.
    pub inner_bytes_per_s: u64,
    /// Rate between the disk's buffer and the host, bytes per second.
    pub interface_bytes_per_s: u64,
    /// Controller time of each operation, nanoseconds; it overlaps with waiting in the queue.
    pub overhead: Nanos,
    /// Length of the disk's own read-ahead, bytes.
    pub read_ahead_bytes: u64,
    /// Size of the disk's write cache, bytes; 0 is off: a write then completes on the platter, and
    /// a flush costs the overhead alone. With a cache, a flush waits until the whole cache is
    /// written.
    pub write_cache_bytes: u64,
    /// Length of the disk's command queue, at least 1: the next operation is one of the first
    /// `queue_depth` that arrived. With 1, operations are served in order of arrival, and the host
    /// sends the next command when the previous one is complete.
    pub queue_depth: u32,
    /// Waiting compensates for distance: an operation that has waited this many nanoseconds longer
    /// than another is served before it, wherever the two lie; one that has waited half as much
    /// longer compensates for half the worst positioning time.
    pub age_max: Nanos,
}

/// The state of a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    spec: DiskSpec,
    layout: Layout,
    curve: SeekCurve,
    /// Byte under the head while the disk does not read ahead.
    head: u64,
    stream: Option<Stream>,
    /// Time at which the head is free; later than the last completion only while cached writes are
    /// destaged.
    free_at: Nanos,
    /// Writes in the disk's cache: offset and length.
    cached: BTreeMap<u64, u64>,
    cached_bytes: u64,
}

impl Disk {
    /// Creates a disk of `length` bytes. The full stroke spans any length: a small file on this
    /// model costs as much as a full disk of that model.
    #[must_use]
    pub fn new(spec: DiskSpec, length: u64) -> Self {
        let revolution = 60 * SECOND / u64::from(spec.rpm);
        let rates = (spec.outer_bytes_per_s, spec.inner_bytes_per_s);
        Disk {
            spec,
            layout: Layout::new(length, revolution, rates, spec.sector_bytes),
            curve: SeekCurve::fit(spec.track_to_track, spec.average_seek, spec.full_stroke),
            head: 0,
            stream: None,
            free_at: 0,
            cached: BTreeMap::new(),
            cached_bytes: 0,
        }
    }

    /// [`DiskSpec::seven_thousand_two_hundred`] with `length` bytes: about 77 random reads per
    /// second at queue depth 1, and 150 MB/s sequentially on the outer tracks.
    #[must_use]
    pub fn seven_thousand_two_hundred(length: u64) -> Self {
        Disk::new(DiskSpec::seven_thousand_two_hundred(), length)
    }

    /// Returns the disk as one of several, whose platters turn independently: with its phase. The
    /// phases of two are so far apart that waiting for both takes two thirds of a revolution on
    /// average, as with random phases.
    #[must_use]
    pub fn with_phase_of(mut self, number: u32) -> Self {
        // d (1 - d) is 1/6.
        const APART_PER_MILLION: u64 = 788_675;
        let phase = u64::from(number) * APART_PER_MILLION % 1_000_000;
        self.layout.phase = self.layout.revolution * phase / 1_000_000;
        self
    }

    /// Returns the nanoseconds of positioning that a wait of `waited` nanoseconds compensates for.
    fn age_credit(&self, waited: Nanos) -> Nanos {
        let worst = self.spec.full_stroke + self.spec.write_settle + self.layout.revolution;
        scale(waited, worst, self.spec.age_max)
    }

    /// Returns the time at which the controller has processed the command.
    fn begin(&self, now: Nanos, access: &Access) -> Nanos {
        let sent_at = if self.spec.queue_depth == 1 { now } else { access.arrived_at };
        now.max(sent_at + self.spec.overhead)
    }

    /// Returns the byte under the head at `now`.
    fn head(&self, now: Nanos) -> u64 {
        self.stream.map_or(self.head, |stream| stream.position(&self.layout, now))
    }

    /// Returns the track of the head at `now`.
    fn track(&self, now: Nanos) -> u64 {
        self.layout.position(self.head(now)).track
    }

    fn ready_in_buffer(&self, begin: Nanos, access: &Access) -> Option<(Nanos, Stream)> {
        let range = (access.offset, access.len);
        self.stream?.ready(&self.layout, begin, range, self.spec.read_ahead_bytes)
    }

    /// Returns the nanoseconds in which the head moves from `track` to a position.
    fn seek(&self, track: u64, position: PlatterPosition, write: bool) -> Nanos {
        let seek = self.curve.time(position.track.abs_diff(track), self.layout.tracks);
        if write && seek > 0 { seek + self.spec.write_settle } else { seek }
    }

    /// Returns the nanoseconds from `begin`, when the head is on `track`, until `offset` is under
    /// it.
    fn positioning(&self, (begin, track): (Nanos, u64), offset: u64, write: bool) -> Nanos {
        let position = self.layout.position(offset);
        let seek = self.seek(track, position, write);
        seek + self.layout.wait(begin + seek, position)
    }

    /// Positions the head and transfers. Returns the time at the end.
    fn access_media(&mut self, begin: Nanos, offset: u64, len: u64, write: bool) -> Nanos {
        let begin = begin.max(self.free_at);
        let start = begin + self.positioning((begin, self.track(begin)), offset, write);
        let end = start + self.layout.transfer(offset, len);
        // The skew puts the head at the next byte, on the next track if necessary.
        self.head = offset + len;
        self.stream =
            (!write).then(|| Stream::after(offset, offset + len, end, self.spec.read_ahead_bytes));
        self.free_at = end;
        end
    }

    fn serve_read(&mut self, begin: Nanos, access: &Access) -> Nanos {
        let interface = access.len * SECOND / self.spec.interface_bytes_per_s;
        if let Some((ready, next)) = self.ready_in_buffer(begin, access) {
            self.stream = Some(next);
            return ready.max(begin + interface);
        }
        self.access_media(begin, access.offset, access.len, false).max(begin + interface)
    }

    /// Writes into the disk's cache, after destaging earlier writes if it is full.
    fn serve_cached_write(&mut self, mut begin: Nanos, access: &Access) -> Nanos {
        while self.cached_bytes + access.len > self.spec.write_cache_bytes {
            begin = begin.max(self.free_at);
            if !self.destage_nearest(begin) {
                return self.access_media(begin, access.offset, access.len, true);
            }
            begin = begin.max(self.free_at);
        }
        let end = begin + access.len * SECOND / self.spec.interface_bytes_per_s;
        if self.cached.is_empty() {
            self.free_at = self.free_at.max(end);
        }
        let old_len = self.cached.insert(access.offset, access.len).unwrap_or(0);
        self.cached_bytes = self.cached_bytes - old_len + access.len;
        end
    }

    /// Destages a cached range from `begin` on: of those next to the head on both sides, the one
    /// with the shortest positioning time. Returns false if the cache is empty.
    fn destage_nearest(&mut self, begin: Nanos) -> bool {
        let head = self.head(begin);
        let inwards = self.cached.range(head..).take(DESTAGE_CANDIDATES);
        let outwards = self.cached.range(..head).rev().take(DESTAGE_CANDIDATES);
        let from = (begin, self.layout.position(head).track);
        let cost = |(offset, _): &(&u64, &u64)| self.positioning(from, **offset, true);
        let Some((&offset, &len)) = inwards.chain(outwards).min_by_key(cost) else {
            return false;
        };
        self.cached.remove(&offset);
        self.cached_bytes -= len;
        self.access_media(begin, offset, len, true);
        true
    }
}

impl Model for Disk {
    fn max_concurrency(&self) -> usize {
        1
    }

    fn pick(&self, now: Nanos, waiting: &[Access]) -> usize {
        let queued = &waiting[..waiting.len().min(self.spec.queue_depth as usize)];
        let track_now = self.track(now);
        let mut best = (i64::MAX, 0);
        for (index, access) in queued.iter().enumerate() {
            let begin = self.begin(now, access);
            let waited = now.saturating_sub(access.arrived_at);
            let credit = (begin - now).cast_signed() - self.age_credit(waited).cast_signed();
            let of_seek = |is_write| {
                let track = if begin == now { track_now } else { self.track(begin) };
                let position = self.layout.position(access.offset);
                let seek = self.seek(track, position, is_write);
                // The rotation is computed only if the seek alone is short enough.
                let is_far = credit + seek.cast_signed() >= best.0;
                if is_far { seek } else { seek + self.layout.wait(begin + seek, position) }
            };
            let cost = match access.kind {
                StoreOpKind::Read => match self.ready_in_buffer(begin, access) {
                    Some((ready, _)) => ready - begin,
                    None => of_seek(false),
                },
                StoreOpKind::Write { .. } if self.spec.write_cache_bytes > 0 => 0,
                StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } => of_seek(true),
                StoreOpKind::Flush | StoreOpKind::Discard => 0,
            };
            let cost = credit + cost.cast_signed();
            if cost < best.0 {
                best = (cost, index);
            }
        }
        best.1
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        let begin = self.begin(now, access);
        // While the disk is idle it destages cached writes.
        while self.free_at < begin && self.destage_nearest(self.free_at) {}
        match access.kind {
            StoreOpKind::Read => self.serve_read(begin, access),
            StoreOpKind::Write { fua: false } if self.spec.write_cache_bytes > 0 => {
                self.serve_cached_write(begin, access)
            }
            StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } => {
                self.access_media(begin, access.offset, access.len, true)
            }
            StoreOpKind::Flush => {
                while self.destage_nearest(begin.max(self.free_at)) {}
                begin.max(self.free_at)
            }
            StoreOpKind::Discard => begin,
        }
    }
}

#[cfg(test)]
mod tests;
