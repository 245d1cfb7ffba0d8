//! The requests to storage: those of a trace, or those of a cache in front of it.

use super::order::Sequences;
use crate::model::run_loop;
use crate::sim::engine::{
    CacheSimulationError, CacheSimulationOptions, VolumeLengths, simulate_on,
};
use crate::trace::{Op, Record, Source};
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};
use larder_core::units::as_f64;
use larder_schema::storage_advice::TrafficSummary;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum requests that are kept: 40 bytes each.
const REQUESTS_MAX: usize = 20_000_000;
/// Maximum bytes of all volumes: 256 PiB.
const BYTES_MAX: u64 = 1 << 58;
/// Maximum length of a request to a disk; longer ones are divided, as by the kernel
/// (`max_sectors_kb`).
const PIECE_BYTES: u64 = 1 << 20;
/// Windows of a sample, evenly spaced over the traffic.
const WINDOWS: usize = 10;
/// Flushes and requests without bytes take no part of the storage.
type Requests = Vec<DeviceRequest>;

/// A read or a write of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Time of its arrival.
    pub at: Nanos,
    /// Kind of the operation.
    pub kind: StoreOpKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// The requests to storage, in order of arrival. The volumes lie one after the other.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    requests: Requests,
    /// First byte of each volume.
    bases: Vec<u64>,
    /// Bytes of all volumes.
    bytes: u64,
    /// True if the requests have the times of a recording.
    has_times: bool,
}

/// The traffic cannot be determined, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The trace cannot be read or simulated.
    #[error(transparent)]
    Simulation(#[from] CacheSimulationError),
    /// There are too many requests.
    #[error(
        "advise on more than {REQUESTS_MAX} requests: select a part with larder trace filter \
         --from --to"
    )]
    TooMany,
    /// The volumes are too large.
    #[error(
        "advise on volumes of more than 256 PiB: select some with larder trace filter --volume"
    )]
    TooLarge,
    /// There are none.
    #[error("advise on a trace without reads and writes that reach the storage")]
    Empty,
}

impl Traffic {
    /// Returns the reads and writes of a trace whose volumes have `lengths`.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn of_trace(
        source: &mut dyn Source,
        lengths: &VolumeLengths,
    ) -> Result<Traffic, TrafficError> {
        let (bases, bytes) = bases(lengths)?;
        let (mut requests, mut batch) = (Requests::new(), Vec::new());
        while source.next_batch(&mut batch).map_err(CacheSimulationError::from)? {
            requests.extend(batch.iter().flat_map(|record| pieces(record, &bases)));
            if requests.len() > REQUESTS_MAX {
                return Err(TrafficError::TooMany);
            }
        }
        requests.sort_by_key(|request| request.at);
        Traffic { requests, bases, bytes, has_times: true }.checked()
    }

    /// Returns the reads and writes of a simulated cache in front of the store of `options`.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn behind_cache(
        source: &mut dyn Source,
        lengths: &VolumeLengths,
        options: &CacheSimulationOptions,
    ) -> Result<Traffic, TrafficError> {
        let (bases, bytes) = bases(lengths)?;
        let recorded = Arc::new(Mutex::new(Requests::new()));
        let store = |volume: usize, geometry: Geometry| -> Box<dyn Store<NoFrames>> {
            let (inner, requests) = (options.store.build(geometry), Arc::clone(&recorded));
            Box::new(RecordingStore { inner, base: bases[volume], requests })
        };
        simulate_on(source, lengths, options, &store, |_| ())?;
        let requests =
            std::mem::take(&mut *recorded.lock().unwrap_or_else(PoisonError::into_inner));
        if requests.len() > REQUESTS_MAX {
            return Err(TrafficError::TooMany);
        }
        Traffic { requests, bases, bytes, has_times: false }.checked()
    }

    /// Returns traffic of these requests to volumes of these lengths.
    pub(super) fn new(requests: Requests, lengths: &[u64]) -> Traffic {
        let (mut bases, mut bytes) = (Vec::new(), 0);
        for length in lengths {
            bases.push(bytes);
            bytes += length;
        }
        Traffic { requests, bases, bytes, has_times: true }
    }

    fn checked(self) -> Result<Traffic, TrafficError> {
        if self.requests.is_empty() { Err(TrafficError::Empty) } else { Ok(self) }
    }

    /// Returns all requests.
    #[must_use]
    pub fn requests(&self) -> &[DeviceRequest] {
        &self.requests
    }

    /// Returns the bytes that the storage must have.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of each volume.
    pub(super) fn volume_ranges(&self) -> Vec<Range<u64>> {
        let ends = self.bases.iter().skip(1).copied().chain([self.bytes]);
        self.bases.iter().zip(ends).map(|(start, end)| *start..end).collect()
    }

    /// Returns at most `count` requests: all, or those of evenly spaced windows.
    #[must_use]
    pub fn sample(&self, count: usize) -> Requests {
        let all = &self.requests;
        if all.len() <= count {
            return all.clone();
        }
        let window = (count / WINDOWS).max(1);
        let step = (all.len() - window) / (WINDOWS - 1);
        let windows = (0..WINDOWS).flat_map(|index| &all[index * step..index * step + window]);
        windows.copied().take(count).collect()
    }

    /// Returns the shares and the sizes of the requests.
    #[must_use]
    pub fn summary(&self) -> TrafficSummary {
        let mut summary = TrafficSummary { bytes: self.bytes, ..TrafficSummary::default() };
        let mut sequences = Sequences::new();
        for request in &self.requests {
            if request.kind == StoreOpKind::Read {
                summary.reads += 1;
                summary.read_bytes += request.len;
            } else {
                summary.writes += 1;
                summary.write_bytes += request.len;
            }
            sequences.include(request.offset, request.len);
        }
        if let [first, .., last] = &self.requests[..]
            && self.has_times
            && last.at > first.at
        {
            let seconds = as_f64(last.at - first.at) / 1e9;
            summary.recorded_per_s = Some(as_f64(self.requests.len() as u64) / seconds);
        }
        summary.sequential_share = as_f64(sequences.in_order) / as_f64(self.requests.len() as u64);
        summary
    }
}

