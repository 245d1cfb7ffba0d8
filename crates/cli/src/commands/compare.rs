//! `larder compare`: two runs of the same workload, series by series.

use crate::args::FormatArgs;
use crate::commands::report::{self, Format};
use crate::output;
use crate::output_file::OutputFile;
use anyhow::{Context, Result};
use clap::Args;
use larder_report::compare::{THRESHOLD, compare, table, to_html, to_text};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The baseline run.
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The run to compare with the baseline.
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Smallest difference that counts.
    ///
    /// The difference is relative to the baseline.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = percent)]
    threshold: f64,

    #[command(flatten)]
    format: FormatArgs<Format>,

    /// Output file, instead of standard output.
    ///
    /// Its extension selects the format, if --format does not: .html is a page with a chart.
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,
}

/// The default on the command line equals that of the library.
const _: () = assert!(THRESHOLD > 0.0199 && THRESHOLD < 0.0201);

/// Parses a percentage such as `2%`, from 0 and below 100.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    number
        .filter(|percent| (0.0..100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("\"{text}\" is not a share; write 5%, from 0% and below 100%"))
}

pub(crate) fn run(arguments: &CompareArgs) -> Result<ExitCode> {
    let (a, b) = (report::open(&arguments.a)?, report::open(&arguments.b)?);
    let names = [&arguments.a, &arguments.b].map(|file| file.display());
    let comparison = compare(&a, &b, arguments.threshold)
        .with_context(|| format!("compare {} with {}", names[0], names[1]))?;
    let text = match Format::choose(arguments.format.selected(), arguments.output.as_deref())? {
        Format::Text => to_text(&comparison),
        Format::Csv => table(&comparison).to_csv(),
        Format::Html => to_html(&comparison),
        Format::Json => format!("{:#}\n", comparison.to_json()),
    };
    match &arguments.output {
        Some(file) => output::write_atomically(file, &text)?,
        // A closed pipe is not a failure, so the error must reach main without context.
        None => output::stdout().write_all(text.as_bytes())?,
    }
    Ok(if comparison.is_worse() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
