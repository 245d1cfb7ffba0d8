//! Input traces: opened with progress on a terminal; notes of the reader are printed at the end.

use crate::{args, progress};
use anyhow::Result;
use clap::Args;
use indicatif::ProgressBar;
use larder_lab::trace::synth::{Synth, SynthOptions};
use larder_lab::trace::{
    Addressing, BoxedSource, Format, NameKind, OpenOptions, Record, Source, TraceError, open,
};
use std::ops::Range;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Options for reading traces.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// Format of the traces.
    ///
    /// If not given, detected by content, or else by the extension.
    #[arg(long, value_name = "FORMAT", value_parser = format, help_heading = "Reading",
          hide_short_help = true)]
    trace_format: Option<Format>,

    /// Maximum number of bad records that are skipped.
    ///
    /// One more is an error.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        help_heading = "Reading",
        hide_short_help = true
    )]
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

/// The name of the sample in results.
pub(crate) const SAMPLE_NAME: &str = "sample";

/// Opens a trace that is read several times: a file, or the sample that is generated here.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn open_trace(
    path: Option<&Path>,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    if let Some(path) = path {
        return open(path, options);
    }
    let sample = Synth::new(SynthOptions::SAMPLE);
    Ok(Box::new(sample.expect("the options of the sample are in range")))
}

impl InputArgs {
    /// Returns the options for opening a trace.
    pub(crate) fn options(&self) -> OpenOptions {
        let InputArgs { trace_format: format, max_bad } = *self;
        let format_option = "--trace-format";
        OpenOptions { format, format_option, max_bad, ..OpenOptions::default() }
    }

    /// Returns true if no option was given.
    pub(super) fn is_default(&self) -> bool {
        self.trace_format.is_none() && self.max_bad == 0
    }

    /// Opens a trace without a progress bar; `times` limits the times that are needed, in
    /// nanoseconds since its beginning, and `read` counts the bytes read.
    pub(crate) fn open(
        &self,
        path: &Path,
        times: Option<Range<u64>>,
        read: Option<&Arc<AtomicU64>>,
    ) -> Result<BoxedSource> {
        let options = OpenOptions { times, progress: read.cloned(), ..self.options() };
        Ok(open(path, &options)?)
    }
}

/// A trace being read. It prints the notes of the reader at its end.
pub(super) struct Input {
    source: BoxedSource,
    bar: ProgressBar,
    /// Bytes read from the files; `None` if the bar counts records.
    read: Option<Arc<AtomicU64>>,
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
        let source = arguments.open(path, times, Some(&read))?;
        Ok(Input::from_files(source, slice::from_ref(&path), read))
    }

    /// Creates an input from a source that reads these files and counts their bytes in `read`.
    pub(super) fn from_files<P: AsRef<Path>>(
        source: BoxedSource,
        files: &[P],
        read: Arc<AtomicU64>,
    ) -> Self {
        let bytes = files.iter().map(|path| path.as_ref().metadata().ok().map(|file| file.len()));
        // The size of a stream is unknown, and so is the time that is left.
        let bytes: Option<u64> = bytes.sum();
        let bar = bytes.filter(|bytes| *bytes > 0).map(|it| progress::byte_bar(it, "reading"));
        let bar = bar.unwrap_or_else(ProgressBar::hidden);
        Input { source, bar, read: Some(read) }
    }

    /// Creates an input from a source that generates this number of records.
    pub(super) fn from_generator(source: impl Source + Send + 'static, records: u64) -> Self {
        let template = "generating [{wide_bar}] {count} of {total} requests{rate}";
        let is_shown = crate::output::shows_progress();
        let bar = if is_shown { progress::bar(records, template) } else { ProgressBar::hidden() };
        Input { source: Box::new(source), bar, read: None }
    }
}

impl Source for Input {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let len_before = batch.len();
        self.source.read_batch(batch)?;
        match &self.read {
            Some(read) => self.bar.set_position(read.load(Ordering::Relaxed)),
            None => self.bar.inc((batch.len() - len_before) as u64),
        }
        if batch.len() == len_before {
            self.bar.finish_and_clear();
            for note in self.source.notes() {
                eprintln!("larder: note: {note}");
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
        self.bar.finish_and_clear();
    }
}
