//! `larder watch`: what the file cache of this machine does, live.
//!
//! A line for each interval while it goes on, tables at the end. Everything that is counted and
//! how is in [`larder_host::watch`].

use crate::args;
use crate::output::{self, OutputFile};
use crate::signals::Stop;
use anyhow::Result;
use clap::{Args, ValueEnum};
use larder_host::watch::{Bpf, Options, STEP, WatchScope, Watcher};
use larder_io::engine::machine_memory_bytes;
use larder_report::format;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    what: WatchTargetArgs,

    /// How long; until Ctrl-C, if not given.
    #[arg(long = "for", value_name = "TIME", value_parser = args::time)]
    time: Option<u64>,

    /// How often to tell.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    interval: u64,

    /// How many files by processes to show in each table; as JSON there are at least 1,000.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    rows: usize,

    /// Write the result as JSON into a file as well.
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Whether the kernel counts look-ups itself, which costs the watched far less than telling of
    /// each: auto where it can be done.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    bpf: Counting,

    /// Memory for events that were not read yet, for each processor [default: 8MiB; up to 32MiB
    /// where each look-up is told].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    buffer: Option<u64>,
}

/// What of the machine is watched; for those commands that watch.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchTargetArgs {
    /// Only this file, or what lies below this directory.
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Only this process and those that it makes.
    #[arg(long, value_name = "NUMBER", conflicts_with = "path")]
    pid: Option<u32>,

    /// Only the processes of this control group, by its path below the root of the groups.
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["path", "pid"])]
    cgroup: Option<String>,
}

impl WatchTargetArgs {
    pub(crate) fn wanted(&self) -> WatchScope {
        match (&self.path, self.pid, &self.cgroup) {
            (Some(path), ..) => WatchScope::Path(path.clone()),
            (_, Some(pid), _) => WatchScope::Process(pid),
            (.., Some(group)) => WatchScope::Group(group.clone()),
            (None, None, None) => WatchScope::Machine,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Files by processes that are kept of each interval, and of all.
const KEPT_ROWS: usize = 1000;

/// When look-ups are counted in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Counting {
    Auto,
    On,
    Off,
}

impl From<Counting> for Bpf {
    fn from(counting: Counting) -> Bpf {
        match counting {
            Counting::Auto => Bpf::Auto,
            Counting::On => Bpf::On,
            Counting::Off => Bpf::Off,
        }
    }
}

/// The least size of a buffer.
const BUFFER_BYTES_MIN: u64 = 64 << 10;

fn buffer(text: &str) -> Result<u64, String> {
    let (bytes, has) = (args::bytes(text)?, machine_memory_bytes());
    let processors = args::cores().get() as u64;
    if bytes < BUFFER_BYTES_MIN {
        return Err(format!("a buffer of {text}: 64KiB are the least"));
    }
    if bytes.saturating_mul(processors) > has {
        let has = format::bytes(has);
        return Err(format!(
            "a buffer of {text} for each of {processors} processors: this machine has {has} of \
             memory"
        ));
    }
    Ok(bytes)
}

fn interval(text: &str) -> Result<u64, String> {
    match args::time(text)? {
        ns if ns < 100_000_000 => Err("an interval is 100ms or longer".to_owned()),
        ns => Ok(ns),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let json = arguments.json || arguments.format == Format::Json;
    if let Some(file) = &arguments.output {
        output::check(file)?;
    }
    let stop = Stop::listen()?;
    let options = Options {
        wanted: arguments.what.wanted(),
        buffer_kib: arguments.buffer.map(|bytes| bytes.div_ceil(1024)),
        rows_max: arguments.rows.max(KEPT_ROWS),
        bpf: arguments.bpf.into(),
        ..Options::default()
    };
    let mut watcher = Watcher::start(options)?;
    for sentence in watcher.missing() {
        eprintln!("missing: {sentence}");
    }
    if let Some(means) = watcher.means() {
        eprintln!("{means}");
    }
    if watcher.sees_events() {
        eprintln!("watching {}", watcher.describe());
    }
    let page_bytes = larder_host::residency::page_bytes();
    let begun = Instant::now();
    let length = arguments.time.map_or(Duration::MAX, Duration::from_nanos);
    let interval = Duration::from_nanos(arguments.interval);
    let mut told = Duration::ZERO;
    while begun.elapsed() < length && !stop.flag().load(Ordering::Acquire) {
        std::thread::sleep(STEP.min(length.saturating_sub(begun.elapsed())));
        watcher.step(|_, _| ())?;
        if begun.elapsed() >= told + interval {
            told += interval;
            let line = watcher.interval().to_line(page_bytes);
            if !json {
                writeln!(crate::output::stdout(), "{line}")?;
            }
        }
    }
    watcher.stop(|_, _| ())?;
    if begun.elapsed() > told + STEP {
        watcher.interval();
    }
    let result = watcher.result();
    // The instance goes before anything is written, which may fail.
    drop(watcher);
    let text =
        if json { result.to_json() } else { format!("\n{}", result.to_text(arguments.rows)) };
    let printed = crate::output::stdout().write_all(text.as_bytes());
    // What was watched is kept though nobody reads on, and shown though it cannot be kept.
    if let Some(file) = &arguments.output {
        output::write_whole(file, &result.to_json())?;
    }
    // A reader that has had enough is no failure, so the error must reach the caller as it is.
    Ok(printed?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_host::watch::{BUFFER_KIB, BUFFER_KIB_MAX};

    #[test]
    fn what_is_watched_is_one_of_four() {
        let none = WatchTargetArgs { path: None, pid: None, cgroup: None };
        assert_eq!(none.wanted(), WatchScope::Machine);
        let path = WatchTargetArgs { path: Some("/data".into()), ..none.clone() };
        assert_eq!(path.wanted(), WatchScope::Path("/data".into()));
        assert_eq!(
            WatchTargetArgs { pid: Some(7), ..none.clone() }.wanted(),
            WatchScope::Process(7)
        );
        let group = WatchTargetArgs { cgroup: Some("a/b".into()), ..none };
        assert_eq!(group.wanted(), WatchScope::Group("a/b".into()));
    }

    #[test]
    fn the_help_says_what_the_buffer_is_by_itself() {
        let command = Arguments::augment_args(clap::Command::new("watch"));
        let buffer =
            command.get_arguments().find(|it| it.get_id() == "buffer").expect("it is there");
        let (least, most) = (BUFFER_KIB / 1024, BUFFER_KIB_MAX / 1024);
        let known = format!("[default: {least}MiB; up to {most}MiB where each look-up is told]");
        assert!(buffer.get_help().expect("help").to_string().ends_with(&known), "{known}");
    }

    #[test]
    fn an_interval_is_not_too_short_to_be_told() {
        assert_eq!(interval("500ms"), Ok(500_000_000));
        assert!(interval("99ms").is_err() && interval("soon").is_err());
    }
}
