//! One rotating disk.
//!
//! The model is that of C. Ruemmler and J. Wilkes, "An introduction to disk drive modeling", IEEE
//! Computer 27(3), March 1994: a seek curve of two parts, a rotational position computed from the
//! time, zones, the disk's own read-ahead, controller overhead, and (off by default) a write
//! cache. Waiting operations are served shortest positioning time first, rotation included, less
//! what their waiting is worth, so that nothing starves: "aged shortest access time first" of D.
//! Jacobson and J. Wilkes, "Disk scheduling algorithms based on rotational position", HPL-CSP-91-7,
//! and of M. Seltzer, P. Chen and J. Ousterhout, "Disk scheduling revisited", USENIX Winter 1990.
//!
//! Left out: heads of one cylinder and remapped sectors; both are inside the sustained rate.
//! Times are nanoseconds, sizes are bytes, rates are bytes per second.

use super::layout::Layout;
use super::stream::Stream;
use super::{Access, Model, SeekCurve};
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::store::StoreOpKind;
use std::collections::BTreeMap;

/// What a data sheet says of a disk, and how its firmware is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskSpec {
    /// Revolutions per minute.
    pub rpm: u32,
    /// Seek to the next track, nanoseconds.
    pub track_to_track: Nanos,
    /// Average seek over random pairs of tracks, nanoseconds.
    pub average_seek: Nanos,
    /// Seek from the first to the last track, nanoseconds.
    pub full_stroke: Nanos,
    /// More time for a seek before a write, since the head must be exactly in place; nanoseconds.
    pub write_settle: Nanos,
    /// Sustained rate at the first byte, bytes per second.
    pub outer_bytes_per_s: u64,
    /// Sustained rate at the last byte, bytes per second.
    pub inner_bytes_per_s: u64,
    /// Rate between the disk's buffer and the host, bytes per second.
    pub interface_bytes_per_s: u64,
    /// Work of the controller on each operation, nanoseconds; overlaps with waiting in the queue.
    pub overhead: Nanos,
    /// How far the disk reads ahead on its own, bytes.
    pub read_ahead_bytes: u64,
    /// Write cache in the disk, bytes; 0 is off: a write is then done when it is on the platter,
    /// and a flush costs the overhead alone. With a cache a flush waits until all of it is written.
    pub write_cache_bytes: u64,
    /// Waiting makes up for distance: what has waited this many nanoseconds longer than another
    /// operation goes before it, wherever the two lie; what has waited half as much longer makes up
    /// for half the worst positioning time.
    pub age_max: Nanos,
}

impl DiskSpec {
    /// A desktop disk: 7,200 rpm, 8.5 ms average seek, 150 MB/s at the outside, write cache off.
    #[must_use]
    pub const fn seven_thousand_two_hundred() -> Self {
        DiskSpec {
            rpm: 7_200,
            track_to_track: MILLISECOND,
            average_seek: 8_500_000,
            full_stroke: 18 * MILLISECOND,
            write_settle: 500_000,
            outer_bytes_per_s: 150_000_000,
            inner_bytes_per_s: 75_000_000,
            interface_bytes_per_s: 550_000_000,
            overhead: 100_000,
            read_ahead_bytes: 512 << 10,
            write_cache_bytes: 0,
            age_max: SECOND,
        }
    }
}

/// A disk at work.
#[derive(Clone, Debug)]
pub struct Disk {
    spec: DiskSpec,
    layout: Layout,
    curve: SeekCurve,
    /// Where the head stands when it is not streaming.
    track: u64,
    stream: Option<Stream>,
    /// When the head is free; later than the last answer only while cached writes are destaged.
    free_at: Nanos,
    /// Writes in the disk's cache: offset and length.
    cached: BTreeMap<u64, u64>,
    cached_bytes: u64,
}

impl Disk {
    /// A disk of `length` bytes. The whole stroke spans the length, whatever it is: a small file
    /// on this model costs what a full disk of that kind costs.
    #[must_use]
    pub fn new(spec: DiskSpec, length: u64) -> Self {
        let revolution = 60 * SECOND / u64::from(spec.rpm);
        Disk {
            spec,
            layout: Layout::new(length, revolution, spec.outer_bytes_per_s, spec.inner_bytes_per_s),
            curve: SeekCurve::fit(spec.track_to_track, spec.average_seek, spec.full_stroke),
            track: 0,
            stream: None,
            free_at: 0,
            cached: BTreeMap::new(),
            cached_bytes: 0,
        }
    }

    /// [`DiskSpec::seven_thousand_two_hundred`] with `length` bytes: about 77 random reads a second
    /// one at a time, and 150 MB/s in order at the outside.
    #[must_use]
    pub fn seven_thousand_two_hundred(length: u64) -> Self {
        Disk::new(DiskSpec::seven_thousand_two_hundred(), length)
    }

