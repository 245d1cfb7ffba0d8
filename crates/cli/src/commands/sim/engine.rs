//! `larder sim --level whole`: the engine's own cache over the trace, on a virtual clock.

use super::case::Case;
use super::table::first_columns;
use super::{Arguments, Policies};
use crate::{args, counters};
use anyhow::{Context, Result, anyhow, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use larder_core::cache::shards_for;
use larder_core::counters::{COUNTERS, Counter};
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use larder_lab::sim::engine::{
    Lengths, Pace, StoreModel, WholeOptions, WholeOutcome, frames_of, simulate,
};
use larder_report::table::{Cell, Column, Table};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Frames that each client may hold while it waits, on top of a page: a piece of a read.
const CLIENT_FRAMES: u32 = 256;
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(next_help_heading = "Whole cache (--level whole)")]
pub(super) struct WholeArguments {
    /// Write modes, separated by commas.
    #[arg(long, value_name = "MODES", value_delimiter = ',', value_parser = args::write_mode,
          default_value = "back")]
    write_mode: Vec<WriteMode>,

    /// What lies behind the cache: instant, fixed:TIME (for each operation), disk (7,200 rpm),
    /// cloud-general (3,000 operations a second), cloud-standard (500).
    #[arg(long, value_name = "MODEL", value_parser = store, default_value = "disk")]
    store: StoreModel,

    /// Requests that may be under way at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,

    /// From one request to the next, whoever makes it, at least: what the front end needs, as 15us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = args::time)]
    gap: u64,

    /// From an answer to the next request of the same client, as 100us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = args::time)]
    think: u64,

    /// When requests are made: as soon as a client is free, or at the times of the trace.
    #[arg(long, value_name = "PACE", default_value = "closed")]
    pace: PaceBy,

    /// Whether the cache reads ahead.
    #[arg(long, value_name = "HOW", default_value = "on")]
    read_ahead: ReadAhead,

    /// How the volumes will be read, as they are told: normal, sequential, random, no-buffering.
    #[arg(long, default_value = "normal", value_parser = args::hint)]
    hint: Hint,

    /// Set a tunable (docs/TUNABLES.md), as NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::setting)]
    set: Vec<(String, u64)>,
}

/// The arguments, and the options that the command line gives.
#[derive(Debug)]
pub(super) struct GivenWhole {
    arguments: WholeArguments,
    /// As they are written.
    pub(super) given: Vec<String>,
}

impl Args for GivenWhole {
    fn augment_args(command: Command) -> Command {
        WholeArguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        WholeArguments::augment_args_for_update(command)
    }
}

