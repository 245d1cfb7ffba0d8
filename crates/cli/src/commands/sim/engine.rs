//! `larder sim --level whole`: the cache of the engine over the trace, on a virtual clock.

use super::case::Case;
use super::table::first_columns;
use super::{Policies, SimArgs};
use crate::args;
use anyhow::{Context, Result, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use larder_core::cache::shards_for;
use larder_core::counters::{COUNTERS, Counter};
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::tunables::{TUNABLES, Tunables};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use larder_lab::sim::engine::{
    Lengths, Pace, StoreModel, WholeOptions, WholeOutcome, frames_of, simulate,
};
use larder_report::table::{Cell, Column, Table};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Frames that each client may hold while it waits, in addition to a page: a part of a read.
const CLIENT_FRAMES: u32 = 256;
/// Interval at which the bar is updated.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(next_help_heading = "Whole cache (--level whole)")]
pub(super) struct EngineArgs {
    /// Write modes, separated by commas.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "back",
          value_parser = args::named::<WriteMode>)]
    write_mode: Vec<WriteMode>,

    /// Model of the store: instant, fixed:TIME (for each operation), disk (7,200 rpm),
    /// cloud-general (3,000 operations a second), cloud-standard (500).
    #[arg(long, value_name = "MODEL", value_parser = store, default_value = "disk")]
    store: StoreModel,

    /// Maximum number of requests in flight.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,

    /// Minimum time between two requests of any client, for the front end, for example 15us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = args::time)]
    gap: u64,

    /// Think time, from a reply to the next request of the same client, for example 100us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = args::time)]
    think: u64,

    /// Time of requests: as soon as a client is free, or at the times of the trace.
    #[arg(long, value_name = "PACE", default_value = "closed")]
    pace: PaceBy,

    /// Read-ahead, on or off.
    #[arg(long, value_name = "HOW", default_value = "on")]
    read_ahead: ReadAhead,

    /// Expected access pattern of the volumes: normal, sequential, random, no-buffering.
    #[arg(long, default_value = "normal", value_parser = args::named::<Hint>)]
    hint: Hint,

    /// Set a tunable (docs/TUNABLES.md), as NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::setting)]
    set: Vec<(String, u64)>,
}

/// The arguments, and the options that the command line contains.
#[derive(Debug)]
pub(super) struct ParsedEngineArgs {
    arguments: EngineArgs,
    /// The options as they are written.
    pub(super) option_names: Vec<String>,
}

