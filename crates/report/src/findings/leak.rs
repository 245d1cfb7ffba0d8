//! A process whose memory grows steadily and displaces the cache.

use super::observation::{bytes, mean};
use super::{Observation, Rule};
use larder_schema::watch::Confidence;

/// Minimum growth as a share of the initial cache size; less does not displace the cache.
const GROWTH_MIN: f64 = 0.25;
/// Maximum share of decreasing steps: a normal program frees memory about as often as it allocates
/// it.
const DECREASES_MAX: f64 = 0.1;
/// Minimum loss of the cache, as a share.
const LOSS_MIN: f64 = 0.25;
/// Minimum number of snapshots that distinguish a trend from a step.
const MOMENTS_MIN: usize = 8;

pub(super) const RULE: Rule = Rule {
    name: "leak",
    when: "over at least 8 moments a process grew by a quarter of the cache or more, hardly ever \
           giving back (1 step in 10), while the cache lost a quarter",
    source: "measured in 1998: a program that leaked memory squeezed the cache to nearly nothing, \
             since it had no minimum; the quarters of the time are compared",
    why: "The cache of the system has no floor: what a program takes, it loses, and everybody else \
          waits for the disk.",
    attempt: &[
        "larder bench probe DIRECTORY --scenario leak --memory SIZE",
        "larder serve IMAGE --memory SIZE --listen unix:SOCKET",
    ],
    sure: Confidence::Likely,
    seen,
};

/// Returns the means of the first and of the last quarter.
fn quarters(values: &[f64]) -> Option<(f64, f64)> {
    let quarter = values.len() / 4;
    Some((mean(values.get(..quarter)?)?, mean(values.get(values.len() - quarter..)?)?))
}

fn seen(observation: &Observation) -> Option<String> {
    let cache = observation.values(|moment| moment.cache_bytes);
    if cache.len() < MOMENTS_MIN {
        return None;
    }
    let (before, after) = quarters(&cache)?;
    if after > (1.0 - LOSS_MIN) * before {
        return None;
    }
    let leaks = observation.processes.iter().filter_map(|process| {
        let private = &process.private_bytes;
        if private.len() < MOMENTS_MIN {
            return None;
        }
        let steps = larder_schema::as_f64(private.len() as u64 - 1);
        let decreases = private.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let (first, last) = (*private.first()?, *private.last()?);
        let is_leak = larder_schema::as_f64(decreases as u64) <= DECREASES_MAX * steps
            && last - first >= GROWTH_MIN * before;
        is_leak.then_some((process, first, last))
    });
    let (process, first, last) = leaks.max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)))?;
    Some(format!(
        "{} grew from {} to {} while the cache went from {} to {}",
        process.process,
        bytes(first),
        bytes(last),
        bytes(before),
        bytes(after)
    ))
}
