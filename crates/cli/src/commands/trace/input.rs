//! Traces that are read: opened, with progress on a terminal, and with what the reader found out
//! said at the end.

use crate::progress;
use anyhow::{Context, Result};
use clap::Args;
use indicatif::ProgressBar;
use larder_lab::trace::{BoxedSource, Format, OpenOptions, Record, open};
use std::io::IsTerminal;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How traces are read.
#[derive(Debug, Args)]
pub(super) struct InputArguments {
    /// The format of the traces; told by content, else by the end of the name, if not given.
    #[arg(long, value_name = "FORMAT", value_parser = format, help_heading = "Reading")]
    format: Option<Format>,

    /// Bad records that are passed over before it is an error.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Reading")]
    max_bad: u64,
}

/// A format by name.
pub(crate) fn format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Format::all().map(Format::name).collect();
        format!("\"{text}\" is not a format; there are {}", names.join(", "))
    })
}

/// Opens a trace without anything around it.
pub(super) fn open_trace(
    path: &Path,
    arguments: &InputArguments,
    times: Option<Range<u64>>,
    progress: Option<Arc<AtomicU64>>,
) -> Result<BoxedSource> {
    let InputArguments { format, max_bad } = *arguments;
    let options = OpenOptions { format, format_option: "--format", max_bad, times, progress };
    open(path, &options).context("read a trace")
}

/// A trace being read.
pub(super) struct Input {
    pub(super) source: BoxedSource,
    bar: Option<(ProgressBar, Arc<AtomicU64>)>,
}

impl Input {
    /// Opens a trace.
    pub(super) fn open(path: &Path, arguments: &InputArguments) -> Result<Self> {
        Input::open_times(path, arguments, None)
    }

    /// Opens a trace of which only these times are needed, in nanoseconds since its beginning.
    pub(super) fn open_times(
        path: &Path,
        arguments: &InputArguments,
        times: Option<Range<u64>>,
    ) -> Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let source = open_trace(path, arguments, times, Some(read.clone()))?;
        let bar = if std::io::stderr().is_terminal()
            && let Ok(metadata) = path.metadata()
        {
            let template = "reading [{bar:30}] {bytes} of {total_bytes}, {eta} left";
            Some((progress::bar(metadata.len(), template), read))
        } else {
            None
        };
        Ok(Input { source, bar })
    }

    /// A source that is no file.
    pub(super) fn of(source: BoxedSource) -> Self {
        Input { source, bar: None }
    }

    /// Replaces `batch` by the next records; false at the end, where notes are said.
    pub(super) fn read(&mut self, batch: &mut Vec<Record>) -> Result<bool> {
        let any = self.read_quietly(batch)?;
        if let Some((bar, read)) = &self.bar {
            bar.set_position(read.load(Ordering::Relaxed));
        }
        if !any {
            self.say_notes();
        }
        Ok(any)
    }

    /// The same without a word at the end.
    pub(super) fn read_quietly(&mut self, batch: &mut Vec<Record>) -> Result<bool> {
        self.source.next_batch(batch).context("read a trace")
    }

    fn say_notes(&mut self) {
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