impl Args for ParsedEngineArgs {
    fn augment_args(command: Command) -> Command {
        EngineArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        EngineArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for ParsedEngineArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = EngineArgs::augment_args(Command::new("whole"));
        let is_given = |arg: &&Arg| {
            let source = matches.value_source(arg.get_id().as_str());
            source == Some(ValueSource::CommandLine)
        };
        let option_names = command.get_arguments().filter(is_given).filter_map(Arg::get_long);
        let option_names = option_names.map(|long| format!("--{long}")).collect();
        Ok(ParsedEngineArgs { arguments: EngineArgs::from_arg_matches(matches)?, option_names })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ParsedEngineArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaceBy {
    Closed,
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReadAhead {
    On,
    Off,
}

fn store(text: &str) -> Result<StoreModel, String> {
    if let Some(time) = text.strip_prefix("fixed:") {
        return args::time(time).map(StoreModel::Fixed);
    }
    let names = StoreModel::NAMED.map(StoreModel::name).join(", ");
    let found = StoreModel::NAMED.into_iter().find(|model| model.name() == text);
    found.ok_or_else(|| format!("there is no store model \"{text}\"; one of fixed:TIME, {names}"))
}

/// One simulation of a cache over a trace, and its outcome.
#[derive(Debug)]
pub(super) struct Run {
    trace: String,
    options: WholeOptions,
    outcome: WholeOutcome,
}

/// Simulates every policy at every size in every write mode.
pub(super) fn run(case: &Case, policies: &Policies, arguments: &SimArgs) -> Result<Vec<Run>> {
    let engine_args = &arguments.whole.arguments;
    ensure!(!policies.min, "simulate the whole cache with \"min\": it is a bound, not a cache");
    let page_bytes = case.page_bytes().context("simulate the whole cache without pages")?;
    let page_blocks = page_bytes / u32::try_from(BLOCK_BYTES).expect("4 KiB");
    ensure!(
        page_blocks > 0,
        "simulate the whole cache with pages of {page_bytes} bytes: the least is 4KiB"
    );
    let tunables = tunables(engine_args)?;
    let lengths = Lengths::of(&mut case.source()?).context("simulate")?;
    ensure!(lengths.requests() > 0, "simulate {}: it has no request", case.name);
    let relative = arguments.size.iter().any(|size| size.is_relative());
    let pages = if relative { case.footprint()? } else { 0 };
    let mut plan = Vec::new();
    for size in &arguments.size {
        let bytes = size.pages(Some(page_bytes), pages)?.saturating_mul(u64::from(page_bytes));
        let frames = frames_of(bytes);
        let frames_min = u32::from(engine_args.clients) * CLIENT_FRAMES + 2 * page_blocks;
        ensure!(
            frames >= frames_min,
            "simulate a cache of {bytes} bytes: with {} clients the least is {} bytes",
            engine_args.clients,
            u64::from(frames_min) * BLOCK_BYTES_U64
        );
        for &policy in &policies.kinds {
            let with_mode = |&write_mode: &WriteMode| {
                let tunables = tunables.clone();
                options(engine_args, tunables, (frames, page_blocks), policy, write_mode)
            };
            plan.extend(engine_args.write_mode.iter().map(with_mode));
        }
    }
    let outcomes = run_plan(case, &lengths, &plan, arguments)?;
    let to_run = |(options, outcome)| Run { trace: case.name.clone(), options, outcome };
    Ok(plan.into_iter().zip(outcomes).map(to_run).collect())
}

fn tunables(engine_args: &EngineArgs) -> Result<Tunables> {
    let mut tunables = Tunables::default();
    for (name, value) in &engine_args.set {
        let known = TUNABLES.iter().map(|tunable| tunable.name);
        ensure!(
            known.clone().any(|known| known == name),
            "set {name}: {}",
            args::unknown("tunable", name, known)
        );
        tunables.set(name, *value).with_context(|| format!("set {name}"))?;
    }
    if engine_args.read_ahead == ReadAhead::Off {
        tunables.set("read-ahead-max", 0).context("read nothing ahead")?;
    }
    Ok(tunables)
}

fn options(
    engine_args: &EngineArgs,
    tunables: Tunables,
    (frames, page_blocks): (u32, u32),
    policy: PolicyKind,
    write_mode: WriteMode,
) -> WholeOptions {
    WholeOptions {
        frames,
        shards: shards_for(frames, args::cores().get()),
        page_blocks,
        policy,
        write_mode,
        store: engine_args.store,
        clients: engine_args.clients.into(),
        pace: match engine_args.pace {
            PaceBy::Closed => Pace::Closed { gap: engine_args.gap, think: engine_args.think },
            PaceBy::Recorded => Pace::Recorded,
        },
        hint: engine_args.hint,
        tunables,
    }
}

/// Runs the plan on as many threads as there are cores; returns the outcomes in its order.
fn run_plan(
    case: &Case,
    lengths: &Lengths,
    plan: &[WholeOptions],
    arguments: &SimArgs,
) -> Result<Vec<WholeOutcome>> {
    let threads = arguments.threads.unwrap_or_else(args::cores).get().min(plan.len());
    let bar = super::case::bar(lengths.requests() * plan.len() as u64);
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let outcomes = Mutex::new((0..plan.len()).map(|_| None).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let (running, all_finished) = mpsc::channel::<()>();
        for _ in 0..threads {
            let running = running.clone();
            let (next, done, outcomes) = (&next, &done, &outcomes);
            scope.spawn(move || {
                let _running = running;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(options) = plan.get(index) else { break };
                    let outcome = case.source().and_then(|mut source| {
                        let count = |requests| {
                            done.fetch_add(requests, Ordering::Relaxed);
                        };
                        simulate(&mut source, lengths, options, count).context("simulate")
                    });
                    outcomes.lock().expect("no holder panics")[index] = Some(outcome);
                }
            });
        }
        drop(running);
        while all_finished.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            bar.set_position(done.load(Ordering::Relaxed));
        }
    });
    bar.finish_and_clear();
    let outcomes = outcomes.into_inner().expect("no holder panics");
    outcomes.into_iter().map(|outcome| outcome.expect("each was run")).collect()
}

impl Run {
    /// Returns the number of pages that requests referenced.
    fn references(&self) -> u64 {
        self.outcome.totals.read_pages() + self.outcome.totals.write_pages()
    }

    /// Returns the first cells of a row, which all forms of the table have.
    fn common_cells(&self) -> Vec<Cell> {
        let WholeOptions { frames, page_blocks, policy, write_mode, .. } = self.options;
        let ratio = self.outcome.totals.read_hit_ratio();
        vec![
            Cell::word(&self.trace),
            Cell::word(policy.name()),
            Cell::bytes(u64::from(frames) * BLOCK_BYTES_U64),
            Cell::bytes(u64::from(page_blocks) * BLOCK_BYTES_U64),
            Cell::count(self.references()),
            ratio.map_or_else(Cell::missing, Cell::percent),
            Cell::word(write_mode.name()),
            Cell::word(self.options.store.name()),
            Cell::duration(self.outcome.elapsed),
        ]
    }

    fn counter(&self, counter: Counter) -> Cell {
        larder_server::counter_value(counter.meaning(), self.outcome.totals.get(counter))
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

/// Returns the short table of the runs.
pub(super) fn short_table(runs: &[Run]) -> Table {
    let short =
        SHORT_COLUMNS.map(|(counter, title)| Column::numbers(counter.meaning().name, title));
    let mut table = Table::new("", common_columns().chain(short));
    for run in runs {
        let counters = SHORT_COLUMNS.map(|(counter, _)| run.counter(counter));
        table.push(run.common_cells().into_iter().chain(counters));
    }
    table
}

/// Returns the full table of the runs: every counter of the catalogue.
pub(super) fn full_table(runs: &[Run]) -> Table {
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
