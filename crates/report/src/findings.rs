//! Findings about the file cache of a machine: what was seen, why it matters, what to try, and how
//! sure that is.
//!
//! Pure functions over an [`Observation`], which says what was seen, and `None` to what was not.
//! Live watching, logs of Perfmon and traces can fill it in, each in part. A rule that lacks what
//! it needs finds nothing. Each rule is a file of `findings/`, its thresholds are constants
//! with their source, and [`RULES`] lists them all.
//!
//! Invariants: a finding comes with the numbers that led to it. Fewer than [`MOMENTS_MIN`] moments
//! show no change and give no finding. Shares are from 0 to 1, sizes bytes, times seconds.

mod access_times;
mod dirty_limits;
mod layers;
mod leak;
mod observation;
mod one_file;
mod paging;
mod perfmon;
mod read_ahead;
mod scan;
mod show;
#[cfg(test)]
mod tests;
mod throttled;
mod watch;

pub use observation::{
    AccessTimes, FileUse, Layer, MachineSnapshot, Observation, ProcessUse, ReadAhead, Writes,
};
pub use show::{rules_table, to_text};

use serde::{Deserialize, Serialize};

/// Moments below which nothing is said: two ends show a difference, but no course.
pub const MOMENTS_MIN: usize = 3;

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The numbers fit, but something else can look like this.
    Perhaps,
    /// The numbers hardly have another explanation.
    Likely,
    /// It was counted.
    Certain,
}

impl Confidence {
    /// In words.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Confidence::Perhaps => "perhaps",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of its rule.
    pub rule: String,
    /// What was seen, with numbers.
    pub seen: String,
    /// Why it matters.
    pub why: String,
    /// What to try: commands of larder; words in capitals are to be filled in.
    pub attempt: Vec<String>,
    /// How sure it is.
    pub sure: Confidence,
}

/// A rule, for documentation and tests.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name, in small letters and dashes.
    pub name: &'static str,
    /// When it fires, with its thresholds, in words.
    pub when: &'static str,
    /// Where the thresholds come from.
    pub source: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to try.
    pub attempt: &'static [&'static str],
    /// How sure it is.
    pub sure: Confidence,
    /// What was seen, if it fires.
    seen: fn(&Observation) -> Option<String>,
}

/// All rules, in the order in which findings are told: those that cost most come first.
pub const RULES: [Rule; 11] = [
    leak::RULE,
    paging::RULE,
    scan::RULE,
    one_file::RULE,
    throttled::RULE,
    dirty_limits::TOO_LOW,
    dirty_limits::TOO_HIGH,
    read_ahead::WASTED,
    read_ahead::TOO_SMALL,
    layers::RULE,
    access_times::RULE,
];

/// Everything that the rules find.
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
