//! PostMark as a workload: each trial creates its files and removes them.
//!
//! Units are those of the series. There are no files before a trial, so a cold start has nothing to
//! drop; PostMark reads only files that it has just written.

use super::error::BenchError;
use super::workload::{Outcome, Series, Space, StartState, TrialContext, Workload};
use crate::workload::postmark::trial::per_s;
use crate::workload::postmark::{self, Control, Fsync, Options, Phase, PostmarkError};
use larder_schema::format;
use larder_schema::run::{Direction, trial};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The series, the main one first.
const TRANSACTIONS: &str = "transactions";
const TOTAL: &str = "all phases";
const CREATION: &str = "creation alone";
const DELETION: &str = "deletion alone";
const READS: &str = "read in transactions";
const APPENDS: &str = "appended in transactions";
const READ: &str = "read, over all phases";
const WRITTEN: &str = "written, over all phases";
/// Counts that a configuration and its seed determine: equal in every trial and in every
/// implementation.
const COUNTS: [(&str, &str); 6] = [
    ("created", "files"),
    ("read", "files"),
    ("appended", "files"),
    ("deleted", "files"),
    ("bytes read", "bytes"),
    ("bytes written", "bytes"),
];

/// PostMark with its options.
#[derive(Clone, Debug)]
pub struct PostmarkBench {
    options: Options,
    left_over: Vec<PathBuf>,
}

impl PostmarkBench {
    /// Returns the workload whose trials run with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        PostmarkBench { options, left_over: Vec::new() }
    }

    /// Returns the directories of killed runs that the trials have removed.
    #[must_use]
    pub fn left_over(&self) -> &[PathBuf] {
        &self.left_over
    }

    /// Returns the maximum number of bytes that its files take at a time.
    ///
    /// # Errors
    /// The files would run out.
    pub fn room_bytes(&self) -> Result<u64, PostmarkError> {
        postmark::room_bytes(&self.options)
    }

    fn doubts(&self) -> Vec<String> {
        let unstable = self.options.fsync == Fsync::None;
        let text = "nothing is made stable (--fsync none), so that writes may end in memory";
        unstable.then(|| text.to_owned()).into_iter().collect()
    }
}

/// Returns the values of the series for the outcome of a run.
fn values(outcome: &postmark::Outcome) -> BTreeMap<String, f64> {
    let (counts, total) = (&outcome.counts, outcome.total());
    let of_phase = |count, phase| per_s(count, outcome.duration(phase));
    let number = u64::from(outcome.options.config.number);
    let all = number * u64::from(outcome.options.threads.get());
    let mut values = BTreeMap::from([
        (TRANSACTIONS.to_owned(), outcome.transactions_per_s()),
        (TOTAL.to_owned(), total.as_secs_f64()),
        (CREATION.to_owned(), of_phase(all, Phase::Create)),
        (DELETION.to_owned(), of_phase(counts.deleted_at_end, Phase::Delete)),
        (READS.to_owned(), of_phase(counts.read, Phase::Transactions)),
        (APPENDS.to_owned(), of_phase(counts.appended, Phase::Transactions)),
        (READ.to_owned(), per_s(counts.bytes_read.bytes, total)),
        (WRITTEN.to_owned(), per_s(counts.bytes_written.bytes, total)),
    ]);
    let counted = [
        counts.created,
        counts.read,
        counts.appended,
        counts.deleted,
        counts.bytes_read.bytes,
        counts.bytes_written.bytes,
    ];
    for ((name, _), count) in COUNTS.into_iter().zip(counted) {
        #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
        values.insert(name.to_owned(), count as f64);
    }
    values
}

/// Converts a phase for the record.
fn phase((phase, duration): &(Phase, Duration)) -> trial::Phase {
    let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    trial::Phase { name: phase.name().to_owned(), duration_ns }
}

impl Workload for PostmarkBench {
    fn name(&self) -> &'static str {
        "postmark"
    }

    fn description(&self) -> String {
        let config = &self.options.config;
        let threads = match self.options.threads.get() {
            1 => String::new(),
            threads => format!(", by each of {threads} threads"),
        };
        format!(
            "PostMark: {} files of {} to {} bytes, {} transactions{threads}, fsync {}",
            format::count(config.number.into()),
            format::count(config.size_low.into()),
            format::count(config.size_high.into()),
            format::count(config.transactions.into()),
            self.options.fsync.name(),
        )
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        let config = &self.options.config;
        let bias = |bias: Option<u32>| bias.map_or(Value::from(-1), Value::from);
        let locations = config.locations.iter().map(|location| {
            let path = location.path.to_string_lossy();
            Value::from(format!("{path} {}", location.weight))
        });
        let settings = [
            ("number", Value::from(config.number)),
            ("transactions", config.transactions.into()),
            ("size_low_bytes", config.size_low.into()),
            ("size_high_bytes", config.size_high.into()),
            ("postmark_seed", config.seed.into()),
            ("locations", locations.collect()),
            ("subdirectories", config.subdirectories.into()),
            ("read_bytes", config.read_block.into()),
            ("write_bytes", config.write_block.into()),
            ("buffering", config.buffered.into()),
            ("bias_read", bias(config.bias_read)),
            ("bias_create", bias(config.bias_create)),
            ("threads", self.options.threads.get().into()),
            ("fsync", self.options.fsync.name().into()),
            ("data", self.options.data.name().into()),
        ];
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn series(&self) -> Vec<Series> {
        let better = Some(Direction::Higher);
        let mut series = vec![
            Series::new(TRANSACTIONS, "transactions/s", better),
            Series::new(TOTAL, "s", Some(Direction::Lower)),
            Series::new(CREATION, "files/s", better),
            Series::new(DELETION, "files/s", better),
            Series::new(READS, "files/s", better),
            Series::new(APPENDS, "files/s", better),
            Series::new(READ, "bytes/s", better),
            Series::new(WRITTEN, "bytes/s", better),
        ];
        series.extend(COUNTS.map(|(name, unit)| Series::new(name, unit, None)));
        series
    }

    fn space(&self) -> Vec<Space> {
        // Each trial checks its space itself, with inodes, before it writes anything.
        Vec::new()
    }

    fn paths(&self) -> Vec<PathBuf> {
        let locations = &self.options.config.locations;
        let named = locations.iter().map(|location| location.as_path().to_owned());
        if locations.is_empty() { vec![PathBuf::from(".")] } else { named.collect() }
    }

    fn prepare(&mut self, _: &TrialContext<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(Vec::new())
    }

    fn trial(&mut self, context: &TrialContext<'_>) -> Result<Outcome, BenchError> {
        let should_stop = || context.check().is_err();
        let may_begin = |phase: Phase| context.wait_at_barrier(phase.name()).is_ok();
        let control = Control::with_stop_check(&should_stop).before_phases(&may_begin);
        match postmark::run(&self.options, &control) {
            Ok(mut outcome) => {
                self.left_over.append(&mut outcome.left_over);
                let (values, phases) = (values(&outcome), outcome.phases.iter().map(phase));
                let times = outcome.operations.iter();
                let latencies = times.map(|(what, times)| (what.name().to_owned(), times.clone()));
                Ok(Outcome {
                    values,
                    phases: phases.collect(),
                    latencies: latencies.collect(),
                    doubts: self.doubts(),
                })
            }
            Err(PostmarkError::Stopped) => Err(BenchError::Stopped),
            Err(error) => Err(BenchError::Workload(error.to_string())),
        }
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        // Each trial removes its files itself. Another rank may have been killed.
        self.left_over.append(&mut postmark::clear_up(&self.options.config));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