/// Returns the first byte of each volume, and the bytes of all.
fn bases(lengths: &VolumeLengths) -> Result<(Vec<u64>, u64), TrafficError> {
    let (bases, bytes) = lengths.bases();
    if bytes <= BYTES_MAX { Ok((bases, bytes)) } else { Err(TrafficError::TooLarge) }
}

/// Returns the requests to the disks for a record: none unless it transfers.
fn pieces(record: &Record, bases: &[u64]) -> impl Iterator<Item = DeviceRequest> {
    let Record { time_ns: at, volume, offset, len, op, .. } = *record;
    let kind = match op {
        Op::Read => Some(StoreOpKind::Read),
        Op::Write => Some(StoreOpKind::Write { fua: false }),
        _ => None,
    };
    let start = bases[volume as usize] + offset;
    let end = start + len;
    let starts = (start..end).step_by(usize::try_from(PIECE_BYTES).expect("a MiB"));
    let piece = move |offset: u64| {
        let len = (end - offset).min(PIECE_BYTES);
        Some(DeviceRequest { at, kind: kind?, offset, len })
    };
    starts.filter_map(piece)
}

/// A store that records the reads and writes that it gets.
struct RecordingStore {
    inner: Box<dyn Store<NoFrames>>,
    base: u64,
    requests: Arc<Mutex<Requests>>,
}

impl fmt::Debug for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingStore").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Store<NoFrames> for RecordingStore {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        let transfers = matches!(op.kind, StoreOpKind::Read | StoreOpKind::Write { .. });
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // One more than allowed is an error later.
        if transfers && op.len > 0 && requests.len() <= REQUESTS_MAX {
            let (offset, len) = (self.base + op.offset, op.len);
            requests.push(DeviceRequest { at: now, kind: op.kind, offset, len });
        }
        drop(requests);
        self.inner.submit(now, frames, op);
    }

    fn reap(&mut self, now: Nanos, frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        self.inner.reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.inner.next_event()
    }
}

/// The result of traffic on a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunResult {
    pub(super) requests_per_s: f64,
    pub(super) mean_ns: f64,
}

/// Runs requests in order on a store, at most `depth` of them in flight.
pub(super) fn run_on(
    store: &mut dyn Store<NoFrames>,
    mut requests: impl Iterator<Item = DeviceRequest>,
    depth: usize,
) -> RunResult {
    let (mut count, mut time) = (0, 0);
    let next = |_| requests.next().map(|request| (request.kind, request.offset, request.len));
    let requests_per_s = run_loop(store, (depth, Nanos::MAX), next, |done| {
        count += 1;
        time += done.finished_at - done.started_at;
    });
    RunResult { requests_per_s, mean_ns: as_f64(time) / as_f64(count).max(1.0) }
}

/// Returns the geometry of a store of this many bytes, in whole MiB.
pub(super) fn geometry(bytes: u64) -> Geometry {
    Geometry { length: bytes.next_multiple_of(1 << 20), granule: 512, read_only: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_the_traffic() {
        let request = |number: u64| DeviceRequest {
            at: number,
            kind: StoreOpKind::Read,
            offset: number * 4096,
            len: 4096,
        };
        let traffic = Traffic::new((0..1_000).map(request).collect(), &[1 << 30]);
        let sample: Vec<u64> = traffic.sample(100).iter().map(|it| it.at).collect();
        assert_eq!((sample.len(), sample[0], sample[99]), (100, 0, 999));
        assert_eq!((sample[9], sample[10]), (9, 110));
        assert_eq!(traffic.sample(5_000).len(), 1_000);
        assert!((traffic.summary().sequential_share - 0.999).abs() < 1e-9);
    }
}
