//! `larder trace`: convert, summarize, filter, merge, anonymize, generate and replay traces.
//!
//! An output file is written under a temporary name and renamed when it is complete, so an
//! interrupted command leaves no file. Notes of the readers are printed on standard error.

mod anonymize;
mod filter;
mod input;
mod output;
mod record;
mod replay;
mod synth;

use crate::args::{FormatArgs, TextOrJson};
use crate::output::DistinctFiles;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use input::Input;
pub(crate) use input::{InputArgs, SAMPLE_NAME, open_trace};
use larder_lab::trace::{BoxedSource, Description, Merge, Record, Source, Target};
use output::Output;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    Summary(SummaryArgs),
    /// Print the first requests as CSV.
    Head(HeadArgs),
    /// Keep only matching requests.
    Filter(filter::FilterArgs),
    /// Write several traces as one, in the order of their times.
    Merge(ConvertArgs),
    /// Replace names and addresses, to give a trace away.
    ///
    /// Reuse, locality and alignment stay, so a cache has the same hits.
    #[command(alias = "anonymise")]
    Anonymize(anonymize::AnonymizeArgs),
    /// Generate a trace from a pattern and a seed.
    Synth(synth::SynthArgs),
    /// Record the reads and writes of programs on this machine.
    ///
    /// Requests are recorded where they pass the page cache.
    Record(record::RecordArgs),
    /// Send a trace to an export, and measure the latencies.
    Replay(replay::ReplayArgs),
}

#[derive(Debug, Args)]
struct ConvertArgs {
    /// Traces, and last the file to write; - for standard streams.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output format, if the extension does not tell.
    ///
    /// If not given, by the extension of the file, else larder.
    #[arg(long, value_name = "FORMAT", value_parser = output::target)]
    to_format: Option<Target>,

    #[command(flatten)]
    input: InputArgs,
}

#[derive(Debug, Args)]
struct SummaryArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,

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
        Command::Summary(arguments) => summarize(arguments),
        Command::Head(arguments) => head(arguments),
        Command::Filter(arguments) => filter::run(arguments),
        Command::Merge(arguments) => merge(arguments),
        Command::Anonymize(arguments) => anonymize::run(arguments),
        Command::Synth(arguments) => synth::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
    }
}

/// Incompatible traces, and the reason.
const INCOMPATIBLE: &str = "traces of volumes with traces of objects, or samples of one page in \
                              so many with whole traces: they do not count the same";

fn convert(arguments: &ConvertArgs) -> Result<()> {
    let (to, traces) = split_files(arguments)?;
    if let [trace] = traces {
        return write_all(Input::open(trace, &arguments.input)?, to, arguments.to_format);
    }
    let (sources, read) = open_all(traces, &arguments.input)?;
    let Some(source) = Merge::in_turn(sources) else {
        bail!("join {INCOMPATIBLE}");
    };
    write_all(Input::from_files(Box::new(source), traces, read), to, arguments.to_format)
}

fn merge(arguments: &ConvertArgs) -> Result<()> {
    let (to, traces) = split_files(arguments)?;
    ensure!(traces.len() > 1, "merge a single trace: name two or more, and the file to write");
    let (sources, read) = open_all(traces, &arguments.input)?;
    let Some(source) = Merge::by_time(sources) else {
        bail!("merge {INCOMPATIBLE}");
    };
    write_all(Input::from_files(Box::new(source), traces, read), to, arguments.to_format)
}

/// Returns the file to write, and the traces to read.
fn split_files(arguments: &ConvertArgs) -> Result<(&PathBuf, &[PathBuf])> {
    let (to, traces) = arguments.files.split_last().context("name a file to write")?;
    DistinctFiles::of_inputs(traces.to_vec()).add_output(to)?;
    Ok((to, traces))
}

/// Opens all traces; returns them with the counter of the bytes read.
fn open_all(
    traces: &[PathBuf],
    arguments: &InputArgs,
) -> Result<(Vec<BoxedSource>, Arc<AtomicU64>)> {
    let read = Arc::new(AtomicU64::new(0));
    let stdins = traces.iter().filter(|path| path.as_os_str() == "-").count();
    ensure!(stdins < 2, "read standard input twice");
    let sources = traces.iter().map(|path| arguments.open(path, None, Some(&read)));
    Ok((sources.collect::<Result<_>>()?, read))
}

fn write_all(input: Input, to: &Path, target: Option<Target>) -> Result<()> {
    copy(input, to, target, |_, _| true).map(drop)
}

/// Copies the matching records to a file; returns the number of records read and copied.
fn copy(
    mut input: Input,
    to: &Path,
    target: Option<Target>,
    matches: impl Fn(&Record, &dyn Source) -> bool,
) -> Result<(u64, u64)> {
    let mut output = Output::create(to, target, &input)?;
    let (mut batch, mut total, mut kept) = (Vec::new(), 0, 0);
    while input.next_batch(&mut batch)? {
        total += batch.len() as u64;
        batch.retain(|record| matches(record, &input));
        kept += batch.len() as u64;
        output.append(&batch, &input)?;
    }
    output.finish(&input)?;
    Ok((total, kept))
}

fn summarize(arguments: &SummaryArgs) -> Result<()> {
    let mut input = Input::open(&arguments.trace, &arguments.input)?;
    let description = Description::of(&mut input)?;
    let text = match arguments.format.get() {
        TextOrJson::Json => format!("{:#}\n", description.to_json(&input)),
        TextOrJson::Text => description.to_text(&input),
    };
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

fn head(arguments: &HeadArgs) -> Result<()> {
    let mut input = Input::open(&arguments.trace, &arguments.input)?;
    let mut output = Output::create(Path::new("-"), Some(Target::Csv), &input)?;
    let (mut batch, mut left) = (Vec::new(), arguments.requests);
    while left > 0 && input.next_batch(&mut batch)? {
        batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        output.append(&batch, &input)?;
        left -= batch.len() as u64;
    }
    output.finish(&input)
}