    /// Nanoseconds of positioning that a wait of `waited` nanoseconds makes up for.
    fn worth(&self, waited: Nanos) -> Nanos {
        let worst = self.spec.full_stroke + self.spec.write_settle + self.layout.revolution();
        let worth = u128::from(waited) * u128::from(worst) / u128::from(self.spec.age_max);
        u64::try_from(worth).expect("a wait of less than centuries")
    }

    /// When the controller has understood the operation.
    fn begin(&self, now: Nanos, access: &Access) -> Nanos {
        now.max(access.arrived_at + self.spec.overhead)
    }

    fn ready_in_buffer(&self, begin: Nanos, access: &Access) -> Option<(Nanos, Stream)> {
        let range = (access.offset, access.len);
        self.stream?.ready(&self.layout, begin, range, self.spec.read_ahead_bytes)
    }

    /// Nanoseconds from `begin` until `offset` is under the head.
    fn positioning(&self, begin: Nanos, offset: u64, write: bool) -> Nanos {
        let place = self.layout.place(offset);
        let track = self.stream.map_or(self.track, |stream| {
            self.layout.place(stream.position(&self.layout, begin)).track
        });
        let mut seek = self.curve.time(place.track.abs_diff(track), self.layout.tracks());
        if write && seek > 0 {
            seek += self.spec.write_settle;
        }
        seek + self.layout.wait(begin + seek, place.angle)
    }

    /// Moves the head and transfers; the time at the end.
    fn media(&mut self, begin: Nanos, offset: u64, len: u64, write: bool) -> Nanos {
        let begin = begin.max(self.free_at);
        let start = begin + self.positioning(begin, offset, write);
        let end = start + self.layout.transfer(offset, len);
        // The skew has taken the head to where the next byte lies, on the next track if need be.
        self.track = self.layout.place(offset + len).track;
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
        self.media(begin, access.offset, access.len, false).max(begin + interface)
    }

    /// A write into the disk's cache, which makes room first if it must.
    fn serve_cached_write(&mut self, begin: Nanos, access: &Access) -> Nanos {
        let mut begin = begin;
        while self.cached_bytes + access.len > self.spec.write_cache_bytes {
            begin = begin.max(self.free_at);
            if !self.destage_nearest(begin) {
                return self.media(begin, access.offset, access.len, true);
            }
            begin = begin.max(self.free_at);
        }
        let end = begin + access.len * SECOND / self.spec.interface_bytes_per_s;
        if self.cached.is_empty() {
            self.free_at = self.free_at.max(end);
        }
        let before = self.cached.insert(access.offset, access.len).unwrap_or(0);
        self.cached_bytes = self.cached_bytes - before + access.len;
        end
    }

    /// Writes the cached range that is reached first from `begin` on; false if there is none.
    fn destage_nearest(&mut self, begin: Nanos) -> bool {
        let cost = |(offset, _): &(&u64, &u64)| self.positioning(begin, **offset, true);
        let Some((&offset, &len)) = self.cached.iter().min_by_key(cost) else {
            return false;
        };
        self.cached.remove(&offset);
        self.cached_bytes -= len;
        self.media(begin, offset, len, true);
        true
    }
}

impl Model for Disk {
    fn parallel(&self) -> usize {
        1
    }

    fn pick(&self, now: Nanos, waiting: &[Access]) -> usize {
        let cost = |access: &Access| {
            let begin = self.begin(now, access);
            let place = match access.kind {
                StoreOpKind::Read => match self.ready_in_buffer(begin, access) {
                    Some((ready, _)) => ready - begin,
                    None => self.positioning(begin, access.offset, false),
                },
                StoreOpKind::Write { .. } if self.spec.write_cache_bytes > 0 => 0,
                StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } => {
                    self.positioning(begin, access.offset, true)
                }
                StoreOpKind::Flush | StoreOpKind::Discard => 0,
            };
            let waited = now.saturating_sub(access.arrived_at);
            (begin - now + place).cast_signed() - self.worth(waited).cast_signed()
        };
        let costs = waiting.iter().map(cost).enumerate();
        costs.min_by_key(|(index, cost)| (*cost, *index)).expect("never empty").0
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        let begin = self.begin(now, access);
        // Cached writes go to the platter while nobody asks for anything.
        while self.free_at < begin && self.destage_nearest(self.free_at) {}
        match access.kind {
            StoreOpKind::Read => self.serve_read(begin, access),
            StoreOpKind::Write { fua: false } if self.spec.write_cache_bytes > 0 => {
                self.serve_cached_write(begin, access)
            }
            StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } => {
                self.media(begin, access.offset, access.len, true)
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
