//! File format of a run: `larder-run`, version 2, as JSON. docs/FORMATS.md describes every field.
//!
//! ```json
//! {"schema": "larder-run", "version": 2, "what": "...", "started_at": "2026-11-21T03:22:11Z",
//!  "machine": {"cpu": "...", "cores": 2, "memory_bytes": 8589934592, "kernel": "...",
//!              "distribution": "..."},
//!  "software": {"larder": "0.1.0"}, "settings": {"memory": "2GiB"},
//!  "samples": [{"series": "larder", "unit": "reads/s", "values": [1.0, 2.0], "better": "higher"}],
//!  "comparisons": [], "workload": "probe", "main": "larder",
//!  "trials": [{"number": 1, "started": {"start": "cold", "pages": 256, "resident": 0}}],
//!  "environment": {"vm.swappiness": "60"}, "environment_changes": [],
//!  "doubts": [{"why": "steal", "text": "..."}]}
//! ```
//!
//! Invariants: a written run is read back unchanged; another schema, an unknown version, and
//! numbers that JSON cannot represent are errors. Readers ignore unknown fields, so that the format
//! can grow. Version 1 is readable as well: it lacks the fields from `better` on. A ratio states
//! how many times better Larder is: above 1 is better, whatever the unit. Values have the unit of
//! their sample.

mod json;
pub mod trial;

pub use json::RunError;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use trial::{Doubt, SettingChange, Trial};

/// Name of the format.
pub const SCHEMA: &str = "larder-run";
/// Version that is written, and the newest that is readable.
pub const VERSION: u32 = 2;

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    schema: String,
    version: u32,
    /// Measurement, in one line.
    pub what: String,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Machine of the run.
    pub machine: Machine,
    /// Versions of all software involved, by name.
    pub software: BTreeMap<String, String>,
    /// Settings by name.
    pub settings: BTreeMap<String, Value>,
    /// Measured series.
    pub samples: Vec<Sample>,
    /// Comparisons of series.
    pub comparisons: Vec<Comparison>,
    /// Workload of the benchmark runner; empty in runs from other sources.
    #[serde(default)]
    pub workload: String,
    /// Main series, which determines the number of repetitions and is reported first.
    #[serde(default)]
    pub main: Option<String>,
    /// All trials in order; value `i` of a sample belongs to trial `i`.
    #[serde(default)]
    pub trials: Vec<Trial>,
    /// Number of discarded trials, during which the machine was slowed down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub set_aside: u64,
    /// Settings of the machine before the first trial, by name.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Changes of these settings by the end of the last trial.
    #[serde(default)]
    pub environment_changes: Vec<SettingChange>,
    /// Reasons to doubt the values.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
    /// Verdict in one sentence; empty if the run has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// Runs that this one consists of: cells of a matrix, or machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A run that is part of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name in tables and charts, unique in its run, such as `ext4, bfq`.
    pub name: String,
    /// Conditions of the measurement by name, such as `{"fs": "ext4", "scheduler": "bfq"}`.
    pub labels: BTreeMap<String, String>,
    /// The run.
    pub run: Run,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Usable cores.
    pub cores: u32,
    /// Memory size in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Distribution and version.
    pub distribution: String,
}

/// The values of one series, in the order of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the series.
    pub series: String,
    /// Unit of the values.
    pub unit: String,
    /// The values.
    pub values: Vec<f64>,
    /// Better direction, if known.
    #[serde(default)]
    pub better: Option<Direction>,
    /// The measured quantity without its `at`; one chart shows the series of a group.
    #[serde(default)]
    pub group: Option<String>,
    /// Coordinates in the group, such as `{"clients": 4}` or `{"file_bytes": .., "record_bytes":
    /// ..}`.
    #[serde(default)]
    pub at: BTreeMap<String, f64>,
}

/// Better direction of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Larger is better, as with rates.
    Higher,
    /// Smaller is better, as with times.
    Lower,
}

/// Comparison of Larder with an alternative, in pairs of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the comparison.
    pub what: String,
    /// Series of Larder.
    pub ours: String,
    /// Series of the alternative.
    pub theirs: String,
    /// Median of the ratios; above 1 Larder is better.
    pub ratio_median: f64,
    /// Smallest ratio.
    pub ratio_min: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Required median.
    pub required: f64,
    /// True if the median reaches it.
    pub holds: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Run {
    /// Creates a run without results. `started_at` is RFC 3339.
    pub fn new(what: impl Into<String>, started_at: impl Into<String>, machine: Machine) -> Self {
        Run {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            what: what.into(),
            started_at: started_at.into(),
            machine,
            software: BTreeMap::new(),
            settings: BTreeMap::new(),
            samples: Vec::new(),
            comparisons: Vec::new(),
            workload: String::new(),
            main: None,
            trials: Vec::new(),
            set_aside: 0,
            environment: BTreeMap::new(),
            environment_changes: Vec::new(),
            doubts: Vec::new(),
            verdict: String::new(),
            parts: Vec::new(),
        }
    }

    /// Returns the sample of a series.
    #[must_use]
    pub fn sample(&self, series: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.series == series)
    }

    /// Returns the main sample; the first one if none is named.
    #[must_use]
    pub fn main_sample(&self) -> Option<&Sample> {
        match &self.main {
            Some(main) => self.sample(main),
            None => self.samples.first(),
        }
    }

    /// Returns true if the run has only the results of its parts.
    #[must_use]
    pub fn is_gathered(&self) -> bool {
        !self.parts.is_empty() && self.trials.is_empty()
    }

    /// Returns all trials, including those of the parts.
    pub fn all_trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().chain(self.parts.iter().flat_map(|part| &part.run.trials))
    }
}

impl Sample {
    /// Creates a series without values.
    pub fn new(
        series: impl Into<String>,
        unit: impl Into<String>,
        better: Option<Direction>,
    ) -> Self {
        Sample {
            series: series.into(),
            unit: unit.into(),
            values: Vec::new(),
            better,
            group: None,
            at: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests;
