//! Rules about reads: a scan that displaces the cache contents, misses concentrated in one file,
//! read-ahead that is wasted or too small.

use super::observation::{bytes, share};
use super::{FileUse, Observation, Rule};
use larder_schema::format;
use larder_schema::mean;
use larder_schema::watch::Confidence;

/// Minimum share of sequential pages of a file that counts as sequential: the rest are seeks at
/// extent boundaries and between threads.
const SEQUENTIAL_MIN: f64 = 0.9;
/// Minimum size of the scan as a share of the cache, at which it displaces other data.
const CACHE_SHARE_MIN: f64 = 0.25;
/// Minimum share of evicted pages that are read again; a working set that fits stays below it.
const REFAULT_SHARE_MIN: f64 = 0.05;

pub(super) const SCAN: Rule = Rule {
    name: "scan",
    when: "a file is read at least 90 % in order, its pages are a quarter of the cache or more, \
           and at least 5 % of the evicted pages came back",
    source: "the other tenth allows for seeks between extents and threads; refaults are the \
             kernel's own sign of a working set that lost memory (workingset_refault_file)",
    why: "Pages that are read once evict pages that are read again and again, which then are read \
          from the disk once more.",
    attempt: &[
        "larder sim TRACE --policy lru,linux,s3fifo,arc,min",
        "larder serve IMAGE --policy s3fifo --listen unix:SOCKET",
    ],
    sure: Confidence::Likely,
    seen: scan,
};

fn is_sequential(file: &FileUse) -> bool {
    file.sequential_pages.is_some_and(|n| share(n, file.read_pages) >= SEQUENTIAL_MIN)
}

fn scan(observation: &Observation) -> Option<String> {
    let cache = mean(&observation.values(|moment| moment.cache_bytes))?;
    let (evicted, refaulted) = (observation.evicted_pages?, observation.refault_pages?);
    if evicted == 0 || share(refaulted, evicted) < REFAULT_SHARE_MIN {
        return None;
    }
    let brought = |pages: u64| larder_schema::as_f64(pages.saturating_mul(observation.page_bytes));
    let scans = observation.files.iter().filter(|file| {
        is_sequential(file)
            && brought(file.miss_pages + file.ahead_hit_pages) >= CACHE_SHARE_MIN * cache
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

/// Share of all misses above which this file determines the total.
const MISS_SHARE_MIN: f64 = 0.5;
/// Minimum number of files; with fewer, one of them has most misses in any case.
const FILES_MIN: usize = 3;
/// Minimum number of misses: 4 MiB of pages, which any disk reads in a second.
const MISSES_MIN: u64 = 1024;
/// Minimum miss ratio: a fitting Probe had 99.9 % hits, and the useful region of a curve ends where
/// more memory gains little.
const MISS_RATIO_MIN: f64 = 0.05;

pub(super) const ONE_FILE: Rule = Rule {
    name: "one-file-misses",
    when: "one of at least 3 files has more than half of all misses, which are at least 1,024 \
           pages and 5 % of what was read",
    source: "with more than half of the misses, one file matters more than all others together; \
             1,024 pages are 4 MiB, a second's work of any disk",
    why: "Memory, another policy or another place for this one file changes more than anything \
          that is done for all files.",
    attempt: &["larder size TRACE", "larder serve IMAGE --memory SIZE --listen unix:SOCKET"],
    sure: Confidence::Certain,
    seen: one_file,
};

fn one_file(observation: &Observation) -> Option<String> {
    let (reads, misses) = (observation.read_pages(), observation.miss_pages());
    let worst = observation.files.iter().max_by_key(|file| file.miss_pages)?;
    let read = observation.files.iter().filter(|file| file.read_pages > 0).count();
    let fraction = share(worst.miss_pages, misses);
    let matters = misses >= MISSES_MIN && share(misses, reads) >= MISS_RATIO_MIN;
    (matters && read >= FILES_MIN && fraction > MISS_SHARE_MIN).then(|| {
        format!(
            "{} has {} of {} missed pages, and {} of the pages that were read",
            worst.file,
            format::percent(fraction),
            format::count(misses),
            format::percent(share(worst.read_pages, reads))
        )
    })
}

/// Share of the read-ahead pages that go unused: the same limit as for volumes that larder serves
/// (`curve/report.rs` of the core).
const UNUSED_MAX: f64 = 0.5;
/// Minimum number of pages: 4 MiB.
const AHEAD_PAGES_MIN: u64 = 1024;
/// Maximum share of sequentially read pages that the reader waits for: with windows of 128 KiB, the
/// default of Linux (`read_ahead_kb` 128), it is 1/32.
const MISSED_MAX: f64 = 0.1;

pub(super) const WASTED: Rule = Rule {
    name: "read-ahead-wasted",
    when: "more than half of at least 1,024 pages that were read ahead were evicted unused",
    source: "the threshold of the same finding of a larder volume; 1,024 pages are 4 MiB",
    why: "The disk reads pages that no program uses, and they take memory of the cache.",
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
    source: "with the default window of Linux, 128 KiB, a reader waits for 1 page in 32",
    why: "A program that reads in order waits for the disk again and again, although its next \
          pages were known.",
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
    (ahead.brought_pages >= AHEAD_PAGES_MIN && fraction > UNUSED_MAX).then(|| {
        format!(
            "{} of {} pages that were read ahead went unused",
            format::percent(fraction),
            format::count(ahead.brought_pages)
        )
    })
}

fn too_small(observation: &Observation) -> Option<String> {
    let sequential = observation.files.iter().filter(|file| is_sequential(file));
    let (mut read, mut missed) = (0, 0);
    for file in sequential {
        read += file.read_pages;
        missed += file.miss_pages;
    }
    let fraction = share(missed, read);
    (read >= AHEAD_PAGES_MIN && fraction > MISSED_MAX).then(|| {
        format!(
            "{} of {} pages that were read in order were missed",
            format::percent(fraction),
            format::count(read)
        )
    })
}
