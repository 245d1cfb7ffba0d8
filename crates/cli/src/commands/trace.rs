//! `larder trace`: convert, summarise, filter, merge, generate and replay traces.
//!
//! An output file is written under a temporary name and renamed when it is complete, so an
//! interrupted command leaves no file. Notes of the readers are printed on standard error.

mod filter;
mod input;
mod output;
mod record;
mod replay;
mod summary;
mod synth;

use crate::output::DistinctFiles;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
pub(crate) use input::format;
use input::{Input, InputArgs};
use larder_lab::trace::{BoxedSource, Merge, Record, Source, Target};
use output::Output;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write one or more traces, one after the other, in another format.
    Convert(ConvertArgs),
    /// Describe a trace: requests, bytes, footprint, sizes, times.
    Summary(summary::SummaryArgs),
    /// Print the first requests as CSV.
    Head(HeadArgs),
    /// Keep only matching requests.
    Filter(filter::FilterArgs),
    /// Write several traces as one, in the order of their times.
    Merge(ConvertArgs),
    /// Generate a trace from a pattern and a seed.
    Synth(synth::SynthArgs),
    /// Record the reads and writes of programs on this machine through its page cache.
    Record(record::RecordArgs),
    /// Send the requests of a trace to an export, and measure the latencies.
    Replay(replay::ReplayArgs),
}

#[derive(Debug, Args)]
struct ConvertArgs {
    /// The traces, and last the file to write; - is standard input or output.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output format; if not given, by the extension of the file, else larder.
    #[arg(long, value_name = "FORMAT", value_parser = output::target)]
    to: Option<Target>,

    #[command(flatten)]
    input: InputArgs,
}

#[derive(Debug, Args)]
struct HeadArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Number of requests.
    #[arg(short = 'n', long = "requests", value_name = "NUMBER", default_value_t = 10)]
    requests: u64,

    #[command(flatten)]
    input: InputArgs,
}

pub(crate) fn run(arguments: &TraceArgs) -> Result<()> {
    match &arguments.command {
        Command::Convert(arguments) => convert(arguments),
        Command::Summary(arguments) => summary::run(arguments),
        Command::Head(arguments) => head(arguments),
        Command::Filter(arguments) => filter::run(arguments),
        Command::Merge(arguments) => merge(arguments),
        Command::Synth(arguments) => synth::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
    }
}

/// Incompatible traces, and the reason.
const INCOMPATIBLE: &str = "traces of volumes with traces of objects, or samples of one page in \
                              so many with whole traces: they do not count the same";

fn convert(arguments: &ConvertArgs) -> Result<()> {
    let (to, traces) = arguments.files.split_last().context("name a file to write")?;
    DistinctFiles::of_inputs(traces.to_vec()).add_output(to)?;
    if let [trace] = traces {
        return write_all(Input::open(trace, &arguments.input)?, to, arguments.to);
    }
    let Some(source) = Merge::in_turn(open_all(traces, &arguments.input)?) else {
        bail!("join {INCOMPATIBLE}");
    };
    write_all(Input::from_source(Box::new(source)), to, arguments.to)
}

fn merge(arguments: &ConvertArgs) -> Result<()> {
    let (to, traces) = arguments.files.split_last().context("name a file to write")?;
    ensure!(traces.len() > 1, "merge a single trace: name two or more, and the file to write");
    DistinctFiles::of_inputs(traces.to_vec()).add_output(to)?;
    let Some(source) = Merge::by_time(open_all(traces, &arguments.input)?) else {
        bail!("merge {INCOMPATIBLE}");
    };
    write_all(Input::from_source(Box::new(source)), to, arguments.to)
}

fn open_all(traces: &[PathBuf], arguments: &InputArgs) -> Result<Vec<BoxedSource>> {
    let stdins = traces.iter().filter(|path| path.as_os_str() == "-").count();
    ensure!(stdins < 2, "read standard input twice");
    traces.iter().map(|path| input::open_trace(path, arguments, None, None)).collect()
}

fn write_all(mut input: Input, to: &Path, target: Option<Target>) -> Result<()> {
    let mut output = Output::create(to, target, &*input.source)?;
    copy(&mut input, &mut output, |_, _| true)?;
    output.finish(&*input.source)
}

/// Copies the matching records; returns the number of records read and copied.
fn copy(
    input: &mut Input,
    output: &mut Output,
    matches: impl Fn(&Record, &dyn Source) -> bool,
) -> Result<(u64, u64)> {
    let (mut batch, mut total, mut kept) = (Vec::new(), 0, 0);
    while input.read(&mut batch)? {
        total += batch.len() as u64;
        batch.retain(|record| matches(record, &*input.source));
        kept += batch.len() as u64;
        output.append(&batch, &*input.source)?;
    }
    Ok((total, kept))
}

fn head(arguments: &HeadArgs) -> Result<()> {
    let mut input = Input::open(&arguments.trace, &arguments.input)?;
    let stdout = PathBuf::from("-");
    let mut output = Output::create(&stdout, Some(Target::Csv), &*input.source)?;
    let (mut batch, mut left) = (Vec::new(), arguments.requests);
    while left > 0 && input.read(&mut batch)? {
        batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        output.append(&batch, &*input.source)?;
        left -= batch.len() as u64;
    }
    output.finish(&*input.source)
}
