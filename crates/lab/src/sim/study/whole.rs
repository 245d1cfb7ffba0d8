//! Simulations of the whole cache over a trace: every policy at every size in every write mode.

use super::table::first_columns;
use super::{Case, STEP, Size, StudyError, refused};
use crate::sim::engine::{
    CacheSimulationOptions, CacheSimulationResult, PageCachePlace, VolumeLengths, frames_min,
    frames_of, simulate_all,
};
use crate::sim::sizing::{Progress, ProgressCallback, memory_bytes};
use larder_core::cache::{METADATA_BYTES_PER_FRAME, shards_for};
use larder_core::clock::SECOND;
use larder_core::counters::{COUNTERS, Counter, Latency, Unit};
use larder_core::curve::choice::PolicyChoice;
use larder_core::mode::WriteMode;
use larder_core::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, as_f64};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use std::num::NonZero;

/// The simulations of a case.
#[derive(Debug)]
pub struct WholeStudy {
    /// Options of the simulations; memory, pages, policy and write mode are those of each
    /// simulation.
    pub options: CacheSimulationOptions,
    /// Sizes of the caches.
    pub sizes: Vec<Size>,
    /// The policies.
    pub policies: Vec<PolicyChoice>,
    /// The write modes.
    pub write_modes: Vec<WriteMode>,
    /// Number of threads; the result does not depend on it.
    pub threads: NonZero<usize>,
    /// Parallelism of the machine, which determines the number of shards.
    pub cores: NonZero<usize>,
    /// Available memory of the machine; the tables of the caches take at most half of it.
    pub available_bytes: u64,
    /// True if sizes that are too small are left out, with a note, instead of refused.
    pub skips_small: bool,
}

/// One simulation of a cache over a trace, and its outcome.
#[derive(Debug)]
pub struct Run {
    trace: String,
    options: CacheSimulationOptions,
    outcome: CacheSimulationResult,
}

/// Simulates every policy at every size in every write mode. `note` receives notes for the user,
/// one sentence each.
///
/// # Errors
/// The trace cannot be simulated, or a cache is too small.
pub fn run_whole(
    case: &Case<'_>,
    study: &WholeStudy,
    progress: &mut ProgressCallback<'_>,
    note: &mut dyn FnMut(String),
) -> Result<Vec<Run>, StudyError> {
    let no_pages = || refused("simulate the whole cache without pages");
    let page_bytes = u64::from(case.page_bytes().ok_or_else(no_pages)?);
    let page_blocks = u32::try_from(page_bytes / BLOCK_BYTES_U64).unwrap_or(PAGE_BLOCKS_MAX);
    if page_blocks == 0 {
        return Err(refused(format!(
            "simulate the whole cache with pages of {page_bytes} bytes: the minimum is 4KiB"
        )));
    }
    let mut source = case.source()?;
    let lengths = VolumeLengths::of(&mut source)?;
    source.notes().into_iter().for_each(&mut *note);
    if lengths.requests() == 0 {
        return Err(case.is_empty());
    }
    let is_relative = study.sizes.iter().any(|size| matches!(size, Size::Percent(_)));
    let pages = if is_relative { case.footprint()? } else { 0 };
    let clients = study.options.clients;
    let frames_min = frames_min(clients, page_blocks);
    let minimum = frames_min * (BLOCK_BYTES_U64 >> 10);
    let (mut plan, mut small_sizes) = (Vec::new(), 0);
    for size in &study.sizes {
        let bytes = u64::from(size.capacity(case.page_bytes(), pages)?).saturating_mul(page_bytes);
        let frames = frames_of(bytes);
        check_tables(study, bytes)?;
        if u64::from(frames) < frames_min {
            if study.skips_small {
                small_sizes += 1;
                continue;
            }
            return Err(refused(format!(
                "simulate a cache of {}: with {clients} the minimum is {minimum}KiB; choose a \
                 larger --size",
                format::bytes(bytes)
            )));
        }
        for &policy in &study.policies {
            plan.extend(study.write_modes.iter().map(|&write_mode| CacheSimulationOptions {
                frames,
                shards: shards_for(frames, study.cores.get()),
                page_blocks,
                policy,
                write_mode,
                ..study.options.clone()
            }));
        }
    }
    if small_sizes > 0 {
        let sizes = format::counted(small_sizes, "size");
        note(format!(
            "{}: {sizes} below {minimum}KiB left out, the minimum of the whole cache; --level \
             replacement has them",
            case.name
        ));
    }
    let total = lengths.requests() * plan.len() as u64;
    let outcomes = simulate_all(case.open, &lengths, &plan, study.threads, &mut |done| {
        progress(Progress { step: STEP, done, total });
    })?;
    let to_run = |(options, outcome)| Run { trace: case.name.clone(), options, outcome };
    Ok(plan.into_iter().zip(outcomes).map(to_run).collect())
}

