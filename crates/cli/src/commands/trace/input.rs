//! Input traces: opened with progress on a terminal; notes of the reader are printed at the end.

use crate::{args, progress};
use anyhow::Result;
use clap::Args;
use indicatif::ProgressBar;
use larder_lab::trace::{
    Addressing, BoxedSource, Format, NameKind, OpenOptions, Record, Source, TraceError, open,
};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Options for reading traces.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// Format of the traces; if not given, detected by content, or else by the extension.
    #[arg(long, value_name = "FORMAT", value_parser = format, help_heading = "Reading")]
    trace_format: Option<Format>,

    /// Maximum number of bad records that are skipped; one more is an error.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Reading")]
    max_bad: u64,
}

/// Parses the name of a format.
pub(crate) fn format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Format::all().map(Format::name).collect();
        let unknown = args::unknown("trace format", text, names.iter().copied());
        // All names are more than a line; one similar name suffices.
        if unknown.ends_with('?') {
            unknown
        } else {
            format!("{unknown}; write {}", names.join(", "))
        }
    })
}

impl InputArgs {
    /// Returns the options for opening a trace.
    pub(crate) fn options(&self) -> OpenOptions {
        let InputArgs { trace_format: format, max_bad } = *self;
        let format_option = "--trace-format";
        OpenOptions { format, format_option, max_bad, ..OpenOptions::default() }
    }

    /// Opens a trace without a progress bar; `times` limits the times that are needed, in
    /// nanoseconds since its beginning.
    pub(super) fn open(&self, path: &Path, times: Option<Range<u64>>) -> Result<BoxedSource> {
        Ok(open(path, &OpenOptions { times, ..self.options() })?)
    }
}

/// A trace being read. It prints the notes of the reader at its end.
pub(super) struct Input {
    source: BoxedSource,
    bar: Option<(ProgressBar, Arc<AtomicU64>)>,
}

impl Input {
    /// Opens a trace.
    pub(super) fn open(path: &Path, arguments: &InputArgs) -> Result<Self> {
        Input::open_times(path, arguments, None)
    }

    /// Opens a trace of which only these times are needed, in nanoseconds since its beginning.
    pub(super) fn open_times(
        path: &Path,
        arguments: &InputArgs,
        times: Option<Range<u64>>,
    ) -> Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let options = OpenOptions { times, progress: Some(read.clone()), ..arguments.options() };
        let source = open(path, &options)?;
        let bar = if crate::output::shows_progress()
            && let Ok(metadata) = path.metadata()
        {
            let template = "reading [{bar:30}] {bytes} of {total_bytes}, {eta} left";
            Some((progress::bar(metadata.len(), template), read))
        } else {
            None
        };
        Ok(Input { source, bar })
    }

    /// Creates an input from a source that is not a file.
    pub(super) fn from_source(source: impl Source + Send + 'static) -> Self {
        Input { source: Box::new(source), bar: None }
    }
}

impl Source for Input {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let len_before = batch.len();
        self.source.read_batch(batch)?;
        if let Some((bar, read)) = &self.bar {
            bar.set_position(read.load(Ordering::Relaxed));
        }
        if batch.len() == len_before {
            if let Some((bar, _)) = self.bar.take() {
                bar.finish_and_clear();
            }
            for note in self.source.notes() {
                eprintln!("larder: {note}");
            }
        }
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        self.source.name(kind, number)
    }

    fn addressing(&self) -> Addressing {
        self.source.addressing()
    }

    fn sample(&self) -> u32 {
        self.source.sample()
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
