//! Models of devices: `larder-model`, version 1, the result of `larder model show --json` and the
//! file of `larder model fit --output`; and their comparison with a device: `larder-model-check`,
//! version 1.

use serde::Serialize;
use serde_json::Value;

/// Schema name of a model.
pub const SCHEMA: &str = "larder-model";
/// Schema version of a model.
pub const VERSION: u32 = 1;
/// Schema name of a comparison.
pub const CHECK_SCHEMA: &str = "larder-model-check";
/// Schema version of a comparison.
pub const CHECK_VERSION: u32 = 1;

/// A figure of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// Name.
    pub name: String,
    /// Value.
    pub value: u64,
    /// Unit: `bytes`, `bytes/s`, `ns`, `operations/s`, `rpm`, or empty for a number.
    pub unit: &'static str,
}

impl Figure {
    /// Returns a figure.
    #[must_use]
    pub fn new(name: impl Into<String>, value: u64, unit: &'static str) -> Self {
        Figure { name: name.into(), value, unit }
    }
}

/// The result of a pattern, on a device or on a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PatternFigures {
    /// Number of operations.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Median time of an operation.
    pub p50_ns: u64,
    /// Time that 99 % of the operations do not exceed.
    pub p99_ns: u64,
}

/// A pattern on a model and on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PatternComparison {
    /// The pattern, such as `random read, 4 KiB, depth 8`.
    pub pattern: String,
    /// The result on the model.
    pub predicted: PatternFigures,
    /// The result on the device.
    pub measured: PatternFigures,
}

impl PatternComparison {
    /// Returns the predicted operations per second, p50 and p99 over the measured ones, minus 1.
    #[must_use]
    pub fn differences(&self) -> [f64; 3] {
        let values = |it: &PatternFigures| {
            [it.operations_per_s, crate::as_f64(it.p50_ns), crate::as_f64(it.p99_ns)]
        };
        let (predicted, measured) = (values(&self.predicted), values(&self.measured));
        std::array::from_fn(|index| predicted[index] / measured[index].max(f64::MIN_POSITIVE) - 1.0)
    }
}

/// A model of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelDescription {
    /// Name; for a fitted model, that of the device.
    pub name: String,
    /// Kind, such as `rotating disk`.
    pub kind: &'static str,
    /// One line.
    pub summary: String,
    /// The model as a specification, which `--store` accepts.
    pub model: String,
    /// All figures.
    pub figures: Vec<Figure>,
    /// Sources of the figures, one sentence each.
    pub sources: Vec<String>,
    /// The measurement of a fitted model, with the predictions of the model.
    pub comparisons: Vec<PatternComparison>,
}

/// A comparison of a model with a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelCheck {
    /// The device.
    pub device: String,
    /// The model, as a specification.
    pub model: String,
    /// The patterns.
    pub comparisons: Vec<PatternComparison>,
}

impl ModelCheck {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        crate::with_head(CHECK_SCHEMA, CHECK_VERSION, self)
    }
}

/// A reason why a file is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The text is not JSON.
    #[error("it is not JSON ({0})")]
    NotJson(serde_json::Error),
    /// The JSON has another schema.
    #[error("it has no \"schema\": \"{SCHEMA}\", so it is not a model of larder model fit")]
    OtherSchema,
    /// The version is unknown.
    #[error("its version is not {VERSION}; read it with the program that wrote it")]
    UnknownVersion,
    /// The specification is missing.
    #[error("it has no text \"model\"")]
    NoModel,
}

impl ModelDescription {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        crate::with_head(SCHEMA, VERSION, self)
    }

    /// Returns the specification of a model in JSON form.
    ///
    /// # Errors
    /// The text is no model.
    pub fn specification_of(json: &[u8]) -> Result<String, ModelError> {
        let value: Value = serde_json::from_slice(json).map_err(ModelError::NotJson)?;
        if value["schema"] != SCHEMA {
            return Err(ModelError::OtherSchema);
        }
        if value["version"] != VERSION {
            return Err(ModelError::UnknownVersion);
        }
        value["model"].as_str().map(str::to_owned).ok_or(ModelError::NoModel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_of_what_is_written_is_read_back() {
        let written = ModelDescription { model: "iops:100".into(), ..ModelDescription::default() };
        let text = written.to_json().to_string();
        assert_eq!(ModelDescription::specification_of(text.as_bytes()).unwrap(), "iops:100");
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "it is not JSON (EOF"),
            ("[1]", "it has no \"schema\": \"larder-model\""),
            ("{\"schema\":\"larder-run\"}", "it has no \"schema\""),
            ("{\"schema\":\"larder-model\",\"version\":2}", "its version is not 1"),
            ("{\"schema\":\"larder-model\",\"version\":1,\"model\":3}", "it has no text \"model\""),
        ] {
            let error = ModelDescription::specification_of(text.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with(reason), "{text}: {error}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(ModelDescription::specification_of(deep.as_bytes()).is_err());
    }

    #[test]
    fn differences_are_relative_to_the_measurement() {
        let figures = |operations_per_s, p50_ns, p99_ns| PatternFigures {
            operations: 1,
            operations_per_s,
            p50_ns,
            p99_ns,
        };
        let comparison = PatternComparison {
            pattern: String::new(),
            predicted: figures(110.0, 50, 0),
            measured: figures(100.0, 100, 0),
        };
        let [rate, p50, p99] = comparison.differences();
        assert!((rate - 0.1).abs() < 1e-9 && (p50 + 0.5).abs() < 1e-9 && p99 <= -1.0);
    }
}
