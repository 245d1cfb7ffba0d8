//! Simulation of the whole cache over a trace: the production engine on a virtual clock, with
//! partially valid pages, write modes, the lazy writer, the dirty limit, several clients and a
//! modeled store.
//!
//! The result is the engine's counters. With one client and write-through nothing depends on time,
//! and the counters are those of a server to which the trace is replayed; otherwise they depend on
//! the speed of the store, as on a server.
//!
//! A volume ends at the highest byte of its requests, rounded up to a page of 1 MiB. Requests are
//! split at 4 KiB boundaries as the NBD server splits them. Sizes are bytes, times are nanoseconds.

mod layers;
mod runs;

pub use layers::{PageCache, PageCachePlace, PageCacheResult};
pub use runs::simulate_all;

use crate::cache_simulation::{CacheSimulation, Request, SimulationError};
pub use crate::cache_simulation::{Clients, RequestTime};
pub use crate::model::StoreModel;
use crate::trace::{Addressing, Op, Record, Source, TraceError};
use larder_core::clock::{Nanos, SECOND};
use larder_core::counters::Totals;
use larder_core::curve::choice::PolicyChoice;
use larder_core::curve::report::CurveReport;
use larder_core::frames::NoFrames;
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::store::{Geometry, Store};
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use layers::Layers;

/// The length of a volume is a multiple of the largest page.
const LENGTH_STEP: u64 = 1 << 20;
/// Maximum length of a volume: the largest multiple that a cache accepts.
const LENGTH_MAX: u64 = larder_core::volume::LENGTH_MAX / LENGTH_STEP * LENGTH_STEP;
/// Maximum number of volumes in a simulation: each has a store, queues and a curve.
const VOLUMES_MAX: usize = 4096;
/// Frames that each client may hold while it waits, in addition to a page: a part of a read.
const CLIENT_FRAMES: usize = 256;
/// Number of parts of the trace with reads of their own.
pub const PARTS: usize = 8;
/// Granule of a volume, and the minimum end of a request.
const SECTOR_BYTES: u64 = 512;

/// Arrival times of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each client makes its next request as soon as it has room for one.
    Closed {
        /// Minimum time between two requests of any clients: the time that all clients together
        /// and the front end need for the first one.
        gap: RequestTime,
        /// Time between a reply and the next request in its place.
        think: RequestTime,
    },
    /// Requests arrive at the times of the trace, or as soon afterwards as a client has room.
    Recorded,
}

impl Pace {
    /// Requests of clients and of a front end that need no time.
    pub const CLOSED: Pace = {
        const NONE: RequestTime = RequestTime { fixed: 0, bytes_per_s: None };
        Pace::Closed { gap: NONE, think: NONE }
    };
}

/// Options of the simulated cache.
#[derive(Clone, Debug)]
pub struct CacheSimulationOptions {
    /// Memory for blocks, in frames of 4 KiB.
    pub frames: u32,
    /// Number of shards; see `larder_core::cache::shards_for`.
    pub shards: usize,
    /// Blocks of 4 KiB in a page, a power of two up to 256.
    pub page_blocks: u32,
    /// The replacement policy.
    pub policy: PolicyChoice,
    /// The write mode.
    pub write_mode: WriteMode,
    /// The store model.
    pub store: StoreModel,
    /// The clients.
    pub clients: Clients,
    /// Arrival times of the requests.
    pub pace: Pace,
    /// Time from the first queued operation until the store takes the queued operations.
    pub wake: Nanos,
    /// Time from the end of a request that has waited for the store until its client gets the
    /// reply.
    pub reply: Nanos,
    /// Expected access pattern of the volumes.
    pub hint: Hint,
    /// Constants of the lazy writer, the dirty limit and read-ahead.
    pub tunables: Tunables,
    /// The page cache of the host, if there is one.
    pub page_cache: Option<PageCache>,
}

/// The results of a simulation.
#[derive(Debug)]
pub struct CacheSimulationResult {
    /// The counters of all volumes together.
    pub totals: Totals,
    /// The counters of the cache that the clients use: the same, or those of a page cache above.
    pub of_clients: Totals,
    /// The result of the page cache, if there is one.
    pub page_cache: Option<PageCacheResult>,
    /// Time from the first request to the last reply, as far as stores and write throttling take
    /// time.
    pub elapsed: Nanos,
    /// Blocks that were not in the store at the end.
    pub unclean_blocks: u64,
    /// The reads of each of [`PARTS`] equal parts of the trace, by references.
    pub parts: [PartReads; PARTS],
    /// The curve report of each volume at the end, if the cache tracked the volume.
    pub curves: Vec<Option<CurveReport>>,
}

