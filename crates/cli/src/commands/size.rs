//! `larder size`: recommends cache size, policy and page size for a trace.
//!
//! The trace is read several times, so standard input is refused. [`larder_lab::sim::sizing`]
//! measures, [`larder_report::sizing`] evaluates the measurements.

use crate::args;
use crate::args::{FormatArgs, TextOrJson};
use crate::commands::report::{page_or_json, print_and_write};
use crate::commands::store_model;
use crate::commands::trace::{InputArgs, SAMPLE_NAME, open_trace};
use crate::output_file::OutputFile;
use crate::progress::StepBar;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_lab::model::StoreSpec;
use larder_lab::sim::sizing::{self, Options, SEARCH_REFERENCES_MAX, ServerOptions};
use larder_report::escape;
use larder_report::sizing::{SERVER_BYTES_MIN, SizedCache};
use larder_schema::advice::SizingGoal;
use larder_schema::sizing::Sizing;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod live;
mod measure;

#[derive(Debug, Args)]
#[command(override_usage = "larder size [OPTIONS] TRACE | --sample | --live [PATH]
       larder size [OPTIONS] --measure DIRECTORY -- COMMAND...")]
pub(crate) struct SizeArgs {
    /// Trace; with --live, a file or directory to watch.
    ///
    /// `larder trace merge` combines several traces.
    #[arg(value_name = "TRACE", required_unless_present_any = ["live", "sample", "measure"])]
    trace: Option<PathBuf>,

    /// Size the built-in sample trace.
    ///
    /// 100,000 requests: 60 % have a Zipf distribution over 64 MiB (exponent 0.9), 25 % loop over
    /// 4 MiB, 15 % scan new pages. They are generated from a fixed seed.
    #[arg(long, conflicts_with_all = ["trace", "live"])]
    sample: bool,

    /// Share of the possible hits.
    ///
    /// Target: a percentage of the hits of a cache for everything.
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = percent)]
    target: f64,

    /// Maximum memory, with the tables of the cache.
    #[arg(long, value_name = "SIZE", value_parser = budget)]
    budget: Option<u64>,

    /// Policies to choose from; all, if not given.
    ///
    /// Policies to choose from, separated by commas. All of them, if not given.
    #[arg(long, value_name = "POLICIES", value_delimiter = ',',
          value_parser = args::named::<PolicyKind>)]
    policy: Vec<PolicyKind>,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, or a page with charts if its name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_or_json())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,

    /// Level of the prediction: whole or replacement.
    ///
    /// Whole: the reads of a server, with read-ahead, write mode and lazy writes. Replacement: the
    /// policies only, as for --live.
    #[arg(long, value_name = "LEVEL", default_value = "whole", hide_short_help = true)]
    level: Level,

    /// Model of the store of the server; see larder sim.
    #[arg(long, value_name = "MODEL", value_parser = store_model::parse, default_value = "disk",
          hide_short_help = true)]
    store: StoreSpec,

    /// Write mode of the server.
    #[arg(long, value_name = "MODE", default_value = "write-back",
          value_parser = args::named::<WriteMode>, hide_short_help = true)]
    write_mode: WriteMode,

    /// Estimate everything from samples.
    ///
    /// Counts over the whole trace that cost more are omitted.
    #[arg(long, hide_short_help = true)]
    sampled: bool,

    /// Seed of the random choices of samples.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_short_help = true)]
    seed: u64,

    /// Threads; as many as cores, if not given.
    ///
    /// The result does not depend on the number of threads.
    #[arg(long, value_name = "NUMBER", value_parser = args::threads, hide_short_help = true)]
    threads: Option<NonZero<usize>>,

    /// Record programs on this machine, and size its memory.
    ///
    /// Record the reads and writes of programs on this machine, and report if its memory is
    /// sufficient for their files, and the effect of half and twice of it; with the policy `linux`.
    #[arg(long, help_heading = "Live")]
    live: bool,

    /// Duration; until Ctrl-C, if not given.
    #[arg(long = "for", value_name = "TIME", requires = "live", value_parser = args::time,
          help_heading = "Live")]
    time: Option<u64>,

    /// Only this process and its descendants.
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

    #[command(flatten)]
    measure: measure::MeasureArgs,

    #[command(flatten)]
    input: InputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// The whole cache of a server.
    Whole,
    /// Only the policies.
    Replacement,
}

