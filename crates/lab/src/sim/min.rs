//! MIN: the minimum number of misses of any policy.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal
//! 5(2), 1966: the victim is the page whose next reference is farthest in the future. The algorithm
//! needs future references, so the trace is kept in memory, page by page. A short trace of long
//! requests takes much memory; [`memory_bytes`] returns the amount.
//!
//! Every miss brings its page in, even if the page is not worth caching, as with every other policy
//! here (it may be the next victim).
//!
//! Writes. The cache writes a dirty page to the store when it evicts the page, and at the end of
//! the trace. [`MinCounts::write_backs`] counts those of MIN; the pages moved, fills and
//! write-backs together, are then the cost of MIN in a write-back cache. It is not the minimum of
//! all policies (that is a harder problem: Beckmann and others, "Writeback-aware caching", APOCS
//! 2020), but no policy has fewer fills, and [`MinCounts::write_backs_least`] is a lower bound for
//! all policies: a page that is ever written is written back at least once.

use std::collections::BinaryHeap;

use super::interner::Interner;
use super::references::Reference;
use larder_core::replace::Counts;

/// Bytes for each page of the trace: at most 8 and 48 of the [`Interner`] while the trace is read;
/// later 9, and 16 in the queue of victims if the cache holds the page.
const BYTES_PER_PAGE: u64 = 56;

/// Index that means no next reference.
const NEVER: u32 = u32::MAX;

/// A trace that is read into memory to its end.
#[derive(Clone, Debug, Default)]
pub struct Future {
    interner: Interner,
    steps: Vec<Step>,
    numbers: Vec<u32>,
}

/// One reference.
#[derive(Clone, Copy, Debug)]
struct Step {
    number: u32,
    /// The next reference of the same page, after [`Future::known`] has determined it.
    next: u32,
    /// Bytes; the highest bit is set for a write.
    bytes_write: u32,
}

const WRITE: u32 = 1 << 31;

/// The counts of a run of MIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinCounts {
    /// Hits and misses.
    pub counts: Counts,
    /// Dirty pages that were evicted, and those that remained at the end.
    pub write_backs: u64,
    /// Number of pages that were ever written: no policy writes back fewer.
    pub write_backs_least: u64,
}

/// The trace is too long for MIN.
#[derive(Debug, thiserror::Error)]
#[error("look ahead: the trace has 2^32 - 1 references or more")]
pub struct TraceTooLong;

/// Returns the maximum memory of MIN, in bytes, for a trace with these counts.
#[must_use]
pub fn memory_bytes(references: u64, pages: u64) -> u64 {
    let steps = references.saturating_mul(size_of::<Step>() as u64);
    steps.saturating_add(pages.saturating_mul(BYTES_PER_PAGE))
}

impl Future {
    /// Creates a trace without references.
    #[must_use]
    pub fn new() -> Self {
        Future::default()
    }

    /// Adds the next references of the trace.
    ///
    /// # Errors
    /// The trace is too long.
    pub fn add(&mut self, references: &[Reference]) -> Result<(), TraceTooLong> {
        if self.steps.len() + references.len() >= NEVER as usize {
            return Err(TraceTooLong);
        }
        let Future { interner, steps, numbers } = self;
        interner.numbers(references, numbers);
        steps.extend(references.iter().zip(numbers).map(|(reference, &mut number)| {
            let write = if reference.write { WRITE } else { 0 };
            Step { number, next: NEVER, bytes_write: reference.bytes.min(WRITE - 1) | write }
        }));
        Ok(())
    }

    /// Determines the next reference of each reference; no references can be added after that.
    #[must_use]
    pub fn known(self) -> NextUseTrace {
        let Future { interner, mut steps, .. } = self;
        let pages = interner.len();
        drop(interner);
        let mut next = vec![NEVER; pages];
        let mut at = u32::try_from(steps.len()).expect("counted in add");
        for step in steps.iter_mut().rev() {
            at -= 1;
            step.next = std::mem::replace(&mut next[step.number as usize], at);
        }
        NextUseTrace { steps, pages }
    }
}

/// A trace in which the next reference of each reference is known.
#[derive(Clone, Debug)]
pub struct NextUseTrace {
    steps: Vec<Step>,
    pages: usize,
}

/// State of a page of the trace.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Index of its next reference.
    next: u32,
    resident: bool,
    dirty: bool,
}

impl NextUseTrace {
    /// Returns the number of pages of the trace.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.pages as u64
    }

    /// Returns the counts of a cache of `capacity` pages, at least one, under MIN.
    ///
    /// # Panics
    /// The capacity is zero.
    #[must_use]
    pub fn run(&self, capacity: u32) -> MinCounts {
        assert!(capacity > 0, "a cache of at least one page");
        let mut cache = MinCache {
            pages: vec![Page::default(); self.pages],
            farthest: BinaryHeap::new(),
            resident: 0,
            // A larger cache also holds all pages, and would only have a longer queue.
            capacity: (capacity as usize).min(self.pages),
            result: MinCounts::default(),
        };
        let mut written = vec![false; self.pages];
        for step in &self.steps {
            cache.step(step);
            let written = &mut written[step.number as usize];
            let write = step.bytes_write & WRITE != 0;
            cache.result.write_backs_least += u64::from(write && !*written);
            *written |= write;
        }
        let left = cache.pages.iter().filter(|page| page.resident && page.dirty).count() as u64;
        cache.result.write_backs += left;
        cache.result
    }
}

/// The state of a cache under MIN.
#[derive(Debug)]
struct MinCache {
    pages: Vec<Page>,
    /// Next reference and number of resident pages. An entry whose page was referenced since is
    /// stale; its next reference is in the past, so it sorts below all other entries and is never
    /// popped while a page is resident.
    farthest: BinaryHeap<(u32, u32)>,
    resident: usize,
    capacity: usize,
    result: MinCounts,
}

impl MinCache {
    fn step(&mut self, step: &Step) {
        let write = step.bytes_write & WRITE != 0;
        let bytes = step.bytes_write & !WRITE;
        let reference = Reference { page: 0, bytes, write, partial: false, first: false };
        let hit = self.pages[step.number as usize].resident;
        self.result.counts.count(&reference, hit);
        if !hit {
            if self.resident == self.capacity {
                self.evict();
            }
            self.resident += 1;
        }
        let page = &mut self.pages[step.number as usize];
        let dirty = page.dirty || write;
        *page = Page { next: step.next, resident: true, dirty };
        self.farthest.push((step.next, step.number));
        if self.farthest.len() >= 2 * self.capacity + 1024 {
            let pages = &self.pages;
            self.farthest.retain(|&(next, number)| {
                let page = pages[number as usize];
                page.resident && page.next == next
            });
        }
    }

    fn evict(&mut self) {
        let (next, number) = self.farthest.pop().expect("a full cache has a victim");
        let page = std::mem::take(&mut self.pages[number as usize]);
        assert!(page.resident && page.next == next, "the farthest entry is not stale");
        self.result.write_backs += u64::from(page.dirty);
        self.result.counts.evictions += 1;
        self.resident -= 1;
    }
}

#[cfg(test)]
mod tests;