/// Checks that the tables of all caches of this size that run at a time fit in memory.
fn check_tables(study: &WholeStudy, bytes: u64) -> Result<(), StudyError> {
    let of_page_cache = study.options.page_cache.map_or(0, |it| it.frames);
    let frames = u64::from(frames_of(bytes)) + u64::from(of_page_cache);
    let tables = frames * (METADATA_BYTES_PER_FRAME * study.threads.get()) as u64;
    if tables <= study.available_bytes / 2 {
        return Ok(());
    }
    Err(refused(format!(
        "simulate a cache of {}: its tables take {} of memory, and half of what is available is \
         {}; use a smaller --size or fewer --threads",
        format::bytes(bytes),
        format::bytes(tables),
        format::bytes(study.available_bytes / 2)
    )))
}

impl Run {
    /// Returns the first cells of a row, which all forms of the table have.
    fn common_cells(&self) -> Vec<Cell> {
        let CacheSimulationOptions { frames, page_blocks, policy, write_mode, store, .. } =
            &self.options;
        let memory = memory_bytes(*policy, u64::from(*frames));
        let totals = &self.outcome.totals;
        vec![
            Cell::word(&self.trace),
            Cell::word(policy.name()),
            Cell::bytes(u64::from(*frames) * BLOCK_BYTES_U64),
            Cell::bytes(u64::from(*page_blocks) * BLOCK_BYTES_U64),
            Cell::count(totals.read_pages() + totals.write_pages()),
            Cell::percent(totals.read_hit_ratio()),
            Cell::bytes(memory),
            Cell::word(write_mode.name()),
            Cell::word(store.name()),
            Cell::duration(self.outcome.elapsed),
        ]
    }

    /// Returns the sum of some counters per second of simulated time.
    fn rate(&self, counters: &[Counter]) -> Option<f64> {
        let of_clients = &self.outcome.of_clients;
        let sum = counters.iter().map(|&counter| of_clients.get(counter)).sum();
        let seconds = as_f64(self.outcome.elapsed) / as_f64(SECOND);
        (seconds > 0.0).then(|| as_f64(sum) / seconds)
    }

    fn request_rate(&self) -> Cell {
        Cell::number(self.rate(&REQUESTS))
    }

    /// Returns the response time that the share `q` of the requests does not exceed.
    fn response_time(&self, (latency, q): (Latency, f64)) -> Cell {
        Cell::duration(self.outcome.of_clients.latency(latency).quantile(q))
    }

    /// Returns the cells of the page cache; none without one.
    fn page_cache_cells(&self) -> Vec<Cell> {
        let (Some(cache), Some(result)) = (self.options.page_cache, &self.outcome.page_cache)
        else {
            return Vec::new();
        };
        let place = match cache.place {
            PageCachePlace::Above => "above",
            PageCachePlace::Below => "below",
        };
        let doubles = as_f64(result.double_blocks) / as_f64(result.blocks);
        vec![
            Cell::word(place),
            Cell::bytes(u64::from(cache.frames) * BLOCK_BYTES_U64),
            Cell::percent(result.totals.read_hit_ratio()),
            Cell::count(result.totals.get(Counter::StoreReads)),
            Cell::percent((result.blocks > 0).then_some(doubles)),
        ]
    }

    fn counter(&self, counter: Counter) -> Cell {
        let value = self.outcome.totals.get(counter);
        match counter.meaning().unit {
            Unit::Bytes => Cell::bytes(value),
            Unit::Nanoseconds => Cell::duration(value),
            Unit::Operations | Unit::Pages | Unit::Blocks => Cell::count(value),
        }
    }
}

fn common_columns() -> impl Iterator<Item = Column> {
    let others = [
        Column::numbers("memory_bytes", "--memory"),
        Column::words("write_mode", "write mode"),
        Column::words("store", "store"),
        Column::numbers("elapsed_ns", "time"),
    ];
    first_columns("read hits").into_iter().chain(others)
}