/// Parses a percentage such as `95%`, above 0 and up to 100.
fn percent(text: &str) -> Result<f64, String> {
    args::per_cent(text)
        .filter(|&percent| percent > 0.0 && percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("\"{text}\" is not a target; write 95%, above 0% and up to 100%"))
}

fn budget(text: &str) -> Result<u64, String> {
    let bytes = args::bytes(text)?;
    let is_enough = bytes >= SERVER_BYTES_MIN;
    is_enough.then_some(bytes).ok_or_else(|| {
        let least = SERVER_BYTES_MIN >> 20;
        format!("the minimum is {least}MiB, as for a server; write a size with a unit, as in 64MiB")
    })
}

pub(crate) fn run(arguments: &SizeArgs) -> Result<()> {
    if arguments.live {
        return live::run(arguments);
    }
    if let Some(directory) = &arguments.measure.measure {
        return measure::run(arguments, directory);
    }
    let path = arguments.trace.as_deref();
    ensure!(
        path != Some(Path::new("-")),
        "size a cache for standard input: a trace is read several times, so it must be a file"
    );
    let name = path.map_or(SAMPLE_NAME.into(), |path| {
        escape::name(path.file_name().unwrap_or(path.as_os_str()).as_bytes()).into_owned()
    });
    let sizing = measure(arguments, path, name, policies(&arguments.policy))?;
    print(arguments, &sizing, None)
}

/// Measures a trace; without a path, the sample.
fn measure(
    arguments: &SizeArgs,
    path: Option<&Path>,
    name: String,
    policies: Vec<PolicyKind>,
) -> Result<Sizing> {
    let options = Options {
        name,
        goal: SizingGoal { target: arguments.target, budget_bytes: arguments.budget },
        policies,
        page_sizes: !arguments.live,
        sampled: arguments.sampled,
        server: server(arguments)?,
        seed: arguments.seed,
        threads: arguments.threads.unwrap_or_else(args::cores),
    };
    let open_options = arguments.input.options();
    let open = || open_trace(path, &open_options);
    let mut bar = StepBar::default();
    sizing::measure(&open, &options, &mut |progress| bar.show(progress)).map_err(Into::into)
}

/// Returns the server whose work is predicted, if that is wanted.
fn server(arguments: &SizeArgs) -> Result<Option<ServerOptions>> {
    if arguments.live || arguments.level == Level::Replacement {
        return Ok(None);
    }
    let store = store_model::of(&arguments.store)?;
    Ok(Some(ServerOptions {
        write_mode: arguments.write_mode,
        store,
        cores: args::cores(),
        search_references_max: SEARCH_REFERENCES_MAX,
    }))
}

/// Prints the result, followed by the memory of this machine.
fn print(arguments: &SizeArgs, sizing: &Sizing, live: Option<&live::MachineMemory>) -> Result<()> {
    let cache = live.map_or(SizedCache::Server, |_| SizedCache::PageCache);
    let json = || {
        let mut json = sizing.to_json();
        if let Some(memory) = live {
            json["live"] = memory.to_json();
        }
        format!("{json:#}\n")
    };
    let text = || {
        larder_report::sizing::to_text(sizing, cache)
            + &live.map_or_else(String::new, live::MachineMemory::to_text)
    };
    let page = || larder_report::sizing::to_html(sizing, cache);
    let (format, file) = (arguments.format.get(), arguments.output.as_ref());
    let printed = print_and_write(format, file, text, page, json)?;
    // A closed pipe is not a failure, so the error must reach the caller without context.
    Ok(printed?)
}

/// Returns each selected policy once; all policies if none is selected.
fn policies(selected: &[PolicyKind]) -> Vec<PolicyKind> {
    if selected.is_empty() {
        return PolicyKind::ALL.to_vec();
    }
    PolicyKind::ALL.into_iter().filter(|kind| selected.contains(kind)).collect()
}

#[cfg(test)]
mod tests;
