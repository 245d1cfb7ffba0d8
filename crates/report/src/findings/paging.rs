//! Paging while hardly any memory is available.

use super::observation::bytes;
use super::{MachineSnapshot, Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// 4 MB on a machine with 64 MB: the limit in the administration guidelines of 1998.
const AVAILABLE_MAX: f64 = 4.0 * 1024.0 * 1024.0;
/// The limit as a share of memory, where the size is known.
const MEMORY_SHARE_MAX: f64 = 1.0 / 16.0;
/// Pages per second: the paging rate of a Probe whose file exceeded the cache, in 1998.
const PAGES_PER_S_MIN: f64 = 45.0;
/// Minimum share of the snapshots: a single one does not show a persistent state.
const TIME_SHARE_MIN: f64 = 0.25;
/// Minimum number of snapshots.
const MOMENTS_MIN: usize = 2;

pub(super) const RULE: Rule = Rule {
    name: "paging",
    when: "in a quarter of the moments or more, at least 2, no more than 4 MiB (1/16 of memory, \
           where that is known) was available and 45 pages/s or more were paged",
    source: "from 1998: at or below 4 MB available of 64 MB and paging hard, the machine needs \
             memory; 45 pages/s were measured there when a file overran the cache",
    why: "Programs and the cache take memory from each other, and both read back from the disk \
          what they lost.",
    attempt: &["larder size TRACE", "larder serve IMAGE --memory SIZE --listen unix:SOCKET"],
    sure: Confidence::Likely,
    seen,
};

fn seen(observation: &Observation) -> Option<String> {
    let floor = observation.memory_bytes.map_or(AVAILABLE_MAX, |memory| memory * MEMORY_SHARE_MAX);
    let short = |moment: &&MachineSnapshot| {
        moment.available_bytes.is_some_and(|bytes| bytes <= floor)
            && moment.paging_per_s.is_some_and(|pages| pages >= PAGES_PER_S_MIN)
    };
    let moments: Vec<&MachineSnapshot> = observation.moments.iter().filter(short).collect();
    let all = observation.moments.len() as u64;
    let fraction = super::observation::share(moments.len() as u64, all);
    if moments.len() < MOMENTS_MIN || fraction < TIME_SHARE_MIN {
        return None;
    }
    let most = moments.iter().filter_map(|moment| moment.paging_per_s).max_by(f64::total_cmp)?;
    let least =
        moments.iter().filter_map(|moment| moment.available_bytes).min_by(f64::total_cmp)?;
    Some(format!(
        "in {} of the time no more than {} was available, at least {}, and up to {} pages/s were \
         paged",
        format::percent(fraction),
        bytes(floor),
        bytes(least),
        format::number(most)
    ))
}
