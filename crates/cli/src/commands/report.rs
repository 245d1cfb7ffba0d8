//! `larder report`: a recorded run, a watch or a log of Perfmon, for people and for other programs.

use crate::args::{FormatArgs, TextOrJson};
use crate::output;
use crate::output_file::OutputFile;
use anyhow::{Context, Result, bail, ensure};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use larder_report::perfmon::{self, Decimal, Names, Options};
use larder_schema::format;
use larder_schema::perfmon::Summary;
use larder_schema::run::Run;
use larder_schema::watch::{self, Watch};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a record: ten million values of trials.
const RECORD_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A run, a result of larder watch, or a log of Perfmon.
    ///
    /// A run as larder bench wrote it, the JSON of larder watch, or a log of Perfmon (CSV).
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    format: FormatArgs<Format>,

    /// Output file, instead of standard output.
    ///
    /// Its extension selects the format, if --format does not. It is written under another name and
    /// renamed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,

    #[command(flatten)]
    perfmon: PerfmonArgs,
}

/// Interpretation of a log of Perfmon.
#[derive(Debug, Args)]
pub(crate) struct PerfmonArgs {
    /// Names of counters of a log of Perfmon.
    ///
    /// Names of counters on the machine of the log, if larder does not know them: the value Counter
    /// in its registry for its language (docs/perfmon.md).
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    names: Option<PathBuf>,

    /// Decimal separator of a log of Perfmon: point, comma.
    ///
    /// Only if the log itself does not show it.
    #[arg(long, value_name = "SIGN", hide_possible_values = true, hide_short_help = true)]
    decimal: Option<DecimalSeparator>,
}

/// Decimal separator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DecimalSeparator {
    /// 1.5
    Point,
    /// 1,5
    Comma,
}

/// The output formats of runs, watches, logs and comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences.
    #[default]
    Text,
    /// Every value, one line each.
    Csv,
    /// One self-contained page with charts.
    Html,
    /// The record, in the newest version of the format.
    Json,
}

impl Format {
    /// Returns the format for the extension of a file name.
    pub(crate) fn from_extension(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "html" | "htm" => Some(Format::Html),
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "txt" => Some(Format::Text),
            _ => None,
        }
    }

    /// Returns the selected format, or that of the output file: text, if there is none or its name
    /// has no extension.
    pub(crate) fn choose(selected: Option<Format>, output: Option<&Path>) -> Result<Format> {
        let output = output.filter(|_| selected.is_none());
        let Some((path, ending)) = output.and_then(|path| Some((path, path.extension()?))) else {
            return Ok(selected.unwrap_or_default());
        };
        Format::from_extension(path).with_context(|| {
            let (path, ending) = (path.display(), ending.display());
            format!(
                "write {path}: no format has the ending .{ending}; use .html, .json, .csv or \
                 .txt, or add --format"
            )
        })
    }

    /// Formats a run.
    pub(crate) fn write(self, run: &Run) -> Result<String> {
        Ok(match self {
            Format::Text => larder_report::run::to_text(run),
            Format::Csv => larder_report::run::to_csv(run),
            Format::Html => larder_report::run::to_html(run),
            Format::Json => run.to_json()?,
        })
    }

    /// Formats a watch.
    fn write_watch(self, result: &Watch) -> Result<String> {
        Ok(match self {
            Format::Text => larder_report::watch::to_text(result, None),
            Format::Html => larder_report::watch::to_html(result),
            Format::Json => result.to_json(),
            Format::Csv => bail!("a result of larder watch has no CSV: use text, html or json"),
        })
    }

    /// Formats a log of Perfmon.
    fn write_log(self, log: &Summary) -> String {
        match self {
            Format::Text => perfmon::to_text(log),
            Format::Csv => perfmon::to_csv(log),
            Format::Html => perfmon::to_html(log),
            Format::Json => format!("{:#}\n", log.to_json()),
        }
    }
}

/// Returns a parser for the name of a page or of JSON, which is the format without an extension.
pub(crate) fn page_or_json() -> impl TypedValueParser<Value = OutputFile> {
    result_file(".html or .json", &[Format::Html, Format::Json])
}

/// As [`page_or_json`], with CSV.
pub(crate) fn page_json_or_csv() -> impl TypedValueParser<Value = OutputFile> {
    result_file(".html, .json or .csv", &[Format::Html, Format::Json, Format::Csv])
}

/// As [`page_or_json`], for all formats.
pub(crate) fn any_format() -> impl TypedValueParser<Value = OutputFile> {
    result_file(".html, .json, .csv or .txt", Format::value_variants())
}

fn result_file(
    endings: &'static str,
    formats: &'static [Format],
) -> impl TypedValueParser<Value = OutputFile> {
    OsStringValueParser::new().try_map(move |path| {
        let path = OutputFile::from(path);
        if let Some(ending) = path.extension() {
            let is_known = Format::from_extension(&path).is_some_and(|it| formats.contains(&it));
            ensure!(is_known, "no format has the ending .{}; use {endings}", ending.display());
        }
        Ok(path)
    })
}

/// Writes a result into a file: as a page if its name ends in `.html`, else as JSON.
pub(crate) fn write_result(
    file: &Path,
    page: impl FnOnce() -> String,
    json: impl FnOnce() -> String,
) -> Result<()> {
    write_formatted(file, |format| match format {
        Format::Html => page(),
        _ => json(),
    })
}

