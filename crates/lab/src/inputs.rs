//! Logs of the inputs of a cache, written while the cache serves: one JSON object per line.
//!
//! [`replay`](replay::replay) gives the same inputs to the same code without memory and without
//! stores, so that the work of a server can be examined again, step by step. The first line names
//! the format; the last line holds the final counters of the cache.

pub mod replay;
pub mod workload;

use larder_core::counters::{Counter, Totals};
use larder_core::frames::Frames;
use larder_core::input::{Input, InputSink};
use larder_core::volume::Volume;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Version of the format.
const VERSION: u32 = 1;

/// The counters of a volume, by name.
pub type Counters = BTreeMap<String, u64>;

/// A line of a log.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum LogRecord {
    LarderInputs {
        version: u32,
    },
    Input(Input),
    /// Counters of the volumes, by name, after the last input.
    End(BTreeMap<String, Counters>),
}

struct Inner {
    output: BufWriter<Box<dyn Write + Send>>,
    inputs: u64,
    /// True after the last line.
    has_ended: bool,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

impl Inner {
    fn write(&mut self, line: &LogRecord) {
        if self.error.is_some() {
            return;
        }
        let written = serde_json::to_writer(&mut self.output, line).map_err(io::Error::from);
        self.error = written.and_then(|()| self.output.write_all(b"\n")).err();
    }
}

/// A log that is being written.
#[derive(Clone)]
pub struct InputLogWriter(Arc<Mutex<Inner>>);

impl std::fmt::Debug for InputLogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputLogWriter").finish_non_exhaustive()
    }
}

impl InputLogWriter {
    /// Begins a log.
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        let mut inner = Inner {
            output: BufWriter::with_capacity(1 << 20, output),
            inputs: 0,
            has_ended: false,
            error: None,
        };
        inner.write(&LogRecord::LarderInputs { version: VERSION });
        InputLogWriter(Arc::new(Mutex::new(inner)))
    }

    /// Returns the sink to which the cache writes its inputs.
    #[must_use]
    pub fn log(&self) -> Box<dyn InputSink> {
        Box::new(self.clone())
    }

    /// Ends the log with the counters of the volumes, whose sessions are closed. Later inputs are
    /// not logged. Returns the number of inputs.
    ///
    /// # Errors
    /// If the log could not be written, now or earlier.
    pub fn finish<F: Frames>(&self, volumes: &[Arc<Volume<F>>]) -> io::Result<u64> {
        // No input is being processed, so none changes a counter meanwhile.
        let _paused = volumes.first().map(|volume| volume.pause_inputs());
        let mut inner = self.inner();
        let named =
            |volume: &Arc<Volume<F>>| (volume.name().to_owned(), counters(&volume.totals()));
        inner.write(&LogRecord::End(volumes.iter().map(named).collect()));
        inner.has_ended = true;
        if let Some(error) = inner.error.take() {
            return Err(error);
        }
        inner.output.flush()?;
        Ok(inner.inputs)
    }

    /// Each line is written in one step, so a panic leaves the log consistent.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InputSink for InputLogWriter {
    fn add(&mut self, input: Input) {
        let mut inner = self.inner();
        if inner.has_ended {
            return;
        }
        inner.inputs += 1;
        inner.write(&LogRecord::Input(input));
    }
}

/// Returns the counters by name.
fn counters(totals: &Totals) -> Counters {
    let named = |counter: &Counter| (counter.meaning().name.to_owned(), totals.get(*counter));
    Counter::ALL.iter().map(named).collect()
}

#[cfg(test)]
mod tests;
