//! What was seen of a machine, whoever looked.
//!
//! Invariants: `None` means that nobody looked, 0 that there was nothing. Pages have one size.
//! Moments come in their order.

use serde::Serialize;

/// The machine at a moment. Rates are those since the moment before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MachineSnapshot {
    /// Seconds since the beginning.
    pub at_s: f64,
    /// What the file cache holds.
    pub cache_bytes: Option<f64>,
    /// What of it is dirty, or on its way to the disk.
    pub dirty_bytes: Option<f64>,
    /// More may not be dirty: writers wait then.
    pub dirty_limit_bytes: Option<f64>,
    /// What programs can still have.
    pub available_bytes: Option<f64>,
    /// Pages read from disk since a program or the cache had lost them, per second.
    pub paging_per_s: Option<f64>,
    /// Bytes that the disk that wrote most has written, per second.
    pub written_per_s: Option<f64>,
    /// Share of the time in which that disk was at work, 0 to 1.
    pub busy_ratio: Option<f64>,
}

/// What was done to a file, or to a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileUse {
    /// Its name.
    pub file: String,
    /// Pages that were read, each counted once for each request.
    pub read_pages: u64,
    /// Of these, not resident.
    pub miss_pages: u64,
    /// Of these, resident because read-ahead had brought them, and touched for the first time.
    pub ahead_hit_pages: u64,
    /// Of those read, the ones that went on where the read before ended.
    pub sequential_pages: Option<u64>,
}

/// What a process did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessUse {
    /// Its name and number.
    pub process: String,
    /// Seconds that it was made to wait since too much was dirty.
    pub throttled_s: Option<f64>,
    /// Its own memory at each moment, bytes; empty if nobody looked.
    pub private_bytes: Vec<f64>,
}

/// Read-ahead as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReadAhead {
    /// Pages that it brought.
    pub brought_pages: u64,
    /// Of these, gone before anybody touched them.
    pub unused_pages: u64,
}

/// Writes into the cache, and what the lazy writer made of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Writes {
    /// Pages that became dirty.
    pub dirtied_pages: u64,
    /// Bursts of the lazy writer.
    pub bursts: u64,
    /// Pages that were written in them.
    pub burst_pages: u64,
}

/// The same data in two caches, one above the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layer {
    /// The cache near the program: a volume that larder serves, the files on a loop device.
    pub upper: String,
    /// What it holds.
    pub upper_bytes: f64,
    /// The file or device below it, which another cache holds too.
    pub lower: String,
    /// How much of that is resident.
    pub lower_bytes: f64,
}

/// Times of access that are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AccessTimes {
    /// Mounts on which reading changes the time of access.
    pub mounts: Vec<String>,
    /// Inodes that became dirty by nothing but reading.
    pub updates: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Observation {
    /// Who saw it: `perfmon`, `watch`, `trace`.
    pub source: String,
    /// How long.
    pub seconds: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Memory of the machine.
    pub memory_bytes: Option<f64>,
    /// Moments, evenly spread.
    pub moments: Vec<MachineSnapshot>,
    /// Files, those of which something is known.
    pub files: Vec<FileUse>,
    /// Processes.
    pub processes: Vec<ProcessUse>,
    /// Read-ahead.
    pub read_ahead: Option<ReadAhead>,
    /// Pages of files that were evicted to make room.
    pub evicted_pages: Option<u64>,
    /// Pages that came back after they had been evicted.
    pub refault_pages: Option<u64>,
    /// Writes.
    pub writes: Option<Writes>,
    /// Caches above each other; empty if there are none or nobody looked.
    pub layers: Vec<Layer>,
    /// Times of access.
    pub access_times: Option<AccessTimes>,
}

impl Observation {
    /// Pages that were read of all files.
    pub(super) fn read_pages(&self) -> u64 {
        self.files.iter().map(|file| file.read_pages).sum()
    }

    /// Pages that were missed of all files.
    pub(super) fn miss_pages(&self) -> u64 {
        self.files.iter().map(|file| file.miss_pages).sum()
    }

    /// What one field was at all moments that have it.
    pub(super) fn values(&self, field: fn(&MachineSnapshot) -> Option<f64>) -> Vec<f64> {
        self.moments.iter().filter_map(field).collect()
    }

    /// The fastest that was written in any part of the time, bytes per second; nothing if nothing
    /// was. The disk writes at least so fast.
    pub(super) fn write_speed(&self) -> Option<f64> {
        fastest(self.values(|moment| moment.written_per_s))
    }

    /// The same of those parts, of at least [`PART_S`], in which the disk was at work for at least
    /// this share of the time: hardly more can be asked of it.
    pub(super) fn write_speed_busy(&self, share: f64) -> Option<f64> {
        let places = 0..self.moments.len();
        let parts = places.filter_map(|first| self.part(first)).filter(|part| part.1 >= share);
        fastest(parts.map(|part| part.0).collect())
    }

    /// What was written per second, and how busy the disk was, from a moment on until the part of
    /// the time is long enough. Nothing if it never is.
    fn part(&self, first: usize) -> Option<(f64, f64)> {
        let (mut seconds, mut written, mut busy) = (0.0, 0.0, 0.0);
        let before = first.checked_sub(1).map_or(0.0, |place| self.moments[place].at_s);
        let mut from = before;
        for moment in &self.moments[first..] {
            let length = moment.at_s - from;
            from = moment.at_s;
            seconds += length;
            written += moment.written_per_s? * length;
            busy += moment.busy_ratio? * length;
            if seconds >= PART_S {
                return Some((written / seconds, busy / seconds));
            }
        }
        None
    }
}

/// Seconds of a part of the time that tells how fast a disk is: a slow one has only a few large
/// requests in each, and they are told when they are done.
const PART_S: f64 = 1.99;

fn fastest(speeds: Vec<f64>) -> Option<f64> {
    speeds.into_iter().max_by(f64::total_cmp).filter(|speed| *speed > 0.0)
}

/// The part of a whole; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { crate::advise::as_f64(part) / crate::advise::as_f64(whole) }
}

/// The mean; none of nothing.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    let count = crate::advise::as_f64(values.len() as u64);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}

/// Bytes for people.
pub(super) fn bytes(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = value.round() as u64;
    crate::format::bytes(whole)
}