/// The reads of a part of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartReads {
    /// References to pages of 4 KiB, by reads and writes.
    pub references: u64,
    /// Pages of reads that the cache has answered.
    pub pages: u64,
    /// Those that did not wait for the store.
    pub hits: u64,
}

/// A failed simulation of the whole cache, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum CacheSimulationError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The cache failed a request.
    #[error("simulate the whole cache: {0}")]
    Simulation(#[from] SimulationError),
    /// The trace names objects.
    #[error("simulate the whole cache over a trace of objects: it has no places in a volume")]
    Objects,
    /// A request of the trace reaches beyond the maximum length of a volume.
    #[error(
        "simulate the whole cache: a request reaches byte {end}, a volume has at most {LENGTH_MAX}"
    )]
    TooFar {
        /// The end of the request.
        end: u64,
    },
    /// The trace has too many volumes.
    #[error(
        "simulate the whole cache: a volume has a number above {}; select volumes with larder \
         trace filter --volume",
        VOLUMES_MAX - 1
    )]
    TooManyVolumes,
    /// The virtual clock reaches its end.
    #[error(
        "simulate the whole cache: the run takes more than 100 years; use faster clients, a \
         faster store or a shorter trace"
    )]
    TooLong,
}

/// Maximum virtual time of a run: 100 years.
const TIME_MAX: Nanos = 100 * 365 * 24 * 3600 * SECOND;

/// The lengths of the volumes of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeLengths {
    /// Length by volume number; 0 for a number without requests.
    lengths: Vec<u64>,
    requests: u64,
    /// References to pages of 4 KiB, by reads and writes.
    references: u64,
}

impl VolumeLengths {
    /// Reads all of `source` and determines the lengths.
    ///
    /// # Errors
    /// The source fails, has objects instead of bytes, or exceeds a limit.
    pub fn of(source: &mut dyn Source) -> Result<VolumeLengths, CacheSimulationError> {
        if source.addressing() == Addressing::Objects {
            return Err(CacheSimulationError::Objects);
        }
        let mut lengths = VolumeLengths::default();
        let mut batch = Vec::new();
        while source.next_batch(&mut batch)? {
            for record in &batch {
                lengths.include(record)?;
                lengths.references += references(record);
            }
            lengths.requests += batch.len() as u64;
        }
        Ok(lengths)
    }

    /// Returns the number of requests of the trace.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the first byte of each volume if they lie one after the other, and the end of the
    /// last one; at most `u64::MAX`.
    #[must_use]
    pub fn bases(&self) -> (Vec<u64>, u64) {
        let mut end = 0_u64;
        let base = |length: &u64| {
            let base = end;
            end = end.saturating_add(*length);
            base
        };
        (self.lengths.iter().map(base).collect(), end)
    }

    fn include(&mut self, record: &Record) -> Result<(), CacheSimulationError> {
        let end = record.end().max(SECTOR_BYTES);
        if end > LENGTH_MAX {
            return Err(CacheSimulationError::TooFar { end });
        }
        let volume = record.volume as usize;
        if volume >= VOLUMES_MAX {
            return Err(CacheSimulationError::TooManyVolumes);
        }
        if volume >= self.lengths.len() {
            self.lengths.resize(volume + 1, 0);
        }
        self.lengths[volume] = self.lengths[volume].max(end.next_multiple_of(LENGTH_STEP));
        Ok(())
    }
}

/// Replays `source`, whose volumes have `lengths`, on a simulated cache. A read-only cache gets no
/// request that changes data: a server refuses such requests, and they change nothing in its cache.
///
/// # Errors
/// The source fails, or has a request beyond `lengths`.
pub fn simulate(
    source: &mut dyn Source,
    lengths: &VolumeLengths,
    options: &CacheSimulationOptions,
    progress: impl FnMut(u64),
) -> Result<CacheSimulationResult, CacheSimulationError> {
    let store = |_, geometry| options.store.build(geometry);
    simulate_on(source, lengths, options, &store, progress)
}

