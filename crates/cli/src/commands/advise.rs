//! `larder advise`: the bottleneck of a host; RAID level, chunk and allocation unit for the
//! requests of a trace.

mod arrays;
mod host;

use crate::args::{self, FormatArgs, TextOrJson};
use crate::commands::report::{PerfmonArgs, page_or_json, print_and_write};
use crate::commands::store_model;
use crate::commands::trace::InputArgs;
use crate::output_file::OutputFile;
use anyhow::Result;
use clap::Args;
use larder_lab::advise::SAMPLE;
use larder_lab::model::StoreSpec;
use larder_report::{bottleneck, storage_advice};
use std::path::PathBuf;

/// Minimum number of requests for a choice.
const REQUESTS_MIN: usize = 1_000;

#[derive(Debug, Args)]
#[command(override_usage = "larder advise [OPTIONS] FILE | --live | --sample")]
pub(crate) struct AdviseArgs {
    /// Trace (for an array) or counters (for the bottleneck).
    ///
    /// Counters are the JSON of larder watch, a log of Perfmon, or the output of iostat or sar as
    /// text or JSON.
    #[arg(value_name = "FILE", required_unless_present_any = ["sample", "live"])]
    file: Option<PathBuf>,

    /// Find the bottleneck of this machine now.
    #[arg(long, conflicts_with_all = ["file", "sample"])]
    live: bool,

    /// Duration of --live [default: 10s].
    #[arg(long = "for", value_name = "TIME", value_parser = args::time, requires = "live",
          conflicts_with_all = ["file", "sample"])]
    time: Option<u64>,

    /// Choose an array for the busiest disk of the counters, whose requests have random places.
    #[arg(long, requires = "space", hide_short_help = true, conflicts_with = "sample")]
    array: bool,

    /// Use the built-in sample trace; see larder size.
    #[arg(long, conflicts_with = "file")]
    sample: bool,

    /// Model of a disk (larder model list).
    ///
    /// By default `disk` for an array, and for counters the kind that the kernel reports.
    #[arg(long, value_name = "MODEL", value_parser = store_model::parse)]
    disk: Option<StoreSpec>,

    /// Number of disks.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..=64))]
    disks: u8,

    /// Disks that may fail, in any combination.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(0..=2))]
    failures: u8,

    /// Space that is needed; at least that of the trace.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes, hide_short_help = true)]
    space: Option<u64>,

    /// Price of a disk, in any unit.
    #[arg(long, value_name = "PRICE", value_parser = price, hide_short_help = true)]
    price: Option<f64>,

    /// Memory of a cache in front of the disks.
    ///
    /// The trace is simulated with a cache of this size, as by larder sim; the requests that reach
    /// the disks are used.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    cache: Option<u64>,

    /// Files of the storage, for the allocation unit.
    ///
    /// The lengths of the files below the directory are read, of at most a million.
    #[arg(long, value_name = "DIRECTORY")]
    files: Option<PathBuf>,

    /// Maximum number of requests that are run on each candidate: parts of the trace.
    #[arg(long, value_name = "NUMBER", default_value_t = SAMPLE, hide_short_help = true,
          value_parser = requests)]
    requests: usize,

    /// Requests in flight.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, hide_short_help = true,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, or a page with charts if its name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_or_json())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    perfmon: PerfmonArgs,
}

fn requests(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number >= REQUESTS_MIN);
    number.ok_or_else(|| format!("\"{text}\" is not a number of at least {REQUESTS_MIN} requests"))
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| (0.01..=1e9).contains(price));
    price
        .ok_or_else(|| format!("\"{text}\" is not a price; write a number from 0.01 to 1000000000"))
}

pub(crate) fn run(arguments: &AdviseArgs) -> Result<()> {
    let (format, output) = (arguments.format.get(), arguments.output.as_ref());
    let found = host::bottleneck(arguments)?;
    let printed = if let Some(found) = found.as_ref().filter(|_| !arguments.array) {
        print_and_write(
            format,
            output,
            || bottleneck::to_text(found),
            || bottleneck::to_html(found),
            || format!("{:#}\n", found.to_json()),
        )?
    } else {
        let advice = arrays::advise(arguments, found.as_ref())?;
        print_and_write(
            format,
            output,
            || storage_advice::to_text(&advice),
            || storage_advice::to_html(&advice),
            || format!("{:#}\n", advice.to_json()),
        )?
    };
    Ok(printed?)
}
