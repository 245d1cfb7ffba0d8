//! Simulations of the whole cache over a trace: every policy at every size in every write mode.

use super::table::first_columns;
use super::{Case, STEP, Size, StudyError, refused};
use crate::sim::engine::{
    CacheSimulationOptions, CacheSimulationResult, VolumeLengths, frames_of, simulate,
};
use crate::sim::sizing::{Progress, ProgressCallback};
use larder_core::cache::shards_for;
use larder_core::counters::{COUNTERS, Counter, Unit};
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Frames that each client may hold while it waits, in addition to a page: a part of a read.
const CLIENT_FRAMES: usize = 256;
/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// The simulations of a case.
#[derive(Debug)]
pub struct WholeStudy {
    /// Options of the simulations; memory, pages, policy and write mode are those of each
    /// simulation.
    pub options: CacheSimulationOptions,
    /// Sizes of the caches.
    pub sizes: Vec<Size>,
    /// The policies.
    pub policies: Vec<PolicyKind>,
    /// The write modes.
    pub write_modes: Vec<WriteMode>,
    /// Number of threads; the result does not depend on it.
    pub threads: NonZero<usize>,
    /// Parallelism of the machine, which determines the number of shards.
    pub cores: NonZero<usize>,
}

/// One simulation of a cache over a trace, and its outcome.
#[derive(Debug)]
pub struct Run {
    trace: String,
    options: CacheSimulationOptions,
    outcome: CacheSimulationResult,
}

/// Simulates every policy at every size in every write mode.
///
/// # Errors
/// The trace cannot be simulated, or a cache is too small.
pub fn run_whole(
    case: &Case<'_>,
    study: &WholeStudy,
    progress: &mut ProgressCallback<'_>,
) -> Result<Vec<Run>, StudyError> {
    let no_pages = || refused("simulate the whole cache without pages");
    let page_bytes = u64::from(case.page_bytes().ok_or_else(no_pages)?);
    let page_blocks = u32::try_from(page_bytes / BLOCK_BYTES_U64).unwrap_or(PAGE_BLOCKS_MAX);
    if page_blocks == 0 {
        return Err(refused(format!(
            "simulate the whole cache with pages of {page_bytes} bytes: the minimum is 4KiB"
        )));
    }
    let lengths = VolumeLengths::of(&mut case.source()?)?;
    if lengths.requests() == 0 {
        return Err(refused(format!("simulate {}: it has no request", case.name)));
    }
    let is_relative = study.sizes.iter().any(|size| matches!(size, Size::Percent(_)));
    let pages = if is_relative { case.footprint()? } else { 0 };
    let clients = study.options.clients;
    let frames_min = (clients * CLIENT_FRAMES) as u64 + 2 * u64::from(page_blocks);
    let mut plan = Vec::new();
    for size in &study.sizes {
        let bytes = size.pages(case.page_bytes(), pages)?.saturating_mul(page_bytes);
        let frames = frames_of(bytes);
        if u64::from(frames) < frames_min {
            return Err(refused(format!(
                "simulate a cache of {}: with {} the minimum is {}KiB",
                format::bytes(bytes),
                format::counted(clients as u64, "client"),
                frames_min * (BLOCK_BYTES_U64 >> 10)
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
    let outcomes = run_plan(case, &lengths, &plan, study.threads, progress)?;
    let to_run = |(options, outcome)| Run { trace: case.name.clone(), options, outcome };
    Ok(plan.into_iter().zip(outcomes).map(to_run).collect())
}

/// Runs the plan on some threads; returns the outcomes in its order.
fn run_plan(
    case: &Case<'_>,
    lengths: &VolumeLengths,
    plan: &[CacheSimulationOptions],
    threads: NonZero<usize>,
    progress: &mut ProgressCallback<'_>,
) -> Result<Vec<CacheSimulationResult>, StudyError> {
    let total = lengths.requests() * plan.len() as u64;
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let outcomes = Mutex::new((0..plan.len()).map(|_| None).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let (running, all_finished) = mpsc::channel::<()>();
        for _ in 0..threads.get().min(plan.len()) {
            let running = running.clone();
            let (next, done, outcomes) = (&next, &done, &outcomes);
            scope.spawn(move || {
                let _running = running;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(options) = plan.get(index) else { break };
                    let count = |requests| {
                        done.fetch_add(requests, Ordering::Relaxed);
                    };
                    let outcome = case
                        .source()
                        .and_then(|mut source| Ok(simulate(&mut source, lengths, options, count)?));
                    outcomes.lock().expect("no holder panics")[index] = Some(outcome);
                }
            });
        }
        drop(running);
        while all_finished.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            progress(Progress { step: STEP, done: done.load(Ordering::Relaxed), total });
        }
    });
    let outcomes = outcomes.into_inner().expect("no holder panics");
    outcomes.into_iter().map(|outcome| outcome.expect("each was run")).collect()
}

impl Run {
    /// Returns the first cells of a row, which all forms of the table have.
    fn common_cells(&self) -> Vec<Cell> {
        let CacheSimulationOptions { frames, page_blocks, policy, write_mode, store, .. } =
            self.options;
        let totals = &self.outcome.totals;
        vec![
            Cell::word(&self.trace),
            Cell::word(policy.name()),
            Cell::bytes(u64::from(frames) * BLOCK_BYTES_U64),
            Cell::bytes(u64::from(page_blocks) * BLOCK_BYTES_U64),
            Cell::count(totals.read_pages() + totals.write_pages()),
            Cell::percent(totals.read_hit_ratio()),
            Cell::word(write_mode.name()),
            Cell::word(store.name()),
            Cell::duration(self.outcome.elapsed),
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
        Column::words("write_mode", "writes"),
        Column::words("store", "store"),
        Column::numbers("elapsed_ns", "time"),
    ];
    first_columns("read hits").into_iter().chain(others)
}

/// Counters of the short table.
const SHORT_COLUMNS: [(Counter, &str); 9] = [
    (Counter::ReadMiss, "misses"),
    (Counter::ReadAheadHit, "ahead hits"),
    (Counter::ReadAheadWait, "waits"),
    (Counter::WriteAbsorbed, "absorbed"),
    (Counter::EvictedPages, "evicted"),
    (Counter::StoreReads, "reads"),
    (Counter::StoreReadBytes, "read"),
    (Counter::StoreWrites, "writes"),
    (Counter::StoreWriteBytes, "written"),
];

/// Returns the table of the runs for people.
#[must_use]
pub fn short_table(runs: &[Run]) -> Table {
    let short =
        SHORT_COLUMNS.map(|(counter, title)| Column::numbers(counter.meaning().name, title));
    let mut table = Table::new("", common_columns().chain(short));
    for run in runs {
        let counters = SHORT_COLUMNS.map(|(counter, _)| run.counter(counter));
        table.push(run.common_cells().into_iter().chain(counters));
    }
    table
}

/// Returns the table of the runs with every counter of the catalogue.
#[must_use]
pub fn full_table(runs: &[Run]) -> Table {
    let counters =
        COUNTERS.iter().map(|definition| Column::numbers(definition.name, definition.name));
    let unclean = Column::numbers("unclean_blocks", "unclean_blocks");
    let mut table = Table::new("", common_columns().chain(counters).chain([unclean]));
    for run in runs {
        let counters = Counter::ALL.map(|counter| run.counter(counter));
        let unclean = Cell::count(run.outcome.unclean_blocks);
        table.push(run.common_cells().into_iter().chain(counters).chain([unclean]));
    }
    table
}
