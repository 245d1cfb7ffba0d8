//! `larder sim --level whole`: the cache of the engine over the trace, on a virtual clock.

use super::{Level, Policies, SimArgs, SplitBy, for_each_case, print};
use crate::args::{self, TableFormat};
use crate::commands::store_model;
use anyhow::{Context, Result, anyhow, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use larder_core::clock::SECOND;
use larder_core::curve::choice::PolicyChoice;
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::tunables::{TUNABLES, Tunables};
use larder_host::memory;
use larder_lab::model::StoreSpec;
use larder_lab::sim::engine::{
    CacheSimulationOptions, Clients, Pace, PageCache, PageCachePlace, RequestTime, frames_of,
};
use larder_lab::sim::study::{self, WholeStudy};
use std::num::NonZero;

#[derive(Debug, Args)]
#[command(next_help_heading = "Whole cache (--level whole)")]
pub(super) struct EngineArgs {
    /// Write modes, separated by commas.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "write-back",
          value_parser = args::named::<WriteMode>, hide_short_help = true)]
    write_mode: Vec<WriteMode>,

    /// Model of the store: a name, rates, an array, or measure:PATH.
    ///
    /// Names: instant, and those of larder model list, such as disk (7,200 rpm), scsi-1999, ssd,
    /// cloud-general (3,000 operations per second). Rates:
    /// iops:N,bytes:M,latency:T,median:T,transfer:M,depth:D,burst:T,slice:T, each part optional,
    /// iops, bytes, latency and median also with read- or write- in front; fixed:TIME is
    /// latency:TIME. Arrays: raid5:4xDEVICE,chunk=64KiB,failed=0, also linear, raid0, raid1, raid6
    /// and raid10; DEVICE is disk, another name or rates. `file:PATH` is a model that larder model
    /// fit wrote. measure:PATH reads a device or file for up to 10 seconds and fits the rates.
    #[arg(long, value_name = "MODEL", value_parser = store_model::parse, default_value = "disk",
          hide_short_help = true)]
    store: StoreSpec,

    /// Number of clients, each on a connection of its own.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024), hide_short_help = true)]
    clients: u16,

    /// Maximum number of requests in flight of each client.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024), hide_short_help = true)]
    depth: u16,

    /// Minimum time between two requests of any client, for the front end, for example 15us.
    ///
    /// 15us+2GiB/s adds the length of the first request at this rate.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = request_time,
          hide_short_help = true)]
    gap: RequestTime,

    /// Think time, from a reply to the next request of the same client, for example 100us.
    ///
    /// 100us+2GiB/s adds the length of the request at this rate.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = request_time,
          hide_short_help = true)]
    think: RequestTime,

    /// Time until the store takes queued operations, for example 20us.
    ///
    /// It begins with the first one. Adjacent reads that are queued in the meantime become one.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time_to_hour,
          hide_short_help = true)]
    wake: u64,

    /// Time until the client of a request that has waited gets the reply, for example 20us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time_to_hour,
          hide_short_help = true)]
    reply: u64,

    /// Time of requests: as soon as a client is free, or at the times of the trace.
    #[arg(long, value_name = "PACE", default_value = "closed", hide_short_help = true)]
    pace: PaceBy,

    /// Read-ahead, on or off.
    #[arg(long, value_name = "on|off", default_value = "on", hide_short_help = true)]
    read_ahead: ReadAhead,

    /// Expected access pattern of the volumes: normal, sequential, random, no-buffering.
    #[arg(long, default_value = "normal", value_parser = args::named::<Hint>,
          hide_short_help = true)]
    hint: Hint,

    /// Values of all tunables: larder, nt or linux.
    #[arg(long, value_name = "PRESET", default_value = "larder", value_parser = args::preset,
          hide_short_help = true)]
    preset: Tunables,

    /// Set a tunable (docs/TUNABLES.md), as NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::setting, hide_short_help = true)]
    set: Vec<(String, String)>,

    /// Page cache of Linux above or below the cache, as above:SIZE or below:SIZE.
    ///
    /// Above, clients use a file system on the volume; below, the store of the server is plain
    /// files. The output has its hits, and the share of the cache that both have (double copies).
    #[arg(long, value_name = "PLACE:SIZE", value_parser = page_cache, hide_short_help = true)]
    page_cache: Option<PageCache>,
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

/// Parses the time of a request: a time, and optionally the rate of its bytes, as in `20us+2GiB/s`.
fn request_time(text: &str) -> Result<RequestTime, String> {
    let (time, rate) = match text.split_once('+') {
        Some((time, rate)) => (time, Some(rate)),
        None => (text, None),
    };
    let fixed = time_to_hour(time)?;
    let bytes_per_s = rate.map(|rate| {
        let size = rate.strip_suffix("/s").ok_or("write the rate as 2GiB/s")?;
        let size = args::bytes(size)?;
        let fast = NonZero::new(size).filter(|size| size.get() >= RATE_MIN);
        fast.ok_or_else(|| "a rate of requests is at least 1MiB/s".to_owned())
    });
    Ok(RequestTime { fixed, bytes_per_s: bytes_per_s.transpose()? })
}

