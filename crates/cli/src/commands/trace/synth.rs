//! `larder trace synth`: a trace from a pattern, or like another one, and a seed; equal arguments
//! give the same file.

use super::input::{Input, InputArgs};
use super::output::{Output, target};
use super::write_all;
use crate::args;
use crate::output::DistinctFiles;
use crate::output_file::OutputFile;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use larder_lab::fitted::{self, FitOptions};
use larder_lab::trace::synth::{Pattern, Synth, SynthOptions};
use larder_lab::trace::{Source, Target};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Number of requests of a pattern.
const REQUESTS: u64 = 1_000_000;

#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(super) struct SynthArgs {
    /// Pattern, such as zipf, scan, loop, mix or database.
    ///
    /// Patterns: zipf, scan, loop, backward, stride, interleave, uniform, mix, database, and
    /// sample, the trace of larder size --sample, which has only a seed.
    #[arg(value_name = "PATTERN", value_parser = pattern, required_unless_present = "like")]
    pattern: Option<Pattern>,

    /// The file to write; - is standard output.
    #[arg(value_name = "FILE")]
    file: OutputFile,

    /// Output format, if the extension does not tell.
    ///
    /// If not given, by the extension of the file, else larder.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to_format: Option<Target>,

    /// Instead of a pattern, a trace to be like.
    ///
    /// The new trace has the distributions of this one, but none of its names and offsets. The
    /// difference of their hit-ratio curves is printed.
    #[arg(
        long,
        value_name = "TRACE",
        conflicts_with_all = ["pattern", "pages", "page_size", "exponent", "writes", "rate"]
    )]
    like: Option<PathBuf>,

    /// Total number of requests.
    ///
    /// If not given, 1000000 of a pattern, and about as many as the trace of --like has.
    #[arg(long, value_name = "NUMBER")]
    requests: Option<u64>,

    /// Pages of the volume.
    #[arg(long, value_name = "NUMBER", default_value_t = 262_144)]
    pages: u64,

    /// Bytes of a page.
    ///
    /// Each request is one page, except the reports of a database.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::bytes)]
    page_size: u64,

    /// Exponent of Zipf's law.
    ///
    /// 0.6 is flat, 1.2 is steep.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    exponent: f64,

    /// Percentage of writes.
    ///
    /// In a database, the percentage of transactions that write.
    #[arg(long, value_name = "PERCENT", default_value = "30%", value_parser = percent)]
    writes: f64,

    /// Requests per second.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000.0)]
    rate: f64,

    /// Seed of all random numbers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    input: InputArgs,
}

fn pattern(text: &str) -> Result<Pattern, String> {
    args::one_of("pattern", text, Pattern::from_name(text), &Pattern::ALL.map(Pattern::name))
}

fn percent(text: &str) -> Result<f64, String> {
    let share = args::per_cent(text)
        .map(|number| number / 100.0)
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("\"{text}\" is not a share; write 30%"))
}

pub(super) fn run(arguments: &SynthArgs) -> Result<()> {
    if let Some(trace) = &arguments.like {
        return make_like(trace, arguments);
    }
    let pattern = arguments.pattern.context("name a pattern, or a trace with --like")?;
    ensure!(arguments.input.is_default(), "make a trace: --trace-format and --max-bad need --like");
    let requests = arguments.requests.unwrap_or(REQUESTS);
    let options = SynthOptions {
        pattern,
        requests,
        pages: arguments.pages,
        page_bytes: arguments.page_size,
        exponent: arguments.exponent,
        writes: arguments.writes,
        rate: arguments.rate,
        seed: arguments.seed,
    };
    let synth = Synth::new(options).map_err(|reason| anyhow!("make a trace: {reason}"))?;
    write_all(Input::from_generator(synth, requests), &arguments.file, arguments.to_format)
}

/// Writes a trace that is fitted to another one, and prints the difference of their curves.
fn make_like(trace: &Path, arguments: &SynthArgs) -> Result<()> {
    DistinctFiles::of_inputs(vec![trace.to_owned()]).add_output(&arguments.file)?;
    let options = FitOptions { requests: arguments.requests, seed: arguments.seed };
    let mut made = fitted::fit(Box::new(Input::open(trace, &arguments.input)?), &options)?;
    let mut output = Output::create(&arguments.file, arguments.to_format, &made)?;
    let mut batch = Vec::new();
    while made.next_batch(&mut batch)? {
        output.append(&batch, &made)?;
    }
    output.finish(&made)?;
    let text = made.to_text();
    if *arguments.file == *Path::new("-") {
        eprint!("{text}");
        return Ok(());
    }
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_writes_needs_no_sign() {
        assert_eq!((percent("30"), percent("30%"), percent("0")), (Ok(0.3), Ok(0.3), Ok(0.0)));
        for wrong in ["0.3", "101", "-1", "x", ""] {
            assert!(percent(wrong).unwrap_err().contains("not a share"), "{wrong}");
        }
    }
}
