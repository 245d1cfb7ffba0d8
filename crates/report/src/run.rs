//! The file format of a run: `larder-run`, version 2, as JSON. docs/FORMATS.md has every field.
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
//! Invariants: what is written can be read back unchanged; another schema, a version that is not
//! known, and numbers that JSON cannot hold are refused. Fields that are not known are passed over,
//! so that it can grow. Version 1 is read as well: it has no fields from `better` on. A ratio
//! always says how many times better ours is: above 1 is better, whatever the unit. Values have the
//! unit that their sample states.

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

/// The name of the format.
pub const SCHEMA: &str = "larder-run";
/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 2;

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
    /// The workload that the player ran; empty in runs of other making.
    #[serde(default)]
    pub workload: String,
    /// The series that decides how often it is repeated, and that is looked at first.
    #[serde(default)]
    pub main: Option<String>,
    /// Every repetition, in their order; value `i` of a sample belongs to trial `i`.
    #[serde(default)]
    pub trials: Vec<Trial>,
    /// Trials that are not among these: the machine was slower then than it can be.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub set_aside: u64,
    /// Settings of the machine before the first trial, by name.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What of them was different after the last.
    #[serde(default)]
    pub environment_changes: Vec<SettingChange>,
    /// Why the values may be wrong.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
    /// What it showed in one sentence, where somebody judged it; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// Runs that this one was made of: cells of a matrix, or machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
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
    /// Which values are better, where one can say so.
    #[serde(default)]
    pub better: Option<Direction>,
    /// What it measures with `at` left out; series of one group are drawn in one chart.
    #[serde(default)]
    pub group: Option<String>,
    /// Where in its group it lies, as `{"clients": 4}` or `{"file_bytes": .., "record_bytes": ..}`.
    #[serde(default)]
    pub at: BTreeMap<String, f64>,
}

/// Whether larger values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
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
        "read the run: it has version {found}, and this program knows versions 1 to {VERSION}; \
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Run {
    /// How fast the machine was, as [`Trial::speed`] has it: the median of all trials; none where
    /// nobody measured it.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let speeds: Vec<f64> = self.trials.iter().filter_map(|trial| trial.speed).collect();
        crate::stats::median(&speeds)
    }

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

    /// The sample of a series.
    #[must_use]
    pub fn sample(&self, series: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.series == series)
    }

    /// The sample that is looked at first: the main one, or the first where none is named.
    #[must_use]
    pub fn main_sample(&self) -> Option<&Sample> {
        match &self.main {
            Some(main) => self.sample(main),
            None => self.samples.first(),
        }
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
        self.check()?;
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|source| RunError::Write { source })
    }

    /// Whether JSON can hold all numbers.
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

    /// Reads what [`Run::to_json`] wrote, in this version or an older one; written again it has
    /// this version.
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
    /// A series without values.
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
    /// Compares two samples of the same unit pair by pair. It holds if the median ratio reaches
    /// `required`. Nothing if units or lengths differ, there are no pairs, or a ratio is not
    /// finite.
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