/// Parses the place and the size of a page cache.
fn page_cache(text: &str) -> Result<PageCache, String> {
    let place_and_size = text.split_once(':').and_then(|(place, size)| match place {
        "above" => Some((PageCachePlace::Above, size)),
        "below" => Some((PageCachePlace::Below, size)),
        _ => None,
    });
    let form = || format!("\"{text}\" is no page cache; write above:SIZE or below:SIZE");
    let (place, size) = place_and_size.ok_or_else(form)?;
    let frames = frames_of(args::bytes(size)?);
    if frames < PageCache::FRAMES_MIN {
        return Err("a page cache has at least 4MiB".into());
    }
    Ok(PageCache { place, frames })
}

/// Parses a time of at most an hour.
fn time_to_hour(text: &str) -> Result<u64, String> {
    let time = args::time(text)?;
    if time <= HOUR { Ok(time) } else { Err("the maximum is 1h".into()) }
}

const HOUR: u64 = 3600 * SECOND;
/// Minimum rate of the bytes of requests, per second.
const RATE_MIN: u64 = 1 << 20;

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

/// Simulates the whole cache, and prints the results. Returns false if no size is large enough for
/// it, and nothing was printed.
pub(super) fn run(policies: &Policies, arguments: &SimArgs) -> Result<bool> {
    ensure!(arguments.curve.is_none(), "simulate the whole cache: it gives no curve, only sizes");
    ensure!(
        arguments.split == SplitBy::Pages,
        "simulate the whole cache: its requests are always split into pages"
    );
    ensure!(!policies.min, "simulate the whole cache with \"min\": it is a bound, not a cache");
    let engine_args = &arguments.whole.arguments;
    let study = WholeStudy {
        options: CacheSimulationOptions {
            frames: 0,
            shards: 0,
            page_blocks: 0,
            policy: PolicyChoice::default(),
            write_mode: WriteMode::Back,
            store: store_model::of(&engine_args.store)?,
            clients: Clients {
                number: engine_args.clients.into(),
                depth: engine_args.depth.into(),
            },
            pace: match engine_args.pace {
                PaceBy::Closed => Pace::Closed { gap: engine_args.gap, think: engine_args.think },
                PaceBy::Recorded => Pace::Recorded,
            },
            wake: engine_args.wake,
            reply: engine_args.reply,
            hint: engine_args.hint,
            tunables: tunables(engine_args)?,
            page_cache: engine_args.page_cache,
        },
        sizes: arguments.size.clone(),
        policies: policies.kinds.clone(),
        write_modes: engine_args.write_mode.clone(),
        threads: arguments.threads.unwrap_or_else(args::cores),
        cores: args::cores(),
        available_bytes: memory::available_bytes().unwrap_or(u64::MAX),
        skips_small: arguments.level.is_none() && arguments.whole.option_names.is_empty(),
    };
    let (mut runs, mut notes) = (Vec::new(), Vec::new());
    let outcome = for_each_case(arguments, Level::Whole, |case, bar| {
        let progress = &mut |progress| bar.show(progress);
        runs.extend(study::run_whole(case, &study, progress, &mut |note| notes.push(note))?);
        Ok(())
    });
    if outcome.is_ok() && runs.is_empty() {
        return Ok(false);
    }
    notes.dedup();
    for note in &notes {
        eprintln!("larder: note: {note}");
    }
    outcome?;
    let table = match arguments.format.get() {
        TableFormat::Text => study::short_table(&runs),
        TableFormat::Csv | TableFormat::Json => study::full_table(&runs),
    };
    print(&table, arguments.format.get(), &[])?;
    Ok(true)
}

fn tunables(engine_args: &EngineArgs) -> Result<Tunables> {
    let mut tunables = engine_args.preset.clone();
    for (name, value) in &engine_args.set {
        let known = TUNABLES.iter().map(|tunable| tunable.name);
        let bounds = TUNABLES.iter().find(|tunable| tunable.name == name);
        let parsed = bounds
            .ok_or_else(|| args::unknown_setting("tunable", name, known))
            .and_then(|bounds| args::tunable(bounds, value));
        let value = parsed.map_err(|reason| anyhow!("set {name}: {reason}"))?;
        tunables.set(name, value).with_context(|| format!("set {name}"))?;
    }
    if engine_args.read_ahead == ReadAhead::Off {
        tunables.set("read-ahead-max", 0).context("read nothing ahead")?;
    }
    Ok(tunables)
}
