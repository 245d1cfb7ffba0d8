//! `larder watch`: the activity of this machine's page cache, live.
//!
//! It prints a line for each interval, and tables at the end. [`larder_host::watch`] defines the
//! counters.

use crate::args;
use crate::args::{FormatArgs, TextOrJson};
use crate::colors::{self, Meaning};
use crate::commands::report::{page_or_json, write_result};
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use larder_host::watch::{Bpf, Options, STEP, WatchScope, Watcher};
use larder_io::engine::machine_memory_bytes;
use larder_report::findings;
use larder_report::watch::{line_cells, line_header, line_notes, to_text};
use larder_schema::format;
use larder_schema::watch::Interval;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    target: WatchTargetArgs,

    /// Duration; until Ctrl-C, if not given.
    #[arg(long = "for", value_name = "TIME", value_parser = args::time)]
    time: Option<u64>,

    /// Reporting interval.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    interval: u64,

    /// Rows of each table [default: up to 20].
    ///
    /// Number of files by process in each table; by default up to 20, without the last ones,
    /// which together did at most 1 %. As JSON there are at least 1,000.
    #[arg(long, value_name = "NUMBER")]
    rows: Option<usize>,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, or a page with charts if its name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_or_json())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,

    /// Count lookups in the kernel.
    ///
    /// Far less overhead than reporting each lookup; auto: if supported.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = counting(),
          hide_short_help = true)]
    bpf: Bpf,

    /// Memory for unread events, for each processor [default: 8MiB; up to 32MiB if each lookup is
    /// reported].
    #[arg(long, value_name = "SIZE", value_parser = buffer, hide_short_help = true)]
    buffer: Option<u64>,
}

/// The part of the machine to watch; shared by several commands.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchTargetArgs {
    /// Only this file, or the files below this directory.
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Only this process and its descendants.
    #[arg(long, value_name = "NUMBER", conflicts_with = "path")]
    pid: Option<u32>,

    /// Only the processes of this control group.
    ///
    /// The group is named by its path below the root of the groups.
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["path", "pid"])]
    cgroup: Option<String>,
}

impl WatchTargetArgs {
    pub(crate) fn scope(&self) -> WatchScope {
        match (&self.path, self.pid, &self.cgroup) {
            (Some(path), ..) => WatchScope::Path(path.clone()),
            (_, Some(pid), _) => WatchScope::Process(pid),
            (.., Some(group)) => WatchScope::Group(group.clone()),
            (None, None, None) => WatchScope::Machine,
        }
    }
}

/// Minimum number of rows kept of each interval, and of the total.
const ROWS_MIN: usize = 1000;

fn counting() -> impl TypedValueParser<Value = Bpf> {
    PossibleValuesParser::new(["auto", "on", "off"]).map(|when| match when.as_str() {
        "on" => Bpf::On,
        "off" => Bpf::Off,
        _ => Bpf::Auto,
    })
}

/// Number of lines after which the headings are printed again.
const HEADER_INTERVAL: u64 = 20;

/// Minimum size of a buffer.
const BUFFER_BYTES_MIN: u64 = 64 << 10;

fn buffer(text: &str) -> Result<u64, String> {
    let (bytes, machine) = (args::bytes(text)?, machine_memory_bytes());
    let processors = args::cores().get() as u64;
    if bytes < BUFFER_BYTES_MIN {
        return Err(format!("a buffer of {text}: the minimum is 64KiB"));
    }
    if bytes.saturating_mul(processors) > machine {
        let machine = format::bytes(machine);
        return Err(format!(
            "a buffer of {text} for each of {processors} processors: this machine has {machine} of \
             memory"
        ));
    }
    Ok(bytes)
}

/// Parses a reporting interval, in nanoseconds.
pub(super) fn interval(text: &str) -> Result<u64, String> {
    match args::time(text)? {
        ns if ns < 100_000_000 => Err("an interval is 100ms or longer".to_owned()),
        ns => Ok(ns),
    }
}