/// Writes a result into a file in the format of its extension; JSON, if it has none.
fn write_formatted(file: &Path, text: impl FnOnce(Format) -> String) -> Result<()> {
    let format = Format::from_extension(file).unwrap_or(Format::Json);
    output::write_atomically(file, &text(format))
}

/// Prints a result, and writes it into a file, if there is one. Returns the result of printing: a
/// file that cannot be written does not lose the text, nor does a closed pipe the file.
pub(crate) fn print_and_write(
    format: TextOrJson,
    file: Option<&OutputFile>,
    text: impl FnOnce() -> String,
    page: impl FnOnce() -> String,
    json: impl Fn() -> String,
) -> Result<io::Result<()>> {
    let printed = print(format, text, &json);
    if let Some(file) = file {
        write_result(file, page, json)?;
    }
    Ok(printed)
}

/// As [`print_and_write`], with a file in any format that `formatted` returns.
pub(crate) fn print_result(
    format: TextOrJson,
    file: Option<&OutputFile>,
    text: impl FnOnce() -> String,
    formatted: impl Fn(Format) -> String,
) -> Result<io::Result<()>> {
    let printed = print(format, text, || formatted(Format::Json));
    if let Some(file) = file {
        write_formatted(file, formatted)?;
    }
    Ok(printed)
}

fn print(
    format: TextOrJson,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> String,
) -> io::Result<()> {
    let text = match format {
        TextOrJson::Text => text(),
        TextOrJson::Json => json(),
    };
    output::stdout().write_all(text.as_bytes())
}

pub(crate) fn run(arguments: &ReportArgs) -> Result<()> {
    let format = Format::choose(arguments.format.selected(), arguments.output.as_deref())?;
    let context = || format!("read {}", arguments.file.display());
    let mut file = open_text(&arguments.file)?;
    let text = if perfmon::is_log(file.fill_buf().with_context(context)?) {
        format.write_log(&log(&arguments.file, file, &arguments.perfmon)?)
    } else if arguments.perfmon.names.is_some() || arguments.perfmon.decimal.is_some() {
        bail!("{}: --names and --decimal need a log of Perfmon, which it is not", context());
    } else {
        let begin = file.fill_buf().with_context(context)?.trim_ascii_start();
        ensure!(
            begin.starts_with(b"{"),
            "{}: it is neither a result of larder nor a log of Perfmon",
            context()
        );
        let text = read(&arguments.file, file)?;
        if is_watch(&text) {
            format.write_watch(&Watch::from_json(&text).with_context(context)?)?
        } else {
            format.write(&Run::from_json(&text).with_context(context)?)?
        }
    };
    match &arguments.output {
        Some(file) => output::write_atomically(file, &text),
        // A closed pipe is not a failure, so the error must reach main without context.
        None => Ok(crate::output::stdout().write_all(text.as_bytes())?),
    }
}

/// Reads a log of Perfmon.
pub(crate) fn log(file: &Path, log: impl BufRead, arguments: &PerfmonArgs) -> Result<Summary> {
    let names = match &arguments.names {
        Some(list) => {
            let context = || format!("read {}", list.display());
            let names = Names::read(open_text(list)?).with_context(context)?;
            let is_none = || format!("{}: it does not list numbers and names in turn", context());
            Some(names.with_context(is_none)?)
        }
        None => None,
    };
    let decimal = arguments.decimal.map(|sign| match sign {
        DecimalSeparator::Point => Decimal::Point,
        DecimalSeparator::Comma => Decimal::Comma,
    });
    let options = Options { names: names.as_ref(), decimal };
    perfmon::read(log, &options).with_context(|| format!("read {}", file.display()))
}

fn open_text(file: &Path) -> Result<BufReader<File>> {
    let opened = File::open(file).with_context(|| format!("read {}", file.display()))?;
    Ok(BufReader::new(opened))
}

/// Returns true if the text is the result of `larder watch`.
fn is_watch(text: &str) -> bool {
    /// The field that all formats of Larder have.
    #[derive(serde::Deserialize)]
    struct Header {
        schema: String,
    }
    serde_json::from_str::<Header>(text).is_ok_and(|header| header.schema == watch::SCHEMA)
}

pub(crate) fn read(file: &Path, reader: impl Read) -> Result<String> {
    let context = || format!("read {}", file.display());
    let mut text = Vec::new();
    reader.take(RECORD_BYTES_MAX + 1).read_to_end(&mut text).with_context(context)?;
    ensure!(
        text.len() as u64 <= RECORD_BYTES_MAX,
        "{}: it is larger than {}, the maximum size of a record",
        context(),
        format::bytes(RECORD_BYTES_MAX)
    );
    String::from_utf8(text)
        .ok()
        .with_context(|| format!("{}: it is not a result of larder", context()))
}

/// Reads a result of `larder watch`; `None` if the file is no JSON.
pub(crate) fn open_watch(file: &Path) -> Result<Option<Watch>> {
    let context = || format!("read {}", file.display());
    let mut opened = open_text(file)?;
    if !opened.fill_buf().with_context(context)?.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    let text = read(file, opened)?;
    Watch::from_json(&text).with_context(context).map(Some)
}

/// Reads a recorded run.
pub(crate) fn open(file: &Path) -> Result<Run> {
    let text = read(file, open_text(file)?)?;
    Run::from_json(&text).with_context(|| format!("read {}", file.display()))
}
