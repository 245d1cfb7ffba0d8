//! The memory leak during a Probe: a separate process that allocates memory step by step in the
//! first half of each trial and keeps it to the end, which puts the page cache under pressure
//! during the measurement.
//!
//! Invariants: it never takes more than the limit, by default a quarter of the available memory; it
//! ends after each trial, also when this process is killed, since it ends with its standard input.
//! The memory that it had, and the resident part of the file, are series of the run.

use crate::own_program::own_program;
use anyhow::{Result, ensure};
use larder_core::clock::Nanos;
use larder_host::{memory, residency};
use larder_lab::bench::probe::BackgroundLoad;
use larder_lab::bench::{BenchError, Direction, Series};
use larder_schema::format;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Default divisor of the available memory for the leak.
const DEFAULT_PART: u64 = 4;
/// Divisor of the available memory for the part that always remains.
const LEFT_PART: u64 = 10;

const TAKEN: &str = "memory taken";
const LEFT: &str = "file left in memory";

/// The leaking process, ready to be started.
#[derive(Debug)]
pub(super) struct Leak {
    bytes: u64,
    /// Duration of a trial.
    length: Nanos,
    /// The file whose pages are evicted; `None` if it is not in the page cache.
    file: Option<PathBuf>,
    process: Option<Child>,
}

impl Leak {
    /// Creates a leak of this many bytes, by default a quarter of the available memory.
    pub(super) fn new(limit: Option<u64>, length: Nanos, file: Option<PathBuf>) -> Result<Self> {
        let available = memory::available_bytes().unwrap_or(0);
        let bytes = limit.unwrap_or(available / DEFAULT_PART);
        let most = available - available / LEFT_PART;
        ensure!(
            bytes <= most,
            "take {} of memory: {} can be had, and a tenth of it is left alone",
            format::bytes(bytes),
            format::bytes(available)
        );
        Ok(Leak { bytes, length, file, process: None })
    }
}

impl BackgroundLoad for Leak {
    fn series(&self) -> Vec<Series> {
        let mut series = vec![Series::new(TAKEN, "bytes", None)];
        if self.file.is_some() {
            series.push(Series::new(LEFT, "bytes", Some(Direction::Higher)));
        }
        series
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        [("leak_bytes".to_owned(), json!(self.bytes))].into()
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        let io_error = || BenchError::io("start the process that takes memory");
        let program = own_program().map_err(io_error())?;
        let within = format!("{}ns", self.length / 2);
        let mut command = Command::new(program);
        command.args(["take-memory", "--bytes", &self.bytes.to_string(), "--within", &within]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.process = Some(command.spawn().map_err(io_error())?);
        Ok(())
    }

    fn end(&mut self) -> Result<(BTreeMap<String, f64>, Vec<String>), BenchError> {
        let Some(mut process) = self.process.take() else {
            return Ok((BTreeMap::new(), Vec::new()));
        };
        // Residency is read while the memory is still allocated.
        let left = self.file.as_ref().map(|file| residency::of_path(file));
        drop(process.stdin.take());
        let mut output = String::new();
        if let Some(mut out) = process.stdout.take() {
            out.read_to_string(&mut output).map_err(BenchError::io("listen to that process"))?;
        }
        let status = process.wait().map_err(BenchError::io("wait for that process"))?;
        let taken: u64 = output.lines().last().and_then(|line| line.parse().ok()).unwrap_or(0);
        let mut doubts = Vec::new();
        if !status.success() {
            let had = format::bytes(taken);
            doubts.push(format!("the process that takes memory was ended when it had {had}"));
        }
        #[expect(clippy::cast_precision_loss, reason = "memory stays below 2^53 bytes")]
        let bytes = |bytes: u64| bytes as f64;
        let mut values = BTreeMap::from([(TAKEN.to_owned(), bytes(taken))]);
        if let Some(left) = left {
            let left = left.map_err(|error| BenchError::Failed(error.to_string()))?;
            values.insert(LEFT.to_owned(), bytes(left.resident * residency::page_bytes()));
        }
        Ok((values, doubts))
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The process ends with its standard input; its exit status is irrelevant here.
            drop(process.stdin.take());
            drop(process.wait());
        }
    }
}
