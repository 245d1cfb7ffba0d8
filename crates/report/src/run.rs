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

mod html;
mod join;
pub mod parts;
pub mod stress;
mod text;
pub mod trial;

use crate::stats::PairedRatio;
use parts::Part;
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

/// An error writing or reading a run. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The text is not JSON.
    #[error("read the run: it is not JSON ({source})")]
    NotJson {
        /// Position and reason.
        source: serde_json::Error,
    },
    /// The JSON has another schema.
    #[error("read the run: its schema is {found}, not \"{SCHEMA}\"")]
    OtherSchema {
        /// The value of the field, or that it is missing.
        found: String,
    },
    /// The version is unknown.
    #[error(
        "read the run: it has version {found}, and this program knows versions 1 to {VERSION}; \
         read it with the program that wrote it or a newer one"
    )]
    UnknownVersion {
        /// The value of the field, or that it is missing.
        found: String,
    },
    /// A field is missing or invalid.
    #[error("read the run: {source}")]
    Malformed {
        /// The field and the reason.
        source: serde_json::Error,
    },
    /// A number is infinite or not a number.
    #[error("write the run: {place} holds a number that is not finite")]
    NotFinite {
        /// The series or comparison.
        place: String,
    },
    /// The serialisation failed.
    #[error("write the run: {source}")]
    Write {
        /// The reason.
        source: serde_json::Error,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Run {
    /// Returns the median [`Trial::speed`] of all trials, or `None` if it was not measured.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let speeds: Vec<f64> = self.trials.iter().filter_map(|trial| trial.speed).collect();
        crate::stats::median(&speeds)
    }

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

    /// Returns true if every comparison holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.comparisons.iter().all(|comparison| comparison.holds)
    }

    /// Returns the JSON text, indented, ending with a line break.
    ///
    /// # Errors
    /// A value or a ratio is not finite.
    pub fn to_json(&self) -> Result<String, RunError> {
        self.check()?;
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|source| RunError::Write { source })
    }

    /// Checks that JSON can represent all numbers.
    fn check(&self) -> Result<(), RunError> {
        let not_finite = |place: &str| RunError::NotFinite { place: format!("{place:?}") };
        for sample in &self.samples {
            if !sample.values.iter().chain(sample.at.values()).all(|value| value.is_finite()) {
                return Err(not_finite(&sample.series));
            }
        }
        for trial in &self.trials {
            if trial.steal.is_some_and(|steal| !steal.is_finite()) {
                return Err(not_finite(&format!("trial {}", trial.number)));
            }
        }
        for each in &self.comparisons {
            let numbers = [each.ratio_median, each.ratio_min, each.ratio_max, each.required];
            if !numbers.iter().all(|number| number.is_finite()) {
                return Err(not_finite(&each.what));
            }
        }
        self.parts.iter().try_for_each(|part| part.run.check())
    }

    /// Reads the output of [`Run::to_json`] of this or an older version; written again it has this
    /// version.
    ///
    /// # Errors
    /// The text is not JSON, has another schema or version, or lacks a field.
    pub fn from_json(text: &str) -> Result<Run, RunError> {
        let value: Value =
            serde_json::from_str(text).map_err(|source| RunError::NotJson { source })?;
        let field =
            |name: &str| value.get(name).map_or_else(|| "missing".to_owned(), Value::to_string);
        if value.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
            return Err(RunError::OtherSchema { found: field("schema") });
        }
        let version = value.get("version").and_then(Value::as_u64);
        if !version.is_some_and(|version| (1..=u64::from(VERSION)).contains(&version)) {
            return Err(RunError::UnknownVersion { found: field("version") });
        }
        let run: Run =
            serde_json::from_value(value).map_err(|source| RunError::Malformed { source })?;
        Ok(Run { version: VERSION, ..run })
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

impl Comparison {
    /// Compares two samples of the same unit pair by pair. The comparison holds if the median ratio
    /// reaches `required`. Returns `None` if units or lengths differ, there are no pairs, or a
    /// ratio is not finite.
    pub fn of(
        what: impl Into<String>,
        (ours, theirs): (&Sample, &Sample),
        better: Direction,
        required: f64,
    ) -> Option<Comparison> {
        if ours.unit != theirs.unit {
            return None;
        }
        let ratio = match better {
            Direction::Higher => PairedRatio::of(&ours.values, &theirs.values)?,
            Direction::Lower => PairedRatio::of(&theirs.values, &ours.values)?,
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
