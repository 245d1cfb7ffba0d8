//! Findings about the page cache of a machine: observation, explanation, remedy and confidence.
//!
//! Pure functions over an [`Observation`], in which `None` marks missing data. Live watches,
//! Perfmon logs and traces each provide a part of it. A rule without the data that it needs finds
//! nothing. Each rule is a constant, with its thresholds as constants and their source;
//! [`RULES`] lists all rules.
//!
//! Invariants: a finding includes the numbers that led to it. Fewer than [`MOMENTS_MIN`] snapshots
//! show no trend and yield no finding. Shares are from 0 to 1, sizes bytes, times seconds.

mod memory;
mod observation;
mod reads;
mod show;
#[cfg(test)]
mod tests;
mod writes;

pub use observation::{FileUse, MachineSnapshot, Observation, ProcessUse, ReadAhead};
pub use show::{rules_table, to_text};

use larder_schema::watch::{Confidence, Finding};

/// Minimum number of snapshots for a finding: two show a difference, but no trend.
pub const MOMENTS_MIN: usize = 3;

/// A rule, with its documentation.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name, in lower case with dashes.
    pub name: &'static str,
    /// Condition with its thresholds, as text.
    pub when: &'static str,
    /// Source of the thresholds.
    pub source: &'static str,
    /// Relevance.
    pub why: &'static str,
    /// Remedies.
    pub attempt: &'static [&'static str],
    /// Confidence.
    pub sure: Confidence,
    /// Returns the observation if the condition is true.
    seen: fn(&Observation) -> Option<String>,
}

/// All rules, in the order of their findings: the most costly problems come first.
pub const RULES: [Rule; 11] = [
    memory::LEAK,
    memory::PAGING,
    reads::SCAN,
    reads::ONE_FILE,
    writes::THROTTLED,
    writes::TOO_LOW,
    writes::TOO_HIGH,
    reads::WASTED,
    reads::TOO_SMALL,
    memory::LAYERS,
    writes::ACCESS_TIMES,
];

/// Applies all rules.
#[must_use]
pub fn find(observation: &Observation) -> Vec<Finding> {
    if observation.moments.len() < MOMENTS_MIN || observation.seconds <= 0.0 {
        return Vec::new();
    }
    let finding = |rule: &Rule| {
        let seen = (rule.seen)(observation)?;
        Some(Finding {
            rule: rule.name.to_owned(),
            seen,
            why: rule.why.to_owned(),
            attempt: rule.attempt.iter().map(|command| (*command).to_owned()).collect(),
            sure: rule.sure,
        })
    };
    RULES.iter().filter_map(finding).collect()
}
