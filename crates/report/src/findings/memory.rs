//! Rules about memory: a process that displaces the cache, paging, data in two caches.

use super::observation::{bytes, share};
use super::{MachineSnapshot, Observation, Rule};
use larder_schema::mean;
use larder_schema::watch::{Confidence, StackedCache};
use larder_schema::{as_f64, format};

/// Minimum growth as a share of the initial cache size; less does not displace the cache.
const GROWTH_MIN: f64 = 0.25;
/// Maximum share of decreasing steps: a normal program frees memory about as often as it allocates
/// it.
const DECREASES_MAX: f64 = 0.1;
/// Minimum loss of the cache, as a share.
const LOSS_MIN: f64 = 0.25;
/// Minimum number of snapshots that distinguish a trend from a step.
const LEAK_MOMENTS_MIN: usize = 8;

pub(super) const LEAK: Rule = Rule {
    name: "leak",
    when: "over at least 8 snapshots a process grew by a quarter of the cache or more and shrank \
           in at most 1 of 10 steps, while the cache lost a quarter",
    source: "Windows 2000 Performance Guide, January 2002: a program that leaked memory took \
             nearly the whole cache, which had no minimum; the cache is compared by the means of \
             the first and the last quarter of the snapshots",
    why: "The cache of the system has no minimum: it loses what a program takes, and then other \
          programs wait for the disk.",
    attempt: &[
        "larder bench probe DIRECTORY --scenario leak --memory SIZE",
        "larder serve IMAGE --memory SIZE --listen unix:SOCKET",
    ],
    sure: Confidence::Likely,
    seen: leak,
};

/// Returns the means of the first and of the last quarter.
fn quarters(values: &[f64]) -> Option<(f64, f64)> {
    let quarter = values.len() / 4;
    Some((mean(values.get(..quarter)?)?, mean(values.get(values.len() - quarter..)?)?))
}

fn leak(observation: &Observation) -> Option<String> {
    let cache = observation.values(|moment| moment.cache_bytes);
    if cache.len() < LEAK_MOMENTS_MIN {
        return None;
    }
    let (before, after) = quarters(&cache)?;
    if after > (1.0 - LOSS_MIN) * before {
        return None;
    }
    let leaks = observation.processes.iter().filter_map(|process| {
        let private = &process.private_bytes;
        if private.len() < LEAK_MOMENTS_MIN {
            return None;
        }
        let steps = as_f64(private.len() as u64 - 1);
        let decreases = private.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let (first, last) = (*private.first()?, *private.last()?);
        let is_leak = as_f64(decreases as u64) <= DECREASES_MAX * steps
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

/// 4 MB on a machine with 64 MB: the limit in the Windows 2000 Performance Guide (2002).
const AVAILABLE_MAX: f64 = 4.0 * 1024.0 * 1024.0;
/// The limit as a share of memory, where the size is known.
const MEMORY_SHARE_MAX: f64 = 1.0 / 16.0;
/// Pages per second: the paging rate of a Probe whose file exceeded the cache, in the same guide.
const PAGES_PER_S_MIN: f64 = 45.0;
/// Minimum share of the snapshots: a single one does not show a persistent state.
const TIME_SHARE_MIN: f64 = 0.25;
/// Minimum number of snapshots.
const PAGING_MOMENTS_MIN: usize = 2;

pub(super) const PAGING: Rule = Rule {
    name: "paging",
    when: "in at least 2 snapshots, and at least a quarter of all, at most 4 MiB of memory (1/16 \
           of it, where its size is known) was available while at least 45 pages/s were paged",
    source: "Windows 2000 Performance Guide, January 2002: a machine of 64 MB with at most 4 MB \
             available that pages much needs memory; it paged 45 pages/s when a file was larger \
             than the cache",
    why: "Programs and the cache take memory from each other, and both read back from the disk \
          what they lost.",
    attempt: &["larder size TRACE", "larder serve IMAGE --memory SIZE --listen unix:SOCKET"],
    sure: Confidence::Likely,
    seen: paging,
};

fn paging(observation: &Observation) -> Option<String> {
    let floor = observation.memory_bytes.map_or(AVAILABLE_MAX, |memory| memory * MEMORY_SHARE_MAX);
    let short = |moment: &&MachineSnapshot| {
        moment.available_bytes.is_some_and(|bytes| bytes <= floor)
            && moment.paging_per_s.is_some_and(|pages| pages >= PAGES_PER_S_MIN)
    };
    let moments: Vec<&MachineSnapshot> = observation.moments.iter().filter(short).collect();
    let all = observation.moments.len() as u64;
    let fraction = share(moments.len() as u64, all);
    if moments.len() < PAGING_MOMENTS_MIN || fraction < TIME_SHARE_MIN {
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

/// Minimum share of memory that both caches hold; less is not worth a change.
const LAYER_SHARE_MIN: f64 = 0.05;
/// Minimum size where the memory size is unknown.
const LAYER_BYTES_MIN: f64 = 64.0 * 1024.0 * 1024.0;

pub(super) const LAYERS: Rule = Rule {
    name: "layered-caches",
    when: "a cache and the cache of the storage below it both hold 5 % of memory or more (64 MiB \
           where that is not known)",
    source: "less than 5 % of memory is not worth a change; both caches hold the same data, so the \
             smaller one is wasted",
    why: "Two copies of the same data compete for memory, and the lower one is hardly ever read.",
    attempt: &["larder serve IMAGE --memory SIZE --listen unix:SOCKET"],
    sure: Confidence::Certain,
    seen: stacked_caches,
};

fn stacked_caches(observation: &Observation) -> Option<String> {
    let minimum =
        observation.memory_bytes.map_or(LAYER_BYTES_MIN, |memory| memory * LAYER_SHARE_MIN);
    let is_duplicated = |it: &&StackedCache| as_f64(it.upper_bytes.min(it.lower_bytes)) >= minimum;
    let layers = observation.layers.iter().filter(is_duplicated);
    let StackedCache { upper, upper_bytes, lower, lower_bytes } =
        layers.max_by_key(|layer| layer.lower_bytes)?;
    let (upper_size, lower_size) = (format::bytes(*upper_bytes), format::bytes(*lower_bytes));
    Some(format!(
        "{upper} holds {upper_size}, and {lower} below it has {lower_size} resident as well"
    ))
}
