//! `larder compare`: two runs of the same workload, series by series.

use crate::args::{FormatArgs, TableFormat};
use crate::commands::report;
use anyhow::Result;
use clap::Args;
use larder_report::compare::{THRESHOLD, compare, table, to_text};
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
    format: FormatArgs<TableFormat>,
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
    let comparison = compare(&a, &b, arguments.threshold)?;
    let text = match arguments.format.get() {
        TableFormat::Text => to_text(&comparison),
        TableFormat::Csv => table(&comparison).to_csv(),
        TableFormat::Json => format!("{:#}\n", comparison.to_json()),
    };
    // A closed pipe is not a failure, so the error must reach main without context.
    crate::output::stdout().write_all(text.as_bytes())?;
    Ok(if comparison.is_worse() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
