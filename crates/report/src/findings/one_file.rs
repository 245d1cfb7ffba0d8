//! Misses concentrated in one file.

use super::observation::share;
use super::{Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Share of all misses above which this file determines the total.
const SHARE_MIN: f64 = 0.5;
/// Minimum number of files; with fewer, one of them has most misses in any case.
const FILES_MIN: usize = 3;
/// Minimum number of misses: 4 MiB of pages, which any disk reads in a second.
const MISSES_MIN: u64 = 1024;
/// Minimum miss ratio: a fitting Probe had 99.9 % hits, and the useful region of a curve ends where
/// more memory gains little.
const MISS_RATIO_MIN: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    name: "one-file-misses",
    when: "one of at least 3 files has more than half of all misses, which are at least 1,024 \
           pages and 5 % of what was read",
    source: "half decides the whole; 1,024 pages are 4 MiB, a second's work of any disk",
    why: "Memory, another policy or another place for this one file changes more than anything \
          that is done for all.",
    attempt: &["larder size TRACE", "larder serve IMAGE --memory SIZE --listen unix:SOCKET"],
    sure: Confidence::Certain,
    seen,
};

fn seen(observation: &Observation) -> Option<String> {
    let (reads, misses) = (observation.read_pages(), observation.miss_pages());
    let worst = observation.files.iter().max_by_key(|file| file.miss_pages)?;
    let read = observation.files.iter().filter(|file| file.read_pages > 0).count();
    let fraction = share(worst.miss_pages, misses);
    let matters = misses >= MISSES_MIN && share(misses, reads) >= MISS_RATIO_MIN;
    (matters && read >= FILES_MIN && fraction > SHARE_MIN).then(|| {
        format!(
            "{} has {} of {} missed pages, and {} of the pages that were read",
            worst.file,
            format::percent(fraction),
            format::count(misses),
            format::percent(share(worst.read_pages, reads))
        )
    })
}