/// Does the same on the stores that `store` returns for the number and the geometry of a volume,
/// instead of those of the model of `options`.
///
/// # Errors
/// See [`simulate`].
pub fn simulate_on(
    source: &mut dyn Source,
    lengths: &VolumeLengths,
    options: &CacheSimulationOptions,
    store: &dyn Fn(usize, Geometry) -> Box<dyn Store<NoFrames>>,
    mut progress: impl FnMut(u64),
) -> Result<CacheSimulationResult, CacheSimulationError> {
    let mut layers = Layers::new(lengths, options, store);
    let simulation = &mut layers.front;
    simulation.set_wake_time(options.wake);
    simulation.set_reply_time(options.reply);
    let begin = simulation.now();
    let mut next = begin;
    let mut parts = [PartReads::default(); PARTS];
    let (mut part, mut done) = (0, 0_u64);
    let mut end = part_end(lengths.references, part);
    let mut batch = Vec::new();
    while source.next_batch(&mut batch)? {
        for record in &batch {
            let references = references(record);
            done += references;
            parts[part].references += references;
            if done >= end && part + 1 < PARTS {
                parts[part].add_totals(simulation, lengths);
                part += 1;
                end = part_end(lengths.references, part);
            }
            let is_refused = options.write_mode == WriteMode::ReadOnly && record.op.changes();
            let Some(request) = request(record).filter(|_| !is_refused) else { continue };
            let (until, think) = match options.pace {
                Pace::Recorded => (begin + record.time_ns, RequestTime::default()),
                Pace::Closed { think, .. } => (next, think),
            };
            simulation.run_until(until)?;
            let client = simulation.wait_for_client(think)?;
            if simulation.now() - begin > TIME_MAX {
                return Err(CacheSimulationError::TooLong);
            }
            simulation.begin(client, &request)?;
            if let Pace::Closed { gap, .. } = options.pace {
                // If no time passed, all pages would have the same age.
                next = simulation.now().saturating_add(gap.of(request.transferred()).max(1));
            }
        }
        progress(batch.len() as u64);
    }
    simulation.wait_for_all()?;
    parts[part..].iter_mut().for_each(|part| part.add_totals(simulation, lengths));
    for at in (1..PARTS).rev() {
        let before = parts[at - 1];
        parts[at].pages -= before.pages;
        parts[at].hits -= before.hits;
    }
    let elapsed = simulation.now() - begin;
    let curves = (0..lengths.lengths.len()).map(|volume| simulation.curve(volume)).collect();
    let (totals, page_cache) = layers.results();
    let (of_clients, unclean_blocks) = (layers.front_totals(), layers.unclean_blocks());
    layers.front.finish();
    Ok(CacheSimulationResult {
        totals,
        of_clients,
        page_cache,
        elapsed,
        unclean_blocks,
        parts,
        curves,
    })
}

impl PartReads {
    /// Adds the reads of all volumes so far.
    fn add_totals<S: Store<NoFrames>>(
        &mut self,
        simulation: &CacheSimulation<S>,
        lengths: &VolumeLengths,
    ) {
        for volume in 0..lengths.lengths.len() {
            let totals = simulation.totals(volume);
            self.pages += totals.read_pages();
            self.hits += totals.read_hits();
        }
    }
}

/// Returns the number of references up to the end of a part.
fn part_end(references: u64, part: usize) -> u64 {
    let end = u128::from(references) * (part as u128 + 1) / PARTS as u128;
    u64::try_from(end).expect("a part of 64 bits")
}

/// Returns the pages of 4 KiB that a read or write touches; 0 for another request.
fn references(record: &Record) -> u64 {
    if !record.op.transfers() || record.len == 0 {
        return 0;
    }
    record.end().div_ceil(BLOCK_BYTES_U64) - record.offset / BLOCK_BYTES_U64
}

/// Converts a record to a request; `None` if the request is empty.
fn request(record: &Record) -> Option<Request> {
    let Record { volume, op, offset, len, .. } = *record;
    let request = Request { volume: volume as usize, op, offset, len };
    (op == Op::Flush || len > 0).then_some(request)
}

/// Returns the minimum number of frames of a simulated cache. If clients have several requests in
/// flight, their pieces take at most half of the memory, and further pins a quarter.
#[must_use]
pub fn frames_min(clients: Clients, page_blocks: u32) -> u64 {
    let pieces = if clients.depth > 1 { 2 } else { 1 };
    (clients.number * CLIENT_FRAMES * pieces) as u64 + 2 * u64::from(page_blocks)
}

/// Returns the number of frames of this many bytes of cache memory.
#[must_use]
pub fn frames_of(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