impl FromArgMatches for GivenWhole {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = WholeArguments::augment_args(Command::new("whole"));
        let is_given = |arg: &&Arg| {
            let source = matches.value_source(arg.get_id().as_str());
            source == Some(ValueSource::CommandLine)
        };
        let given = command.get_arguments().filter(is_given).filter_map(Arg::get_long);
        let given = given.map(|long| format!("--{long}")).collect();
        Ok(GivenWhole { arguments: WholeArguments::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = GivenWhole::from_arg_matches(matches)?;
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

/// One cache over one trace, and what came out.
#[derive(Debug)]
pub(super) struct Run {
    trace: String,
    options: WholeOptions,
    outcome: WholeOutcome,
}

/// Every policy at every size in every write mode.
pub(super) fn run(case: &Case, policies: &Policies, arguments: &Arguments) -> Result<Vec<Run>> {
    let whole = &arguments.whole.arguments;
    ensure!(!policies.min, "simulate the whole cache with \"min\": it is a bound, not a cache");
    let page_bytes = case.page_bytes().context("simulate the whole cache without pages")?;
    let page_blocks = page_bytes / u32::try_from(BLOCK_BYTES).expect("4 KiB");
    ensure!(
        page_blocks > 0,
        "simulate the whole cache with pages of {page_bytes} bytes: the least is 4KiB"
    );
    let tunables = tunables(whole)?;
    let lengths = Lengths::of(&mut case.source()?).context("simulate")?;
    ensure!(lengths.requests() > 0, "simulate {}: it has no request", case.name);
    let relative = arguments.size.iter().any(|size| size.is_relative());
    let pages = if relative { case.footprint()? } else { 0 };
    let mut plan = Vec::new();
    for size in &arguments.size {
        let bytes = size.pages(Some(page_bytes), pages)?.saturating_mul(u64::from(page_bytes));
        let frames = frames_of(bytes);
        let least = u32::from(whole.clients) * CLIENT_FRAMES + 2 * page_blocks;
        ensure!(
            frames >= least,
            "simulate a cache of {bytes} bytes: with {} clients the least is {} bytes",
            whole.clients,
            u64::from(least) * BLOCK_BYTES_U64
        );
        for &policy in &policies.kinds {
            let with = |&write_mode: &WriteMode| {
                let tunables = tunables.clone();
                options(whole, tunables, (frames, page_blocks), policy, write_mode)
            };
            plan.extend(whole.write_mode.iter().map(with));
        }
    }
    let outcomes = all(case, &lengths, &plan, arguments)?;
    let named = |(options, outcome)| Run { trace: case.name.clone(), options, outcome };
    Ok(plan.into_iter().zip(outcomes).map(named).collect())
}

fn tunables(whole: &WholeArguments) -> Result<Tunables> {
    let mut tunables = Tunables::default();
    for (name, value) in &whole.set {
        args::set_tunable(&mut tunables, name, *value)
            .map_err(|reason| anyhow!("set {name}: {reason}"))?;
    }
    if whole.read_ahead == ReadAhead::Off {
        tunables.set("read-ahead-max", 0).context("read nothing ahead")?;
    }
    Ok(tunables)
}

fn options(
    whole: &WholeArguments,
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
        store: whole.store,
        clients: whole.clients.into(),
        pace: match whole.pace {
            PaceBy::Closed => Pace::Closed { gap: whole.gap, think: whole.think },
            PaceBy::Recorded => Pace::Recorded,
        },
        hint: whole.hint,
        tunables,
    }
}

/// Runs the plan on as many threads as there are cores; what came out, in its order.
fn all(
    case: &Case,
    lengths: &Lengths,
    plan: &[WholeOptions],
    arguments: &Arguments,
) -> Result<Vec<WholeOutcome>> {
    let threads = arguments.threads.unwrap_or_else(args::cores).get().min(plan.len());
    let bar = super::case::bar(lengths.requests() * plan.len() as u64);
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let outcomes = Mutex::new((0..plan.len()).map(|_| None).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let (ended, all_ended) = mpsc::channel::<()>();
        for _ in 0..threads {
            let ended = ended.clone();
            let (next, done, outcomes) = (&next, &done, &outcomes);
            scope.spawn(move || {
                let _ended = ended;
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
        drop(ended);
        while all_ended.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            bar.set_position(done.load(Ordering::Relaxed));
        }
    });
    bar.finish_and_clear();
    let outcomes = outcomes.into_inner().expect("no holder panics");
    outcomes.into_iter().map(|outcome| outcome.expect("each was run")).collect()
}

impl Run {
    /// Pages that requests referenced.
    fn references(&self) -> u64 {
        self.outcome.totals.read_pages() + self.outcome.totals.write_pages()
    }

    /// What all forms of the table begin with.
    fn head(&self) -> Vec<Cell> {
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
        counters::value(counter.meaning(), self.outcome.totals.get(counter))
    }
}

fn head_columns() -> impl Iterator<Item = Column> {
    let others = [
        Column::words("write_mode", "writes"),
        Column::words("store", "store"),
        Column::numbers("elapsed_ns", "time"),
    ];
    first_columns("read hits").into_iter().chain(others)
}

/// What people see: the counters that say most.
const SHOWN: [(Counter, &str); 9] = [
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

/// The runs for people.
pub(super) fn short_table(runs: &[Run]) -> Table {
    let shown = SHOWN.map(|(counter, title)| Column::numbers(counter.meaning().name, title));
    let mut table = Table::new("", head_columns().chain(shown));
    for run in runs {
        let counters = SHOWN.map(|(counter, _)| run.counter(counter));
        table.push(run.head().into_iter().chain(counters));
    }
    table
}

/// The runs for machines: every counter of the catalogue.
pub(super) fn full_table(runs: &[Run]) -> Table {
    let counters = COUNTERS.iter().map(|meaning| Column::numbers(meaning.name, meaning.name));
    let unclean = Column::numbers("unclean_blocks", "unclean_blocks");
    let mut table = Table::new("", head_columns().chain(counters).chain([unclean]));
    for run in runs {
        let counters = Counter::ALL.map(|counter| run.counter(counter));
        let unclean = Cell::count(run.outcome.unclean_blocks);
        table.push(run.head().into_iter().chain(counters).chain([unclean]));
    }
    table
}
