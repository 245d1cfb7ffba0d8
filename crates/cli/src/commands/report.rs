//! `larder report`: a recorded run, or a log of Perfmon, for people and for other programs.

use crate::output::{self, OutputFile};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use larder_report::format;
use larder_report::perfmon::{self, Decimal, Names, Options, Summary};
use larder_report::run::Run;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a record: ten million values of trials.
const RECORD_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The run, as larder bench wrote it, or a log of Perfmon (CSV).
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How to show it; html if the name of the output ends so.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Where to, instead of standard output. It is written under another name and renamed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,

    /// The names of counters on the machine that a log of Perfmon is of, if larder does not know
    /// them: what its registry has as Counter for its language (docs/perfmon.md).
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    /// What stands before the decimals of a log of Perfmon, if the log itself does not show it.
    #[arg(long, value_name = "SIGN")]
    decimal: Option<Sign>,
}

/// What stands before decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sign {
    /// 1.5
    Point,
    /// 1,5
    Comma,
}

/// The forms of a run and of a log.
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
    pub(crate) fn of_name(path: &Path) -> Option<Format> {
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

    /// A log of Perfmon in this form.
    fn write_log(self, log: &Summary) -> String {
        match self {
            Format::Text => log.to_text(),
            Format::Csv => log.to_csv(),
            Format::Html => log.to_html(),
            Format::Json => format!("{:#}\n", log.to_json()),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let named = arguments.output.as_deref().and_then(Format::of_name);
    let format = arguments.format.or(named).unwrap_or(Format::Text);
    let what = || format!("read {}", arguments.file.display());
    let mut file = open_text(&arguments.file)?;
    let text = if perfmon::is_log(file.fill_buf().with_context(what)?) {
        format.write_log(&log(file, arguments)?)
    } else if arguments.names.is_some() || arguments.decimal.is_some() {
        bail!("{}: --names and --decimal need a log of Perfmon, which it is not", what());
    } else {
        let begin = file.fill_buf().with_context(what)?.trim_ascii_start();
        ensure!(
            begin.starts_with(b"{"),
            "{}: it is neither a result of larder nor a log of Perfmon",
            what()
        );
        format.write(&parse(&arguments.file, file)?)?
    };
    match &arguments.output {
        Some(file) => output::write_whole(file, &text),
        // A reader that has had enough is no failure, so the error must reach main as it is.
        None => Ok(crate::output::stdout().write_all(text.as_bytes())?),
    }
}

/// Reads a log of Perfmon.
fn log(log: impl BufRead, arguments: &Arguments) -> Result<Summary> {
    let names = match &arguments.names {
        Some(file) => {
            let what = || format!("read {}", file.display());
            let names = Names::read(open_text(file)?).with_context(what)?;
            let is_none = || format!("{}: it does not list numbers and names in turn", what());
            Some(names.with_context(is_none)?)
        }
        None => None,
    };
    let decimal = arguments.decimal.map(|sign| match sign {
        Sign::Point => Decimal::Point,
        Sign::Comma => Decimal::Comma,
    });
    let options = Options { names: names.as_ref(), decimal };
    perfmon::read(log, &options).with_context(|| format!("read {}", arguments.file.display()))
}

fn open_text(file: &Path) -> Result<BufReader<File>> {
    let opened = File::open(file).with_context(|| format!("read {}", file.display()))?;
    Ok(BufReader::new(opened))
}

fn parse(file: &Path, from: impl Read) -> Result<Run> {
    let what = || format!("read {}", file.display());
    let mut text = Vec::new();
    from.take(RECORD_BYTES_MAX + 1).read_to_end(&mut text).with_context(what)?;
    ensure!(
        text.len() as u64 <= RECORD_BYTES_MAX,
        "{}: it is larger than {}, the maximum size of a record",
        what(),
        format::bytes(RECORD_BYTES_MAX)
    );
    let Ok(text) = String::from_utf8(text) else {
        bail!("{}: it is not a result of larder", what());
    };
    Run::from_json(&text).with_context(what)
}

/// Reads a recorded run.
pub(crate) fn open(file: &Path) -> Result<Run> {
    parse(file, open_text(file)?)
}