/// Returns the columns of the page cache; none if the runs have none.
fn page_cache_columns(runs: &[Run]) -> Vec<Column> {
    if runs.iter().all(|run| run.options.page_cache.is_none()) {
        return Vec::new();
    }
    vec![
        Column::words("page_cache", "page cache"),
        Column::numbers("page_cache_bytes", "its size"),
        Column::numbers("page_cache_read_hit_ratio", "its hits"),
        Column::numbers("page_cache_store_reads", "its reads"),
        Column::numbers("double_copies", "double copies"),
    ]
}

/// The requests of clients.
const REQUESTS: [Counter; 5] = [
    Counter::ReadRequests,
    Counter::WriteRequests,
    Counter::FlushRequests,
    Counter::DiscardRequests,
    Counter::ZeroRequests,
];

/// The quantiles of response times, with the keys of their columns.
const QUANTILES: [(&str, (Latency, f64)); 6] = [
    ("read_p50_ns", (Latency::Read, 0.5)),
    ("read_p99_ns", (Latency::Read, 0.99)),
    ("read_p999_ns", (Latency::Read, 0.999)),
    ("write_p50_ns", (Latency::Write, 0.5)),
    ("write_p99_ns", (Latency::Write, 0.99)),
    ("write_p999_ns", (Latency::Write, 0.999)),
];

/// Response times of the short table, with their titles.
const SHORT_QUANTILES: [(usize, &str); 2] = [(1, "read p99"), (4, "write p99")];

/// Counters of the short table.
const SHORT_COLUMNS: [(Counter, &str); 9] = [
    (Counter::ReadMiss, "misses"),
    (Counter::ReadAheadHit, "ahead hits"),
    (Counter::ReadAheadWait, "waits"),
    (Counter::WriteAbsorbed, "absorbed"),
    (Counter::EvictedPages, "evicted"),
    (Counter::StoreReads, "store reads"),
    (Counter::StoreReadBytes, "read"),
    (Counter::StoreWrites, "store writes"),
    (Counter::StoreWriteBytes, "written"),
];

/// Returns the table of the runs for people.
#[must_use]
pub fn short_table(runs: &[Run]) -> Table {
    let rate = Column::numbers("requests_per_s", "requests/s");
    let quantiles = SHORT_QUANTILES.map(|(at, title)| Column::numbers(QUANTILES[at].0, title));
    let short =
        SHORT_COLUMNS.map(|(counter, title)| Column::numbers(counter.meaning().name, title));
    let columns = common_columns().chain(page_cache_columns(runs));
    let columns = columns.chain([rate]).chain(quantiles).chain(short);
    let mut table = Table::new("", columns);
    for run in runs {
        let quantiles = SHORT_QUANTILES.map(|(at, _)| run.response_time(QUANTILES[at].1));
        let counters = SHORT_COLUMNS.map(|(counter, _)| run.counter(counter));
        let more = [run.request_rate()].into_iter().chain(quantiles).chain(counters);
        let first = run.common_cells().into_iter().chain(run.page_cache_cells());
        table.push(first.chain(more));
    }
    table
}

/// Returns the table of the runs with every counter of the catalogue.
#[must_use]
pub fn full_table(runs: &[Run]) -> Table {
    let counters = COUNTERS.iter().map(|definition| definition.name);
    let more = ["unclean_blocks", "requests_per_s", "bytes_per_s"];
    let names = counters.chain(more).chain(QUANTILES.map(|(key, _)| key));
    let columns = names.map(|name| Column::numbers(name, name));
    let first = common_columns().chain(page_cache_columns(runs));
    let mut table = Table::new("", first.chain(columns));
    for run in runs {
        let counters = Counter::ALL.map(|counter| run.counter(counter));
        let bytes = run.rate(&[Counter::ReadBytes, Counter::WriteBytes]);
        let unclean = Cell::count(run.outcome.unclean_blocks);
        let more = [unclean, run.request_rate(), Cell::mean_bytes(bytes)];
        let quantiles = QUANTILES.map(|(_, quantile)| run.response_time(quantile));
        let cells = counters.into_iter().chain(more).chain(quantiles);
        let first = run.common_cells().into_iter().chain(run.page_cache_cells());
        table.push(first.chain(cells));
    }
    table
}
