//! `larder size`: how much cache a trace needs, with which policy and which pages.
//!
//! The trace is read several times, so standard input is refused. What is measured is in
//! [`larder_lab::sim::sizing`], what is made of it in [`larder_report::sizing`].

use crate::args;
use crate::commands::trace;
use crate::output::{self, OutputFile};
use crate::progress;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use larder_core::policy::PolicyKind;
use larder_lab::sim::sizing::{self, Options, Progress};
use larder_lab::trace::{Format, OpenOptions};
use larder_report::advise::goal::Goal;
use larder_report::escape;
use larder_report::sizing::Sizing;
use std::io::{IsTerminal, Write};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod live;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The trace; `larder trace merge` makes one of several. With --live the file or directory that is
    /// watched.
    #[arg(value_name = "TRACE", required_unless_present = "live")]
    trace: Option<PathBuf>,

    /// How much of what can hit at all shall hit: a share of the hits of a cache for everything.
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = percent)]
    target: f64,

    /// The most memory, tables of the cache included.
    #[arg(long, value_name = "SIZE", value_parser = budget)]
    budget: Option<u64>,

    /// Policies to choose from, separated by commas; all of them, if not given.
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', value_parser = args::policy)]
    policy: Vec<PolicyKind>,

    /// Write a page with charts as well, one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Output,

    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Estimate everything from samples, and count nothing over the whole trace that costs more.
    #[arg(long)]
    sampled: bool,

    /// Where the random choices of samples come from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Threads; as many as there are cores, if not given. The result does not depend on it.
    #[arg(long, value_name = "NUMBER", value_parser = args::threads)]
    threads: Option<NonZero<usize>>,

    /// Record what programs on this machine read and write, and say whether its memory is enough
    /// for their files, what half and twice of it would do; with the policy `linux`.
    #[arg(long, help_heading = "Live")]
    live: bool,

    /// How long; until Ctrl-C, if not given.
    #[arg(long = "for", value_name = "TIME", requires = "live", value_parser = args::time,
          help_heading = "Live")]
    time: Option<u64>,

    /// Only this process and those that it makes.
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "live",
        conflicts_with = "trace",
        help_heading = "Live"
    )]
    pid: Option<u32>,

    /// Only the processes of this control group.
    #[arg(long, value_name = "GROUP", requires = "live", conflicts_with_all = ["trace", "pid"],
          help_heading = "Live")]
    cgroup: Option<String>,

    /// The format of the trace; told by content, else by the end of the name, if not given.
    #[arg(long, value_name = "FORMAT", value_parser = trace::format, help_heading = "Reading")]
    trace_format: Option<Format>,

    /// Bad records that are passed over before it is an error.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Reading")]
    max_bad: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// A share such as `95%`, above 0 and up to 100.
fn percent(text: &str) -> Result<f64, String> {
    args::per_cent(text)
        .filter(|&percent| percent > 0.0 && percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("\"{text}\" is not a target; write 95%, above 0% and up to 100%"))
}

fn budget(text: &str) -> Result<u64, String> {
    let bytes = args::bytes(text)?;
    if bytes == 0 { Err("a budget of nothing buys no cache".to_owned()) } else { Ok(bytes) }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.live {
        return live::run(arguments);
    }
    let path = arguments.trace.as_deref().expect("required without --live");
    ensure!(
        path != Path::new("-"),
        "size a cache for standard input: a trace is read several times, so it must be a file"
    );
    if let Some(file) = &arguments.html {
        output::check(file)?;
    }
    let name = escape::name(path.file_name().unwrap_or(path.as_os_str()).as_bytes()).into_owned();
    let found = measure(arguments, path, name, policies(&arguments.policy))?;
    print(arguments, &found, None)
}

/// Everything about a trace.
fn measure(
    arguments: &Arguments,
    path: &Path,
    name: String,
    policies: Vec<PolicyKind>,
) -> Result<Sizing> {
    let options = Options {
        name,
        goal: Goal { target: arguments.target, budget_bytes: arguments.budget },
        policies,
        sampled: arguments.sampled,
        seed: arguments.seed,
        threads: arguments.threads.unwrap_or_else(args::cores),
    };
    let reading = OpenOptions {
        format: arguments.trace_format,
        format_option: "--trace-format",
        max_bad: arguments.max_bad,
        ..OpenOptions::default()
    };
    let open = || larder_lab::trace::open(path, &reading);
    let mut bar = Bar::default();
    let found = sizing::measure(&open, &options, &mut |progress| bar.show(progress))
        .context("size a cache");
    bar.end();
    found
}

/// Prints what was found, and behind it what this machine has.
fn print(arguments: &Arguments, found: &Sizing, live: Option<&live::Memory>) -> Result<()> {
    let text = if arguments.json || arguments.format == Output::Json {
        let mut json = found.to_json();
        if let Some(memory) = live {
            json["live"] = memory.to_json();
        }
        format!("{json:#}\n")
    } else {
        found.to_text() + &live.map_or_else(String::new, live::Memory::to_text)
    };
    let printed = crate::output::stdout().write_all(text.as_bytes());
    // The page is kept if nobody reads the text, and the text is printed if the page cannot be
    // written.
    if let Some(file) = &arguments.html {
        output::write_whole(file, &found.to_html())?;
    }
    // A reader that has had enough is no failure, so the error must reach the caller as it is.
    Ok(printed?)
}

/// Each policy once; all, if none was named.
fn policies(named: &[PolicyKind]) -> Vec<PolicyKind> {
    if named.is_empty() {
        return PolicyKind::ALL.to_vec();
    }
    PolicyKind::ALL.into_iter().filter(|kind| named.contains(kind)).collect()
}

/// A bar for each step; none where there is no terminal.
#[derive(Debug, Default)]
struct Bar {
    step: &'static str,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn show(&mut self, progress: Progress) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        if self.step != progress.step {
            self.end();
            self.step = progress.step;
            let template = if progress.total > 0 {
                "{msg} [{bar:30}] {pos} of {len} references, {eta} left"
            } else {
                "{msg}: {pos} references"
            };
            self.bar = Some(progress::bar(progress.total, template).with_message(progress.step));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests;
