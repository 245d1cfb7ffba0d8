//! `larder report`: a recorded run for people and for other programs.

use crate::output;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use larder_report::run::Run;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The run, as larder bench wrote it.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How to show it; html if the name of the output ends so.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Where to, instead of standard output. It is written under another name and renamed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The forms of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences.
    Text,
    /// Every value, one line each.
    Csv,
    /// One page with charts that needs nothing else.
    Html,
    /// The record, in the newest version of the format.
    Json,
}

impl Format {
    /// The one that the end of a name asks for.
    fn of_name(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "html" | "htm" => Some(Format::Html),
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            _ => None,
        }
    }

    /// A run in this form.
    pub(crate) fn write(self, run: &Run) -> Result<String> {
        Ok(match self {
            Format::Text => run.to_text(),
            Format::Csv => run.to_csv(),
            Format::Html => run.to_html(),
            Format::Json => run.to_json()?,
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = open(&arguments.file)?;
    let named = arguments.output.as_deref().and_then(Format::of_name);
    let text = arguments.format.or(named).unwrap_or(Format::Text).write(&run)?;
    match &arguments.output {
        Some(file) => output::write_whole(file, &text),
        // A reader that has had enough is no failure, so the error must reach main as it is.
        None => Ok(std::io::stdout().write_all(text.as_bytes())?),
    }
}

/// Reads a recorded run.
pub(crate) fn open(file: &Path) -> Result<Run> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("read the run {}", file.display()))?;
    Run::from_json(&text).with_context(|| format!("read {}", file.display()))
}
