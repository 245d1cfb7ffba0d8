//! Output traces: written under a temporary name and renamed when complete; or to standard output.

use crate::args;
use crate::output::{AtomicFile, raw_stdout};
use crate::output_file::check_unused;
use anyhow::{Context, Result, bail, ensure};
use larder_lab::trace::{Record, Sink, Source, Target};
use larder_report::escape::Terminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The temporary file, while it exists.
static TEMPORARY_FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Makes a terminating signal remove the file first, even while a read blocks.
fn remove_on_signal(path: &Path) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("receive signals")?;
    *TEMPORARY_FILE.lock().expect("no holder panics") = Some(path.to_owned());
    let end = move || {
        for signal in signals.forever() {
            let path = TEMPORARY_FILE.lock().expect("no holder panics").take();
            if let Some(Err(error)) = path.map(std::fs::remove_file) {
                eprintln!("larder: cannot remove what was not finished: {error}");
            }
            if let Err(error) = emulate_default_handler(signal) {
                eprintln!("larder: cannot end: {error}");
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(end)?;
    Ok(())
}

/// Parses the name of an output format.
pub(super) fn target(text: &str) -> Result<Target, String> {
    Target::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Target::all().iter().map(|(_, name, _)| *name).collect();
        let is_parquet = text == "parquet";
        let hint = if is_parquet { " (for Parquet build with --features full)" } else { "" };
        let known = args::one_of::<Target>("format", text, None, &names);
        format!("{}{hint}", known.err().unwrap_or_default())
    })
}

/// Adds the path to an error of a file. An error of standard output is unchanged: main names it.
fn add_path(result: io::Result<()>, path: Option<&PathBuf>) -> Result<()> {
    match path {
        Some(path) => result.with_context(|| format!("write {}", path.display())),
        None => Ok(result?),
    }
}

/// A trace being written.
pub(super) struct Output {
    sink: Box<dyn Sink>,
    /// The file and its path; `None` on standard output.
    file: Option<(AtomicFile, PathBuf)>,
}

impl Output {
    /// Creates a trace in a file, or on standard output for `-`. The format is `target`, else that
    /// of the file name, else Larder's own.
    pub(super) fn create(path: &Path, target: Option<Target>, source: &dyn Source) -> Result<Self> {
        let name = path.to_string_lossy();
        let from_name = Target::from_file_name(&name);
        let is_parquet = name.to_ascii_lowercase().ends_with(".parquet");
        ensure!(
            target.is_some() || from_name.is_some() || !is_parquet,
            "write {name}: this build of larder does not support Parquet; choose another name, \
             install a package of larder, or build it with `cargo build --release --features full`"
        );
        if let (None, None, Some(ending)) = (target, from_name, path.extension()) {
            let endings: Vec<_> =
                Target::all().iter().map(|(.., extension)| format!(".{extension}")).collect();
            bail!(
                "write {name}: no format has the ending .{}; use {}, or add --to-format",
                ending.display(),
                endings.join(", ")
            );
        }
        let target = target.or(from_name).unwrap_or(Target::Larder);
        if path == Path::new("-") {
            ensure!(
                target == Target::Csv || !raw_stdout().is_terminal(),
                "write a trace to a terminal: only --to-format csv is text; write it to a file or \
                 a pipe"
            );
            // Users read CSV too, so names in it must not control a terminal.
            let sink = if target == Target::Csv {
                target.begin(Terminal::new(raw_stdout()), source)?
            } else {
                target.begin(raw_stdout(), source)?
            };
            return Ok(Output { sink, file: None });
        }
        check_unused(path, "write")?;
        let file = AtomicFile::begin(path, ".part")?;
        if let Some(path) = file.temporary_path() {
            remove_on_signal(&path)?;
        }
        let sink = target.begin(file.reopen()?, source);
        let sink = sink.with_context(|| format!("write {}", path.display()))?;
        Ok(Output { sink, file: Some((file, path.to_owned())) })
    }

    /// Appends records of `source`.
    pub(super) fn append(&mut self, records: &[Record], source: &dyn Source) -> Result<()> {
        let result = self.sink.append(records, source);
        add_path(result, self.file.as_ref().map(|(_, path)| path))
    }

    /// Completes the trace and renames the file.
    pub(super) fn finish(self, source: &dyn Source) -> Result<()> {
        let result = self.sink.finish(source);
        add_path(result, self.file.as_ref().map(|(_, path)| path))?;
        if let Some((file, _)) = self.file {
            file.finish()?;
            // The renamed file must not be removed.
            TEMPORARY_FILE.lock().expect("no holder panics").take();
        }
        Ok(())
    }
}
