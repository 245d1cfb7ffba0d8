//! Writing and reading of runs.

use super::{Run, SCHEMA, VERSION};
use serde_json::Value;

/// The reason why a run cannot be read, or an error writing it that can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The text is not JSON.
    #[error("it is not JSON ({source})")]
    NotJson {
        /// Position and reason.
        source: serde_json::Error,
    },
    /// The JSON has another schema.
    #[error("its schema is {found}, not \"{SCHEMA}\", so it is not the record of a benchmark")]
    OtherSchema {
        /// The value of the field, or that it is missing.
        found: String,
    },
    /// The version is unknown.
    #[error(
        "it has version {found}, and this program knows versions 1 to {VERSION}; read it with the \
         program that wrote it or a newer one"
    )]
    UnknownVersion {
        /// The value of the field, or that it is missing.
        found: String,
    },
    /// A field is missing or invalid.
    #[error("{source}")]
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
    /// The serialization failed.
    #[error("write the run: {source}")]
    Write {
        /// The reason.
        source: serde_json::Error,
    },
}

impl Run {
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
