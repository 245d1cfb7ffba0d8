//! Input traces: opened with progress on a terminal; notes of the reader are printed at the end.

use crate::progress;
use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use larder_lab::trace::{BoxedSource, Format, OpenOptions, Record, open};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Options for reading traces.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
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
        format!("\"{text}\" is not a format; there are {}", names.join(", "))
    })
}

/// Opens a trace without a progress bar.
pub(super) fn open_trace(
    path: &Path,
    arguments: &InputArgs,
    times: Option<Range<u64>>,
    progress: Option<Arc<AtomicU64>>,
) -> Result<BoxedSource> {
    let InputArgs { trace_format: format, max_bad } = *arguments;
    let options = OpenOptions { format, format_option: "--trace-format", max_bad, times, progress };
    open(path, &options).context("read a trace")
}

/// A trace being read.
pub(super) struct Input {
    pub(super) source: BoxedSource,
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
        let source = open_trace(path, arguments, times, Some(read.clone()))?;
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
    pub(super) fn from_source(source: BoxedSource) -> Self {
        Input { source, bar: None }
    }

    /// Replaces `batch` by the next records; returns false at the end, after printing the notes.
    pub(super) fn read(&mut self, batch: &mut Vec<Record>) -> Result<bool> {
        let has_records = self.read_quietly(batch)?;
        if let Some((bar, read)) = &self.bar {
            bar.set_position(read.load(Ordering::Relaxed));
        }
        if !has_records {
            self.print_notes();
        }
        Ok(has_records)
    }

    /// Replaces `batch` by the next records; prints no notes.
    pub(super) fn read_quietly(&mut self, batch: &mut Vec<Record>) -> Result<bool> {
        self.source.next_batch(batch).context("read a trace")
    }

    fn print_notes(&mut self) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
        for note in self.source.notes() {
            eprintln!("larder: {note}");
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
