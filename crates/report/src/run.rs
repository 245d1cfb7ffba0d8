//! The file format of a recorded benchmark run: `larder-run`, version 1, as JSON.
//!
//! ```json
//! {"schema": "larder-run", "version": 1, "what": "...", "started_at": "2026-11-21T03:22:11Z",
//!  "machine": {"cpu": "...", "cores": 2, "memory_bytes": 8589934592, "kernel": "...",
//!              "distribution": "..."},
//!  "software": {"larder": "0.1.0"}, "settings": {"memory": "2GiB"},
//!  "samples": [{"series": "larder", "unit": "reads/s", "values": [1.0, 2.0]}],
//!  "comparisons": [{"what": "...", "ours": "larder", "theirs": "bcache", "ratio_median": 1.6,
//!                   "ratio_min": 1.5, "ratio_max": 1.7, "required": 1.0, "holds": true}]}
//! ```
//!
//! Invariants: what is written can be read back unchanged; another schema, a version that is not
//! known, and numbers that JSON cannot hold are refused. Fields that version 1 does not know are
//! passed over, so that it can grow. A ratio always says how many times better ours is: above 1 is
//! better, whatever the unit. Values have the unit that their sample states.

use crate::stats::PairedRatio;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The name of the format.
pub const SCHEMA: &str = "larder-run";
/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    schema: String,
    version: u32,
    /// What was measured, in one line.
    pub what: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Where it ran.
    pub machine: Machine,
    /// Versions of everything that took part, by name.
    pub software: BTreeMap<String, String>,
    /// What was set, by name.
    pub settings: BTreeMap<String, Value>,
    /// What was measured.
    pub samples: Vec<Sample>,
    /// What was compared.
    pub comparisons: Vec<Comparison>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that may be used.
    pub cores: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Distribution and its version.
    pub distribution: String,
}

/// The values of one series, in the order in which they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the series.
    pub series: String,
    /// Unit of the values.
    pub unit: String,
    /// The values.
    pub values: Vec<f64>,
}

/// Whether larger values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As with rates.
    Higher,
    /// As with times.
    Lower,
}

/// Ours against theirs, in pairs of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was compared.
    pub what: String,
    /// The series of ours.
    pub ours: String,
    /// The series of theirs.
    pub theirs: String,
    /// Median of the ratios; above 1 ours is better.
    pub ratio_median: f64,
    /// Smallest ratio.
    pub ratio_min: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// What the median has to reach.
    pub required: f64,
    /// Whether it does.
    pub holds: bool,
}

/// Why a run was not written or read. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The text is no JSON at all.
    #[error("read the run: it is not JSON ({source})")]
    NotJson {
        /// Where and why.
        source: serde_json::Error,
    },
    /// It is JSON of something else.
    #[error("read the run: its schema is {found}, not \"{SCHEMA}\"")]
    OtherSchema {
        /// What stands in the field, or that it is missing.
        found: String,
    },
    /// It was written by another version.
    #[error(
        "read the run: it has version {found}, and this program knows version {VERSION} only; \
         read it with the program that wrote it or a newer one"
    )]
    UnknownVersion {
        /// What stands in the field, or that it is missing.
        found: String,
    },
    /// A field is missing or holds something else.
    #[error("read the run: {source}")]
    Malformed {
        /// Which and why.
        source: serde_json::Error,
    },
    /// A number is infinite or not a number.
    #[error("write the run: {place} holds a number that is not finite")]
    NotFinite {
        /// The series or comparison.
        place: String,
    },
    /// The text could not be made.
    #[error("write the run: {source}")]
    Write {
        /// Why.
        source: serde_json::Error,
    },
}

impl Run {
    /// A run without results. `started_at` is RFC 3339.
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
        }
    }

    /// The sample of a series.
    #[must_use]
    pub fn sample(&self, series: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.series == series)
    }

    /// Whether every comparison holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.holds)
    }

    /// The JSON text, indented, ending with a line break.
    ///
    /// # Errors
    /// A value or a ratio is not finite.
    pub fn to_json(&self) -> Result<String, RunError> {
        let not_finite = |place: &str| RunError::NotFinite { place: format!("{place:?}") };
        for sample in &self.samples {
            if !sample.values.iter().all(|value| value.is_finite()) {
                return Err(not_finite(&sample.series));
            }
        }
        for each in &self.comparisons {
            let numbers = [each.ratio_median, each.ratio_min, each.ratio_max, each.required];
            if !numbers.iter().all(|number| number.is_finite()) {
                return Err(not_finite(&each.what));
            }
        }
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|source| RunError::Write { source })
    }

    /// Reads what [`Run::to_json`] wrote.
    ///
    /// # Errors
    /// The text is not JSON, of another schema or version, or lacks a field.
    pub fn from_json(text: &str) -> Result<Run, RunError> {
        let value: Value =
            serde_json::from_str(text).map_err(|source| RunError::NotJson { source })?;
        let field =
            |name: &str| value.get(name).map_or_else(|| "missing".to_owned(), Value::to_string);
        if value.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
            return Err(RunError::OtherSchema { found: field("schema") });
        }
        if value.get("version").and_then(Value::as_u64) != Some(u64::from(VERSION)) {
            return Err(RunError::UnknownVersion { found: field("version") });
        }
        serde_json::from_value(value).map_err(|source| RunError::Malformed { source })
    }
}

impl Comparison {
    /// Compares two samples of the same unit pair by pair. It holds if the median ratio reaches
    /// `required`. Nothing if units or lengths differ, there are no pairs, or a ratio is not
    /// finite.
    pub fn of(
        what: impl Into<String>,
        (ours, theirs): (&Sample, &Sample),
        better: Better,
        required: f64,
    ) -> Option<Comparison> {
        if ours.unit != theirs.unit {
            return None;
        }
        let ratio = match better {
            Better::Higher => PairedRatio::of(&ours.values, &theirs.values)?,
            Better::Lower => PairedRatio::of(&theirs.values, &ours.values)?,
        };
        Some(Comparison {
            what: what.into(),
            ours: ours.series.clone(),
            theirs: theirs.series.clone(),
            ratio_median: ratio.summary.median,
            ratio_min: ratio.summary.min,
            ratio_max: ratio.summary.max,
            required,
            holds: ratio.summary.median >= required,
        })
    }
}

#[cfg(test)]
mod tests;
