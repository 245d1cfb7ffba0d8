//! Simulations of the whole cache of a server over the trace, at the sizes of a step.
//!
//! The size is searched in these simulations if the trace is short enough for them; otherwise by
//! replacement alone, and only the effects of the recommended cache are those of a server.

use super::{Open, Options, PAGE_SIZES, Progress, ProgressCallback, SizingContext, SizingError};
use crate::sim::engine::{
    self, CacheSimulationOptions, CacheSimulationResult, Clients, PARTS, Pace, PartReads,
    StoreModel, VolumeLengths,
};
use larder_core::cache::{METADATA_BYTES_PER_FRAME, shards_for};
use larder_core::counters::{Counter, Latency};
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_schema::format;
use larder_schema::share;
use larder_schema::sizing::{ServerModel, ServerRun};
use std::num::NonZero;

/// Maximum references that the simulations of a search take together, unless another is set: about
/// a minute of work.
pub const SEARCH_REFERENCES_MAX: u64 = 100_000_000;
/// Simulations of a full search, and of one with fewer sizes and policies.
const FULL_RUNS: u64 = 90;
const COARSE_RUNS: u64 = 40;
/// Minimum number of pages of 4 KiB of a simulated cache.
pub(super) const PAGES_MIN: u32 = 512;
/// Maximum memory of the tables of a simulated cache.
const TABLES_MAX: u64 = 1 << 30;
/// One request is in flight at a time.
const CLIENTS: Clients = Clients::synchronous(1);

/// The server whose work is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The write mode.
    pub write_mode: WriteMode,
    /// The model of the store.
    pub store: StoreModel,
    /// Parallelism of the machine, which determines the number of shards.
    pub cores: NonZero<usize>,
    /// Maximum references that the simulations of a search take together.
    pub search_references_max: u64,
}

/// The work of a server, and its reads by part of the trace.
pub(super) type ServerResult = (ServerRun, [PartReads; PARTS]);

/// Extent of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Sizes half an octave apart, and more around the goal.
    Full,
    /// Sizes an octave apart, and more around the goal.
    Coarse,
}

/// Simulations of a server over the trace.
#[derive(Clone, Debug)]
pub(super) struct Server {
    options: ServerOptions,
    lengths: VolumeLengths,
    /// The extent of the search; `None` if the trace is too long for one.
    pub(super) search: Option<Extent>,
    /// Page size of the caches of the search, an index in [`PAGE_SIZES`].
    pub(super) page_size: usize,
}

impl Server {
    /// Returns the server of the options, or the reason why it cannot be simulated over the trace.
    pub(super) fn of(
        open: &Open<'_>,
        options: &Options,
        survey: &super::survey::TraceProperties,
    ) -> Result<Option<Result<Server, String>>, SizingError> {
        let Some(server) = options.server else { return Ok(None) };
        let footprint = survey.footprints[0].pages;
        let tables = METADATA_BYTES_PER_FRAME as u64 * footprint;
        let reason = if survey.sample > 1 {
            Some("the trace is a sample".to_owned())
        } else if survey.reads == 0 {
            Some("the trace has no read".to_owned())
        } else if footprint < 2 * u64::from(PAGES_MIN) {
            Some("the trace touches less than the smallest cache holds".to_owned())
        } else if tables > TABLES_MAX {
            Some(format!("its tables would take more than {}", format::bytes(TABLES_MAX)))
        } else {
            None
        };
        if let Some(reason) = reason {
            return Ok(Some(Err(reason)));
        }
        let lengths = match open().map_err(Into::into).and_then(|mut it| VolumeLengths::of(&mut it))
        {
            Ok(lengths) => lengths,
            Err(engine::CacheSimulationError::Trace(error)) => return Err(error.into()),
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        let fits = |runs| survey.references[0].saturating_mul(runs) <= server.search_references_max;
        let search = if options.sampled || !fits(COARSE_RUNS) {
            None
        } else if fits(FULL_RUNS) {
            Some(Extent::Full)
        } else {
            Some(Extent::Coarse)
        };
        Ok(Some(Ok(Server { options: server, lengths, search, page_size: 0 })))
    }

    /// Returns the description of the server for the result.
    pub(super) fn model(&self, is_searched: bool) -> ServerModel {
        ServerModel {
            write_mode: self.options.write_mode.name().to_owned(),
            store: self.options.store.name().into_owned(),
            is_searched,
        }
    }

    /// Simulates caches, given by policy and memory in pages of 4 KiB, with a page size, which is
    /// an index in [`PAGE_SIZES`]. Returns the work of each, and its reads by part of the trace.
    pub(super) fn run(
        &self,
        context: &SizingContext<'_>,
        (caches, page_size): (&[(PolicyKind, u32)], usize),
        step: &'static str,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<Vec<ServerResult>, SizingError> {
        let cache = |&(policy, pages)| self.cache(policy, pages, PAGE_SIZES[page_size]);
        let plan: Vec<_> = caches.iter().map(cache).collect();
        let total = self.lengths.requests() * plan.len() as u64;
        let mut report = |done| progress(Progress { step, done, total });
        let threads = context.options.threads;
        let results =
            engine::simulate_all(context.open, &self.lengths, &plan, threads, &mut report)?;
        Ok(results.iter().map(|result| (server_run(result), result.parts)).collect())
    }

    fn cache(&self, policy: PolicyKind, pages: u32, page_bytes: u32) -> CacheSimulationOptions {
        let page_blocks = page_blocks(page_bytes);
        let frames = pages / page_blocks * page_blocks;
        CacheSimulationOptions {
            frames,
            shards: shards_for(frames, self.options.cores.get()),
            page_blocks,
            policy: policy.into(),
            write_mode: self.options.write_mode,
            store: self.options.store,
            clients: CLIENTS,
            pace: Pace::CLOSED,
            wake: 0,
            reply: 0,
            hint: Hint::Normal,
            tunables: Tunables::default(),
            page_cache: None,
        }
    }
}

fn page_blocks(page_bytes: u32) -> u32 {
    page_bytes / u32::try_from(BLOCK_BYTES_U64).expect("4096")
}

/// Returns the minimum memory of a simulated cache, in pages of 4 KiB.
pub(super) fn pages_min(page_bytes: u32) -> u64 {
    engine::frames_min(CLIENTS, page_blocks(page_bytes))
}

fn server_run(result: &CacheSimulationResult) -> ServerRun {
    let totals = &result.totals;
    let sum = |counters: [Counter; 4]| counters.iter().map(|&it| totals.get(it)).sum();
    let hits =
        [Counter::FastReads, Counter::CopyReadHits, Counter::MapReadHits, Counter::GatherReadHits];
    let all = [Counter::FastReads, Counter::CopyReads, Counter::MapReads, Counter::GatherReads];
    let time = |latency, q| totals.latency(latency).quantile(q);
    ServerRun {
        read_hit_ratio: totals.read_hit_ratio().unwrap_or(0.0),
        request_hit_ratio: share(sum(hits), sum(all)).unwrap_or(0.0),
        waiting_pages: totals.read_pages() - totals.read_hits(),
        read_bytes: totals.get(Counter::StoreReadBytes),
        written_bytes: totals.get(Counter::StoreWriteBytes),
        read_p50_ns: time(Latency::Read, 0.5),
        read_p99_ns: time(Latency::Read, 0.99),
        read_p999_ns: time(Latency::Read, 0.999),
        write_p99_ns: time(Latency::Write, 0.99),
        elapsed_ns: result.elapsed,
    }
}

#[cfg(test)]
mod tests;