pub(crate) fn run(arguments: &WatchArgs) -> Result<()> {
    let json = arguments.format.get() == TextOrJson::Json;
    let stop = Stop::listen()?;
    let options = Options {
        wanted: arguments.target.scope(),
        buffer_kib: arguments.buffer.map(|bytes| bytes.div_ceil(1024)),
        rows_max: arguments.rows.unwrap_or(0).max(ROWS_MIN),
        bpf: arguments.bpf,
        host_counters: true,
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
    let started = Instant::now();
    let length = arguments.time.map_or(Duration::MAX, Duration::from_nanos);
    let interval = Duration::from_nanos(arguments.interval);
    let mut reported = Duration::ZERO;
    let (mut trend, mut lines) = (Vec::new(), 0_u64);
    while started.elapsed() < length && !stop.flag().load(Ordering::Acquire) {
        std::thread::sleep(STEP.min(length.saturating_sub(started.elapsed())));
        watcher.step(|_, _| ())?;
        if started.elapsed() >= reported + interval {
            reported += interval;
            let interval = watcher.interval();
            if !json {
                if lines.is_multiple_of(HEADER_INTERVAL) {
                    writeln!(crate::output::raw_stdout(), "{}", line_header())?;
                }
                lines += 1;
                print_line(interval, page_bytes, &mut trend)?;
            }
        }
    }
    watcher.stop(|_, _| ())?;
    if started.elapsed() > reported + STEP {
        watcher.interval();
    }
    let mut result = watcher.result();
    result.findings = findings::find(&(&result).into());
    // The watcher removes its tracing instance before the output, which may fail.
    drop(watcher);
    let text =
        if json { result.to_json() } else { format!("\n{}", to_text(&result, arguments.rows)) };
    let printed = crate::output::stdout().write_all(text.as_bytes());
    // A closed pipe does not prevent writing the file, nor a failed write of the file printing the
    // text.
    if let Some(file) = &arguments.output {
        write_result(file, || larder_report::watch::to_html(&result), || result.to_json())?;
    }
    // A closed pipe is not a failure, so the error must reach the caller without context.
    Ok(printed?)
}

/// Prints the line of an interval; on a terminal with colors, and with the trend of the hit ratio.
fn print_line(interval: &Interval, page_bytes: u64, trend: &mut Vec<f64>) -> io::Result<()> {
    colors::extend_trend(trend, interval.sum.hit_ratio());
    // The line has no names, so that it needs no escaping.
    let mut out = crate::output::raw_stdout();
    let mut cells = line_cells(interval, page_bytes);
    if colors::are_shown() {
        paint(&mut cells);
    }
    let (line, notes) = (cells.join(" "), line_notes(interval));
    if out.is_terminal() {
        writeln!(out, "{line} {}{notes}", colors::spark_line(trend))
    } else {
        writeln!(out, "{line}{notes}")
    }
}

/// Colors the hits, the hits by read-ahead and the misses of a line.
fn paint(cells: &mut [String; 8]) {
    for (column, meaning) in [(1, Meaning::Hit), (3, Meaning::ReadAhead), (4, Meaning::Miss)] {
        cells[column] = meaning.paint(&cells[column]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_host::watch::{BUFFER_KIB, BUFFER_KIB_MAX};
    use larder_schema::watch::Counts;

    #[test]
    fn what_is_watched_is_one_of_four() {
        let none = WatchTargetArgs { path: None, pid: None, cgroup: None };
        assert_eq!(none.scope(), WatchScope::Machine);
        let path = WatchTargetArgs { path: Some("/data".into()), ..none.clone() };
        assert_eq!(path.scope(), WatchScope::Path("/data".into()));
        assert_eq!(
            WatchTargetArgs { pid: Some(7), ..none.clone() }.scope(),
            WatchScope::Process(7)
        );
        let group = WatchTargetArgs { cgroup: Some("a/b".into()), ..none };
        assert_eq!(group.scope(), WatchScope::Group("a/b".into()));
    }

    #[test]
    fn a_line_has_the_colors_of_its_parts() {
        let sum = Counts { read_pages: 100, hit_pages: 90, ..Counts::default() };
        let cells = line_cells(&Interval { sum, ..Interval::default() }, 4096);
        let mut painted = cells.clone();
        paint(&mut painted);
        let painted = painted.join(" ");
        assert_eq!(painted.matches("\u{1b}[38;5;").count(), 3, "{painted:?}");
        let plain: String = [Meaning::Hit, Meaning::ReadAhead, Meaning::Miss]
            .iter()
            .fold(painted.replace("\u{1b}[39m", ""), |text, meaning| {
                text.replace(&format!("\u{1b}[38;5;{}m", meaning.color()), "")
            });
        assert_eq!(plain, cells.join(" "));
    }

    #[test]
    fn the_help_says_what_the_buffer_is_by_itself() {
        let command = WatchArgs::augment_args(clap::Command::new("watch"));
        let buffer =
            command.get_arguments().find(|it| it.get_id() == "buffer").expect("it is there");
        let (least, most) = (BUFFER_KIB / 1024, BUFFER_KIB_MAX / 1024);
        let expected = format!("[default: {least}MiB; up to {most}MiB if each lookup is reported]");
        assert!(buffer.get_help().expect("help").to_string().ends_with(&expected), "{expected}");
    }

    #[test]
    fn an_interval_is_not_too_short_to_be_told() {
        assert_eq!(interval("500ms"), Ok(500_000_000));
        assert!(interval("99ms").is_err() && interval("soon").is_err());
    }
}
