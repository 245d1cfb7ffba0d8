//! Comparison of two runs: `larder-compare`, version 1, the result of `larder compare`. Ratios are
//! the second run over the first.

use crate::run::trial::SettingChange;
use serde::Serialize;
use serde_json::Value;

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-compare";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// Result for a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second run is better.
    Better,
    /// The second run is worse.
    Worse,
    /// The data support neither verdict.
    CannotTell,
}

impl Verdict {
    /// Returns the verdict as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::CannotTell => "cannot tell",
        }
    }
}

/// Comparison of one series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesComparison {
    /// Series name.
    pub series: String,
    /// Unit.
    pub unit: String,
    /// Median of the first run, in that unit.
    pub median_a: f64,
    /// Median of the second run.
    pub median_b: f64,
    /// Numbers of values in the first and in the second run.
    pub values: (usize, usize),
    /// Ratio of the second run to the first; `None` if undefined.
    pub ratio: Option<f64>,
    /// Lower bound of the confidence interval.
    pub ratio_low: Option<f64>,
    /// Upper bound of the confidence interval.
    pub ratio_high: Option<f64>,
    /// Result.
    pub verdict: Verdict,
    /// Reason for [`Verdict::CannotTell`]; empty for other verdicts.
    pub why: String,
}

/// Comparison of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// Description of the first run.
    pub what: String,
    /// Description of the second run; `None` if it is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_b: Option<String>,
    /// Start times of both runs.
    pub started_at: (String, String),
    /// Relative difference that counts as none.
    pub threshold: f64,
    /// Series of both runs, the main one first.
    pub series: Vec<SeriesComparison>,
    /// Series of the first run only.
    pub only_a: Vec<String>,
    /// Series of the second run only.
    pub only_b: Vec<String>,
    /// Other differences: machine, software, settings, environment, start state.
    pub differences: Vec<SettingChange>,
    /// Doubts about the first run, and about the second.
    pub doubts: (Vec<String>, Vec<String>),
}

impl Comparison {
    /// Returns true if a series of the second run is worse.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.series.iter().any(|compared| compared.verdict == Verdict::Worse)
    }

    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("names and finite numbers")
    }
}
