//! The whole cache over a trace: the engine's own code on a virtual clock, with pages in parts,
//! write modes, the lazy writer, the dirty limit, several clients and a modelled store.
//!
//! What comes out are the engine's counters. With one client and write-through nothing depends on
//! time, and the counters are those of a server that the trace is replayed to; otherwise they
//! depend on how fast the store is, as they do there.
//!
//! Volumes are as long as the trace reaches, rounded up to a page of 1 MiB. Requests beyond 4 KiB
//! borders are cut as the NBD server cuts them. Sizes are bytes, times are nanoseconds.

use crate::cache_simulation::{CacheSimulation, RehearsalError, Request};
use crate::model::{Capped, CappedSpec, Disk, Fixed, ModelledStore, VoidStore};
use crate::trace::{Addressing, Op, Record, Source, TraceError};
use larder_core::clock::Nanos;
use larder_core::counters::Totals;
use larder_core::curve::report::CurveReport;
use larder_core::frames::NoFrames;
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::store::{Geometry, Store};
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;

/// Volumes end at a multiple of the largest page.
const LENGTH_STEP: u64 = 1 << 20;
/// Maximum length of a volume: the last multiple that a cache takes.
const LENGTH_MAX: u64 = larder_core::volume::LENGTH_MAX / LENGTH_STEP * LENGTH_STEP;
/// Maximum number of volumes in a simulation: each has a store, queues and a curve.
const VOLUMES_MAX: usize = 4096;
/// An object takes at least this much room of the volume that stands for a trace of objects.
const SECTOR_BYTES: u64 = 512;

/// What lies behind the simulated cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreModel {
    /// Takes no time.
    Instant,
    /// Takes this time for each operation, however many there are.
    Fixed(Nanos),
    /// One rotating disk of 7,200 rpm.
    Disk,
    /// The default kind of a cloud's volumes.
    CloudGeneral,
    /// The cheapest kind of a cloud's volumes.
    CloudStandard,
}

impl StoreModel {
    /// Those that have a name alone, in the order of the documentation.
    pub const NAMED: [StoreModel; 4] = [
        StoreModel::Instant,
        StoreModel::Disk,
        StoreModel::CloudGeneral,
        StoreModel::CloudStandard,
    ];

    /// Its name on the command line; a fixed one is followed by its time there.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreModel::Instant => "instant",
            StoreModel::Fixed(_) => "fixed",
            StoreModel::Disk => "disk",
            StoreModel::CloudGeneral => "cloud-general",
            StoreModel::CloudStandard => "cloud-standard",
        }
    }

    fn build(self, geometry: Geometry) -> Box<dyn Store<NoFrames>> {
        let void = VoidStore::new(geometry);
        match self {
            StoreModel::Instant => Box::new(void),
            StoreModel::Fixed(time) => Box::new(ModelledStore::new(void, Fixed(time))),
            StoreModel::Disk => {
                let disk = Disk::seven_thousand_two_hundred(geometry.length);
                Box::new(ModelledStore::new(void, disk))
            }
            StoreModel::CloudGeneral => {
                Box::new(ModelledStore::new(void, Capped::new(CappedSpec::general_purpose())))
            }
            StoreModel::CloudStandard => {
                Box::new(ModelledStore::new(void, Capped::new(CappedSpec::standard())))
            }
        }
    }
}

/// When requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as a client is free.
    Closed {
        /// Nanoseconds between one request and the next, at least, whoever makes it: what all
        /// clients together and the front end need for each.
        gap: Nanos,
        /// Nanoseconds between an answer and the next request of the same client.
        think: Nanos,
    },
    /// At the times of the trace, or as soon after as a client is free.
    Recorded,
}

/// The cache that is simulated.
#[derive(Clone, Debug)]
pub struct WholeOptions {
    /// Memory for blocks, in frames of 4 KiB.
    pub frames: u32,
    /// Parts of the cache; see `larder_core::cache::shards_for`.
    pub shards: usize,
    /// Blocks of 4 KiB in a page, a power of two up to 256.
    pub page_blocks: u32,
    /// The replacement policy.
    pub policy: PolicyKind,
    /// The write mode.
    pub write_mode: WriteMode,
    /// What lies behind.
    pub store: StoreModel,
    /// Requests that may be under way at a time, each on a connection of its own.
    pub clients: usize,
    /// When requests are made.
    pub pace: Pace,
    /// How the volumes will be read.
    pub hint: Hint,
    /// Constants of the lazy writer, the dirty limit and read-ahead.
    pub tunables: Tunables,
}

/// What came out.
#[derive(Debug)]
pub struct WholeOutcome {
    /// The counters of all volumes together.
    pub totals: Totals,
    /// From the first request to the answer of the last, as far as stores and pauses of writers
    /// take time.
    pub elapsed: Nanos,
    /// Blocks that were not in the store at that moment.
    pub unclean_blocks: u64,
    /// What the cache knew of each volume at that moment, if it followed it.
    pub curves: Vec<Option<CurveReport>>,
}

