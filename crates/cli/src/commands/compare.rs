//! `larder compare`: two runs of the same workload, series by series.

use crate::commands::report;
use anyhow::Result;
use clap::{Args, ValueEnum};
use larder_report::compare::{THRESHOLD, compare};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The run before.
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The run after.
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Differences of less than this count as none.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = percent)]
    threshold: f64,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table, and what else is different.
    Text,
    /// The table alone.
    Csv,
    /// Everything.
    Json,
}

/// The default on the command line is the one of the library.
const _: () = assert!(THRESHOLD > 0.0199 && THRESHOLD < 0.0201);

/// A share such as `2%`, from 0 and below 100.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    number
        .filter(|percent| (0.0..100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("\"{text}\" is not a share; write 5%, from 0% and below 100%"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (a, b) = (report::open(&arguments.a)?, report::open(&arguments.b)?);
    let found = compare(&a, &b, arguments.threshold)?;
    let text = match arguments.format {
        Format::Text => found.to_text(),
        Format::Csv => found.table().to_csv(),
        Format::Json => format!("{:#}\n", found.to_json()),
    };
    // A reader that has had enough is no failure, so the error must reach main as it is.
    crate::output::stdout().write_all(text.as_bytes())?;
    Ok(if found.is_worse() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
