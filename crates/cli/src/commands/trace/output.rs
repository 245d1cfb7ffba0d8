//! Traces that are written: under another name first, renamed when whole; or to standard output.

use crate::output::{Whole, raw_stdout};
use anyhow::{Context, Result, bail, ensure};
use larder_lab::trace::{Record, Sink, Source, Target};
use larder_report::escape::Terminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The file under its other name, while there is one.
static PART: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on a signal that ends the process removes the file first, even while a read blocks.
fn remove_when_ended(part: &Path) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("receive signals")?;
    *PART.lock().expect("no holder panics") = Some(part.to_owned());
    let end = move || {
        for signal in signals.forever() {
            let part = PART.lock().expect("no holder panics").take();
            if let Some(Err(error)) = part.map(std::fs::remove_file) {
                eprintln!("larder: failed to remove what was not finished: {error}");
            }
            if let Err(error) = emulate_default_handler(signal) {
                eprintln!("larder: failed to end: {error}");
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(end)?;
    Ok(())
}

/// The format with this name.
pub(super) fn target(text: &str) -> Result<Target, String> {
    Target::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Target::ALL.iter().map(|target| target.name()).collect();
        let is_parquet = text == "parquet";
        let hint = if is_parquet { " (for Parquet build with --features full)" } else { "" };
        let names = names.join(", ");
        format!("this build cannot write the format \"{text}\"; choose one of {names}{hint}")
    })
}

/// Adds the path to an error of a file. One of standard output stays as it is: main names it.
fn named(written: io::Result<()>, path: Option<&PathBuf>) -> Result<()> {
    match path {
        Some(path) => written.with_context(|| format!("write {}", path.display())),
        None => Ok(written?),
    }
}

/// A trace being written.
pub(super) struct Output {
    sink: Box<dyn Sink>,
    /// The file and its path; none on standard output.
    file: Option<(Whole, PathBuf)>,
}

impl Output {
    /// Begins a trace in a file, or on standard output for `-`. The format is the one that is
    /// given, else that of the name, else our own.
    pub(super) fn create(path: &Path, target: Option<Target>, source: &dyn Source) -> Result<Self> {
        let name = path.to_string_lossy();
        let by_name = Target::from_file_name(&name);
        let is_parquet = name.to_ascii_lowercase().ends_with(".parquet");
        ensure!(
            target.is_some() || by_name.is_some() || !is_parquet,
            "write {name}: this build of larder does not support Parquet; choose another name, \
             install a package of larder, or build it with `cargo build --release --features full`"
        );
        if let (None, None, Some(ending)) = (target, by_name, path.extension()) {
            let endings: Vec<_> =
                Target::ALL.iter().map(|target| format!(".{}", target.extension())).collect();
            bail!(
                "write {name}: no format has the ending .{}; use {}, or name the format",
                ending.display(),
                endings.join(", ")
            );
        }
        let target = target.or(by_name).unwrap_or(Target::Larder);
        if path == Path::new("-") {
            ensure!(
                target == Target::Csv || !raw_stdout().is_terminal(),
                "write a trace to a terminal: only --to csv is text; write it to a file or a pipe"
            );
            // Users read CSV too, so names in it must not control a terminal.
            let sink = if target == Target::Csv {
                target.begin(Terminal::new(raw_stdout()), source)?
            } else {
                target.begin(raw_stdout(), source)?
            };
            return Ok(Output { sink, file: None });
        }
        let file = Whole::begin(path, ".part")?;
        if let Some(part) = file.part() {
            remove_when_ended(&part)?;
        }
        let sink = target.begin(file.reopen()?, source);
        let sink = sink.with_context(|| format!("write {}", path.display()))?;
        Ok(Output { sink, file: Some((file, path.to_owned())) })
    }

    /// Appends records of `source`.
    pub(super) fn append(&mut self, records: &[Record], source: &dyn Source) -> Result<()> {
        let written = self.sink.append(records, source);
        named(written, self.file.as_ref().map(|(_, path)| path))
    }

    /// Ends the trace and gives it its name.
    pub(super) fn finish(self, source: &dyn Source) -> Result<()> {
        let written = self.sink.finish(source);
        named(written, self.file.as_ref().map(|(_, path)| path))?;
        if let Some((file, _)) = self.file {
            file.finish()?;
            // Under its name it stays.
            PART.lock().expect("no holder panics").take();
        }
        Ok(())
    }
}