/// Why a simulation of the whole cache ended, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum WholeError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The cache failed a request.
    #[error(transparent)]
    Rehearsal(#[from] RehearsalError),
    /// The trace names objects.
    #[error("simulate the whole cache over a trace of objects: it has no places in a volume")]
    Objects,
    /// The trace asks for something beyond what a volume can be.
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
}

/// How long the volumes of a trace are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// By number of the volume; 0 where it is never asked for bytes.
    lengths: Vec<u64>,
    requests: u64,
}

impl Lengths {
    /// Reads all of `source` to find out.
    ///
    /// # Errors
    /// The source fails, is of objects, or reaches too far.
    pub fn of(source: &mut dyn Source) -> Result<Lengths, WholeError> {
        if source.addressing() == Addressing::Objects {
            return Err(WholeError::Objects);
        }
        let mut found = Lengths::default();
        let mut batch = Vec::new();
        while source.next_batch(&mut batch)? {
            for record in &batch {
                found.reach(record)?;
            }
            found.requests += batch.len() as u64;
        }
        Ok(found)
    }

    /// Requests of the trace.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn reach(&mut self, record: &Record) -> Result<(), WholeError> {
        let end = record.offset.saturating_add(record.len).max(SECTOR_BYTES);
        if end > LENGTH_MAX {
            return Err(WholeError::TooFar { end });
        }
        let volume = record.volume as usize;
        if volume >= VOLUMES_MAX {
            return Err(WholeError::TooManyVolumes);
        }
        if volume >= self.lengths.len() {
            self.lengths.resize(volume + 1, 0);
        }
        self.lengths[volume] = self.lengths[volume].max(end.next_multiple_of(LENGTH_STEP));
        Ok(())
    }
}

/// Plays `source`, whose volumes are so long, to a simulated cache. A read-only cache gets no
/// request that changes data: a server refuses them, and they change nothing in its cache.
///
/// # Errors
/// The source fails, or asks for what `lengths` do not have.
pub fn simulate(
    source: &mut dyn Source,
    lengths: &Lengths,
    options: &WholeOptions,
    mut progress: impl FnMut(u64),
) -> Result<WholeOutcome, WholeError> {
    let mut rehearsal = build(lengths, options);
    let begin = rehearsal.now();
    let mut next = begin;
    let mut batch = Vec::new();
    while source.next_batch(&mut batch)? {
        for record in &batch {
            let is_refused = options.write_mode == WriteMode::ReadOnly && changes(record.op);
            let Some(request) = request(record).filter(|_| !is_refused) else { continue };
            match options.pace {
                Pace::Recorded => rehearsal.pass(begin + record.time_ns)?,
                Pace::Closed { .. } => rehearsal.pass(next)?,
            }
            let think = match options.pace {
                Pace::Closed { think, .. } => think,
                Pace::Recorded => 0,
            };
            let client = rehearsal.wait_for_idle(think)?;
            rehearsal.begin(client, &request)?;
            if let Pace::Closed { gap, .. } = options.pace {
                // Were no time to pass, all pages would be equally old.
                next = rehearsal.now() + gap.max(1);
            }
        }
        progress(batch.len() as u64);
    }
    rehearsal.wait_for_all()?;
    let elapsed = rehearsal.now() - begin;
    let unclean_blocks = (0..lengths.lengths.len()).map(|v| rehearsal.unclean_blocks(v)).sum();
    let curves = (0..lengths.lengths.len()).map(|volume| rehearsal.curve(volume)).collect();
    let mut totals = Totals::default();
    for volume in rehearsal.finish() {
        totals.add(&volume);
    }
    Ok(WholeOutcome { totals, elapsed, unclean_blocks, curves })
}

fn build(lengths: &Lengths, options: &WholeOptions) -> CacheSimulation<Box<dyn Store<NoFrames>>> {
    let volume = |(number, &length): (usize, &u64)| {
        // A volume that is only flushed has a length all the same.
        let length = length.max(LENGTH_STEP);
        let granule = u32::try_from(SECTOR_BYTES).expect("a sector");
        let geometry = Geometry { length, granule, read_only: false };
        let mut of = VolumeOptions::new(number.to_string(), geometry);
        of.page_blocks = options.page_blocks;
        of.policy = options.policy;
        of.write_mode = options.write_mode;
        of.hint = options.hint;
        of.tunables = options.tunables.clone();
        (of, options.store.build(geometry))
    };
    let volumes = lengths.lengths.iter().enumerate().map(volume);
    CacheSimulation::new(options.frames, options.shards, volumes, options.clients)
}

/// A record as a request; `None` if it asks for nothing.
fn request(record: &Record) -> Option<Request> {
    let Record { volume, op, offset, len, .. } = *record;
    let request = Request { volume: volume as usize, op, offset, len };
    (op == Op::Flush || len > 0).then_some(request)
}

/// True if the requests change data.
fn changes(op: Op) -> bool {
    matches!(op, Op::Write | Op::Discard | Op::Zero)
}

/// Frames that so many bytes of memory for blocks are.
#[must_use]
pub fn frames_of(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
