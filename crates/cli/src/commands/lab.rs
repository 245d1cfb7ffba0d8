//! `larder lab`: published experiments, repeated on modeled machines.

use crate::args::{self, FormatArgs, TextOrJson};
use crate::commands::report::{page_or_json, print_and_write};
use crate::output_file::OutputFile;
use crate::progress;
use anyhow::Result;
use clap::{Args, ValueEnum};
use larder_lab::experiment::{fileload_1999, probe, raid_1999, swap};
use larder_schema::experiment::Experiment;
use std::num::NonZero;

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// Experiment: fileload-1999, raid-1999, probe, swap.
    #[arg(value_name = "EXPERIMENT", hide_possible_values = true)]
    experiment: Name,

    /// Number of repetitions.
    ///
    /// Each has other random requests, and except in probe other places of the files.
    #[arg(long, value_name = "NUMBER", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, or a page with charts if its name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_or_json())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

/// The experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Fragmentation, placement, RAID 10 and an add-on cache.
    #[value(name = "fileload-1999")]
    Fileload1999,
    /// RAID levels, and the allocation unit of a file server.
    #[value(name = "raid-1999")]
    Raid1999,
    /// Random reads and writes on the file cache of Windows NT.
    Probe,
    /// PostMark while memory is short, with a cache for the page file.
    Swap,
}

pub(crate) fn run(arguments: &LabArgs) -> Result<()> {
    let experiment = repeat(arguments);
    let printed = print_and_write(
        arguments.format.get(),
        arguments.output.as_ref(),
        || larder_report::experiment::to_text(&experiment),
        || larder_report::experiment::to_html(&experiment),
        || format!("{:#}\n", experiment.to_json()),
    )?;
    Ok(printed?)
}

/// Repeats the experiment, with a progress bar.
fn repeat(arguments: &LabArgs) -> Experiment {
    let (seeds, threads) = (arguments.seeds.into(), args::cores());
    let (steps, run): (u64, Repeat) = match arguments.experiment {
        Name::Fileload1999 => (fileload_1999::step_count(seeds), fileload_1999::run),
        Name::Raid1999 => (raid_1999::step_count(seeds), raid_1999::run),
        Name::Probe => (probe::step_count(seeds), probe::run),
        Name::Swap => (swap::step_count(seeds), swap::run),
    };
    let bar = progress::bar(steps, "[{wide_bar}] {eta} left");
    let experiment = run(seeds, threads, &mut || bar.inc(1));
    bar.finish_and_clear();
    experiment
}

/// Runs an experiment with a number of seeds and threads.
type Repeat = fn(u64, NonZero<usize>, &mut dyn FnMut()) -> Experiment;
