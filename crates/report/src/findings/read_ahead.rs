//! Read-ahead that is wasted, or too small.

use super::observation::share;
use super::{Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Share of the read-ahead pages that go unused: the same limit as for volumes that larder serves
/// (`curve/report.rs` of the core).
const UNUSED_MAX: f64 = 0.5;
/// Minimum number of pages: 4 MiB.
const PAGES_MIN: u64 = 1024;
/// Maximum share of sequentially read pages that the reader waits for: with windows of 128 KiB, the
/// default of Linux (`read_ahead_kb` 128), it is 1/32.
const MISSED_MAX: f64 = 0.1;
/// Minimum share of sequential pages of a file that counts as sequential.
const SEQUENTIAL_MIN: f64 = 0.9;

pub(super) const WASTED: Rule = Rule {
    name: "read-ahead-wasted",
    when: "more than half of at least 1,024 pages that were read ahead went before anybody touched \
           them",
    source: "the bound of larder's own caches; 1,024 pages are 4 MiB",
    why: "The disk reads, and the cache gives room to, what nobody wants.",
    attempt: &[
        "larder serve IMAGE --read-ahead 64KiB --listen unix:SOCKET",
        "larder serve IMAGE --hint random --listen unix:SOCKET",
    ],
    sure: Confidence::Certain,
    seen: wasted,
};

pub(super) const TOO_SMALL: Rule = Rule {
    name: "read-ahead-small",
    when: "of at least 1,024 pages of files read at least 90 % in order, more than 1 in 10 was \
           missed",
    source: "the default window of Linux, 128 KiB, leaves 1 page in 32 to wait for",
    why: "A program that reads in order waits for the disk again and again, though it was plain \
          what it would want next.",
    attempt: &[
        "larder bench fileload DIRECTORY",
        "larder serve IMAGE --read-ahead 4MiB --listen unix:SOCKET",
    ],
    sure: Confidence::Likely,
    seen: too_small,
};

fn wasted(observation: &Observation) -> Option<String> {
    let ahead = observation.read_ahead?;
    let fraction = share(ahead.unused_pages, ahead.brought_pages);
    (ahead.brought_pages >= PAGES_MIN && fraction > UNUSED_MAX).then(|| {
        format!(
            "{} of {} pages that were read ahead went unused",
            format::percent(fraction),
            format::count(ahead.brought_pages)
        )
    })
}

fn too_small(observation: &Observation) -> Option<String> {
    let sequential = observation.files.iter().filter(|file| {
        file.sequential_pages.is_some_and(|n| share(n, file.read_pages) >= SEQUENTIAL_MIN)
    });
    let (mut read, mut missed) = (0, 0);
    for file in sequential {
        read += file.read_pages;
        missed += file.miss_pages;
    }
    let fraction = share(missed, read);
    (read >= PAGES_MIN && fraction > MISSED_MAX).then(|| {
        format!(
            "{} of {} pages that were read in order were missed",
            format::percent(fraction),
            format::count(read)
        )
    })
}
