//! Writers that the kernel throttles.

use super::{Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Minimum share of the time of one process: users notice it, and no healthy run reaches it. The
/// kernel pauses a writer for at most 200 ms at a time (`MAX_PAUSE`, mm/page-writeback.c).
const SHARE_MIN: f64 = 0.01;

pub(super) const RULE: Rule = Rule {
    name: "throttled-writers",
    when: "a process was made to wait for at least 1 % of the time since too much was dirty",
    source: "the kernel pauses a writer for up to 200 ms at a time (MAX_PAUSE of \
             mm/page-writeback.c), which users notice when it goes on",
    why: "Programs write faster than the disk takes it, and the cache has no room left to absorb \
          that.",
    attempt: &[
        "larder bench probe DIRECTORY",
        "larder serve IMAGE --memory SIZE --listen unix:SOCKET",
    ],
    sure: Confidence::Certain,
    seen,
};

pub(super) fn worst(observation: &Observation) -> Option<(&str, f64)> {
    let waited = observation.processes.iter().filter_map(|process| {
        Some((process.process.as_str(), process.throttled_s? / observation.seconds))
    });
    waited.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, fraction)| *fraction >= SHARE_MIN)
}

fn seen(observation: &Observation) -> Option<String> {
    let (process, fraction) = worst(observation)?;
    Some(format!("{process} was made to wait for {} of the time", format::percent(fraction)))
}
