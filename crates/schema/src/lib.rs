//! Types of the public formats, and their versions, which docs/FORMATS.md and docs/control.md
//! describe.
//!
//! Invariants: data only. Written data is read back unchanged; readers ignore unknown fields, so
//! that a format can grow without a new version. Numbers have the unit in their names.

#![forbid(unsafe_code)]

pub mod advice;
pub mod balance;
pub mod bottleneck;
pub mod compare;
pub mod control;
pub mod curve;
pub mod experiment;
pub mod format;
pub mod fragmentation;
pub mod host_counters;
pub mod measured;
pub mod model;
pub mod perfmon;
pub mod run;
pub mod sizing;
pub mod storage_advice;
pub mod watch;

/// Converts a size or a count, which stay below 2^53.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sizes and counts stay below 2^53")]
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Rounds to the nearest whole number, between 0 and `u64::MAX`.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub fn as_u64(value: f64) -> u64 {
    value.round() as u64
}

/// Returns `part / whole`, or `None` if `whole` is 0.
#[must_use]
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| as_f64(part) / as_f64(whole))
}

/// The first, last, smallest and largest of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueRange(Option<[f64; 4]>);

impl ValueRange {
    /// Adds a value, unless it is unknown.
    pub fn add(&mut self, value: Option<f64>) {
        let Some(value) = value else { return };
        let [first, _, min, max] = self.0.unwrap_or([value; 4]);
        self.0 = Some([first, value, min.min(value), max.max(value)]);
    }

    /// Returns the first value.
    #[must_use]
    pub fn first(self) -> Option<f64> {
        self.0.map(|it| it[0])
    }

    /// Returns the last value.
    #[must_use]
    pub fn last(self) -> Option<f64> {
        self.0.map(|it| it[1])
    }

    /// Returns the smallest value.
    #[must_use]
    pub fn min(self) -> Option<f64> {
        self.0.map(|it| it[2])
    }

    /// Returns the largest value.
    #[must_use]
    pub fn max(self) -> Option<f64> {
        self.0.map(|it| it[3])
    }
}

/// Returns the mean of values; `None` without values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / as_f64(values.len() as u64))
}

/// Returns the JSON object of a result, after its schema and version.
///
/// # Panics
/// If a number is infinite or not a number.
fn with_head(schema: &str, version: u32, result: &impl serde::Serialize) -> serde_json::Value {
    let mut made = serde_json::json!({ "schema": schema, "version": version });
    let body = serde_json::to_value(result).expect("plain numbers and words");
    if let (Some(made), serde_json::Value::Object(body)) = (made.as_object_mut(), body) {
        made.extend(body);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::{ValueRange, share};

    #[test]
    fn a_range_has_its_ends_in_time_and_in_size() {
        let mut range = ValueRange::default();
        assert_eq!((range.first(), range.max()), (None, None));
        for value in [Some(2.0), None, Some(5.0), Some(1.0)] {
            range.add(value);
        }
        assert_eq!((range.first(), range.last()), (Some(2.0), Some(1.0)));
        assert_eq!((range.min(), range.max()), (Some(1.0), Some(5.0)));
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!(share(0, 0), None);
        assert_eq!(share(1, 4), Some(0.25));
    }
}
