//! A scan that displaces the cache contents.

use super::observation::{bytes, mean, share};
use super::{Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Minimum share of sequential pages: the rest are seeks at extent boundaries and between threads.
const SEQUENTIAL_MIN: f64 = 0.9;
/// Minimum size of the scan as a share of the cache, at which it displaces other data.
const CACHE_SHARE_MIN: f64 = 0.25;
/// Minimum share of evicted pages that are read again; a working set that fits stays below it.
const REFAULT_SHARE_MIN: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    name: "scan",
    when: "a file is read at least 90 % in order, what it brought is a quarter of the cache or \
           more, and at least 5 % of the evicted pages came back",
    source: "a tenth for seeks between extents and threads; refaults are the kernel's own sign \
             of a working set that lost memory (workingset_refault_file)",
    why: "What is read once takes the place of what is read again and again, so that is read from \
          the disk a second time.",
    attempt: &[
        "larder sim TRACE --policy lru,linux,s3fifo,arc,min",
        "larder serve IMAGE --policy s3fifo --listen unix:SOCKET",
    ],
    sure: Confidence::Likely,
    seen,
};

fn seen(observation: &Observation) -> Option<String> {
    let cache = mean(&observation.values(|moment| moment.cache_bytes))?;
    let (evicted, refaulted) = (observation.evicted_pages?, observation.refault_pages?);
    if evicted == 0 || share(refaulted, evicted) < REFAULT_SHARE_MIN {
        return None;
    }
    let brought = |pages: u64| larder_schema::as_f64(pages.saturating_mul(observation.page_bytes));
    let scans = observation.files.iter().filter(|file| {
        let is_sequential =
            file.sequential_pages.is_some_and(|n| share(n, file.read_pages) >= SEQUENTIAL_MIN);
        is_sequential && brought(file.miss_pages + file.ahead_hit_pages) >= CACHE_SHARE_MIN * cache
    });
    let scan = scans.max_by_key(|file| file.miss_pages + file.ahead_hit_pages)?;
    Some(format!(
        "{} was read in order and brought {} into a cache of {}; {} of {} evicted pages came back",
        scan.file,
        bytes(brought(scan.miss_pages + scan.ahead_hit_pages)),
        bytes(cache),
        format::count(refaulted),
        format::count(evicted)
    ))
}
