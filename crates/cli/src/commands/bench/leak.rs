//! The leak beside a Probe: a process of its own that takes memory step by step in the first half
//! of each trial and keeps it to the end, so that the page cache is squeezed while it is measured.
//!
//! Invariants: it never takes more than was said, and by default a quarter of what can be had; it
//! is gone after each trial, also when this process is killed, since it ends with its standard
//! input. What it had, and what was left of the file in memory, are series of the run.

use anyhow::{Result, ensure};
use larder_core::clock::Nanos;
use larder_host::{memory, residency};
use larder_lab::bench::probe::BackgroundLoad;
use larder_lab::bench::{BenchError, Direction, Series};
use larder_report::format;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Of what can be had, this part is taken if nothing else is said, and that part is left in any
/// case.
const DEFAULT_PART: u64 = 4;
const LEFT_PART: u64 = 10;

const TAKEN: &str = "memory taken";
const LEFT: &str = "file left in memory";

/// The process, ready to be started.
#[derive(Debug)]
pub(super) struct Leak {
    bytes: u64,
    /// How long a trial is.
    length: Nanos,
    /// The file whose pages are squeezed out; none where the cache is another one.
    file: Option<PathBuf>,
    process: Option<Child>,
}

impl Leak {
    /// So many bytes, or a quarter of what can be had.
    pub(super) fn new(asked: Option<u64>, length: Nanos, file: Option<PathBuf>) -> Result<Self> {
        let available = memory::available_bytes().unwrap_or(0);
        let bytes = asked.unwrap_or(available / DEFAULT_PART);
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
        let failed = || BenchError::io("start the process that takes memory");
        let program = std::env::current_exe().map_err(failed())?;
        let within = format!("{}ns", self.length / 2);
        let mut command = Command::new(program);
        command.args(["take-memory", "--bytes", &self.bytes.to_string(), "--within", &within]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.process = Some(command.spawn().map_err(failed())?);
        Ok(())
    }

    fn end(&mut self) -> Result<(BTreeMap<String, f64>, Vec<String>), BenchError> {
        let Some(mut process) = self.process.take() else {
            return Ok((BTreeMap::new(), Vec::new()));
        };
        // Looked at while the memory is still taken.
        let left = self.file.as_ref().map(|file| residency::of_path(file));
        drop(process.stdin.take());
        let mut said = String::new();
        if let Some(mut out) = process.stdout.take() {
            out.read_to_string(&mut said).map_err(BenchError::io("listen to that process"))?;
        }
        let status = process.wait().map_err(BenchError::io("wait for that process"))?;
        let taken: u64 = said.lines().last().and_then(|line| line.parse().ok()).unwrap_or(0);
        let mut doubts = Vec::new();
        if !status.success() {
            let had = format::bytes(taken);
            doubts.push(format!("the process that takes memory was ended when it had {had}"));
        }
        #[expect(clippy::cast_precision_loss, reason = "memory stays below 2^53 bytes")]
        let bytes = |bytes: u64| bytes as f64;
        let mut values = BTreeMap::from([(TAKEN.to_owned(), bytes(taken))]);
        if let Some(left) = left {
            let left = left.map_err(|error| BenchError::Workload(error.to_string()))?;
            values.insert(LEFT.to_owned(), bytes(left.resident * residency::page_bytes()));
        }
        Ok((values, doubts))
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It ends with its standard input; whether it did well does not matter any more.
            drop(process.stdin.take());
            drop(process.wait());
        }
    }
}
