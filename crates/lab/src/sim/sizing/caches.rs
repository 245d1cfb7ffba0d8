//! Many caches over the trace, in full or in miniature, and what they found.
//!
//! Caches in full are run in as many passes as it takes to keep their tables within
//! [`TABLES_BYTES_MAX`].

use super::{COUNTED_MAX, Case, PAGE_SIZES, Progress, SizingError, Tell};
use crate::sim::curve::estimate::Estimate;
use crate::sim::curve::miniature::Miniature;
use crate::sim::references::Batch;
use crate::sim::replace::Counts;
use crate::sim::sweep::{self, Planned};
use larder_core::policy::PolicyKind;
use larder_report::advise::curve::Point;
use larder_report::stats::hit_ratio;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the tables of caches that run together may take.
pub(super) const TABLES_BYTES_MAX: u64 = 256 << 20;
/// What the table, the keys and the policy take for each page, about.
pub(super) const TABLE_BYTES_PER_PAGE: u64 = 128;

/// What one cache did, or would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// Of references.
    pub(super) hits: Estimate,
    /// Of the bytes asked for.
    pub(super) byte_hits: Estimate,
    /// Reads that missed.
    pub(super) read_misses: u64,
    /// Whether all of the trace was run through a cache of full size.
    pub(super) counted: bool,
}

impl Found {
    fn counted(counts: &Counts) -> Found {
        let exactly = |ratio: f64| Estimate { hit_ratio: ratio, low: ratio, high: ratio };
        let (hits, all) = (counts.hits(), counts.all());
        let ratio = |hits, all| exactly(hit_ratio(hits, all).unwrap_or(0.0));
        Found {
            hits: ratio(hits.references, all.references),
            byte_hits: ratio(hits.bytes, all.bytes),
            read_misses: counts.read_misses.references,
            counted: true,
        }
    }

    /// The hit ratio with the size.
    pub(super) fn point(&self, bytes: u64) -> Point {
        let Estimate { hit_ratio, low, high } = self.hits;
        Point { bytes, hit_ratio, low, high }
    }
}

/// What is known of policies at sizes in pages; what was counted stays.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(BTreeMap<(u32, &'static str), Found>);

impl Table {
    /// Notes what was found; an estimate never replaces what was counted.
    fn insert(&mut self, policy: PolicyKind, pages: u32, found: Found) {
        let place = self.0.entry((pages, policy.name())).or_insert(found);
        if !place.counted {
            *place = found;
        }
    }

    pub(super) fn get(&self, policy: PolicyKind, pages: u32) -> Option<&Found> {
        self.0.get(&(pages, policy.name()))
    }

    /// All sizes of a policy.
    pub(super) fn of(&self, policy: PolicyKind) -> impl Iterator<Item = (u32, &Found)> {
        self.0
            .iter()
            .filter(move |((_, name), _)| *name == policy.name())
            .map(|((pages, _), found)| (*pages, found))
    }

    /// Takes over what another table knows. Estimates among what was counted would make the curve
    /// jump, so those between the least and the largest counted size go.
    pub(super) fn take(&mut self, other: Table) {
        let mut counted = other.0.iter().filter(|(_, found)| found.counted).map(|(key, _)| key.0);
        if let Some(least) = counted.next() {
            let most = counted.next_back().unwrap_or(least);
            self.0.retain(|(pages, _), found| found.counted || !(least..=most).contains(pages));
        }
        self.0.extend(other.0);
    }

    /// Takes over what another table knows of one size.
    pub(super) fn enter_all(&mut self, other: &Table, pages: u32) {
        for (key, found) in other.0.iter().filter(|(key, _)| key.0 == pages) {
            self.0.insert(*key, *found);
        }
    }

    /// All policies at a size, best first.
    pub(super) fn at(&self, pages: u32) -> Vec<(&'static str, &Found)> {
        let range = (pages, "")..(pages + 1, "");
        let mut found: Vec<_> =
            self.0.range(range).map(|((_, name), found)| (*name, found)).collect();
        found.sort_by(|(_, a), (_, b)| b.hits.hit_ratio.total_cmp(&a.hits.hit_ratio));
        found
    }

    /// All sizes.
    pub(super) fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.0.keys().map(|(pages, _)| *pages).collect();
        sizes.dedup();
        sizes
    }
}

/// Which caches to run.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) policies: &'a [PolicyKind],
    pub(super) pages: &'a [u32],
    /// Place in [`PAGE_SIZES`].
    pub(super) page_size: usize,
    pub(super) step: &'static str,
}

impl Plan<'_> {
    /// Whether this is to be run in full.
    fn counts(&self, case: &Case<'_>) -> bool {
        let caches = (self.policies.len() * self.pages.len()) as u64;
        let largest = self.pages.iter().copied().max().unwrap_or(0);
        !case.samples()
            && case.survey.references[self.page_size].saturating_mul(caches) <= COUNTED_MAX
            && u64::from(largest) * TABLE_BYTES_PER_PAGE <= TABLES_BYTES_MAX
    }

    /// Runs the caches; what comes out goes into the table.
    pub(super) fn run(
        &self,
        case: &Case<'_>,
        table: &mut Table,
        tell: &mut Tell<'_>,
    ) -> Result<(), SizingError> {
        if self.pages.is_empty() || self.policies.is_empty() {
            return Ok(());
        }
        if self.counts(case) {
            self.count(case, table, tell)
        } else {
            self.estimate(case, table, tell)
        }
    }

    fn count(
        &self,
        case: &Case<'_>,
        table: &mut Table,
        tell: &mut Tell<'_>,
    ) -> Result<(), SizingError> {
        let mut caches: Vec<Planned> = self
            .pages
            .iter()
            .flat_map(|&capacity| {
                self.policies.iter().map(move |&policy| Planned { policy, capacity })
            })
            .filter(|one| !table.get(one.policy, one.capacity).is_some_and(|found| found.counted))
            .collect();
        let mut passes: Vec<Vec<Planned>> = Vec::new();
        let mut bytes = u64::MAX;
        for one in caches.drain(..) {
            let more = u64::from(one.capacity) * TABLE_BYTES_PER_PAGE;
            if bytes.saturating_add(more) > TABLES_BYTES_MAX {
                passes.push(Vec::new());
                bytes = 0;
            }
            bytes += more;
            passes.last_mut().expect("a pass was begun").push(one);
        }
        let references = case.survey.references[self.page_size];
        let total = references * passes.len() as u64;
        for (number, pass) in (0..).zip(passes) {
            let stream = case.references(PAGE_SIZES[self.page_size])?;
            let footprint = case.survey.footprints[self.page_size].pages;
            let counts =
                sweep::run(stream, &pass, Some(footprint), case.options.threads, |done| {
                    tell(Progress { step: self.step, done: number * references + done, total });
                })?;
            for (one, counts) in pass.iter().zip(counts) {
                table.insert(one.policy, one.capacity, Found::counted(&counts));
            }
        }
        Ok(())
    }

    /// Each thread takes some of the policies and reads the trace for itself.
    fn estimate(
        &self,
        case: &Case<'_>,
        table: &mut Table,
        tell: &mut Tell<'_>,
    ) -> Result<(), SizingError> {
        let threads = case.options.threads.get().min(self.policies.len());
        // Dealt in turn, since neighbours in the list cost alike.
        let hands: Vec<Vec<PolicyKind>> = (0..threads)
            .map(|first| self.policies.iter().copied().skip(first).step_by(threads).collect())
            .collect();
        let total = case.survey.references[self.page_size];
        let done = AtomicU64::new(0);
        let made = std::thread::scope(|scope| {
            let others: Vec<_> = hands[1..]
                .iter()
                .map(|hand| scope.spawn(|| self.miniatures(case, hand, &mut |_| ())))
                .collect();
            let mut say = |more| {
                let done = done.fetch_add(more, Ordering::Relaxed) + more;
                tell(Progress { step: self.step, done, total });
            };
            let mut made = vec![self.miniatures(case, &hands[0], &mut say)];
            for other in others {
                made.push(other.join().expect("a thread that did not panic"));
            }
            made
        });
        for (hand, miniature) in hands.iter().zip(made) {
            self.enter(case, hand, &miniature?, table);
        }
        Ok(())
    }

    fn miniatures(
        &self,
        case: &Case<'_>,
        policies: &[PolicyKind],
        say: &mut dyn FnMut(u64),
    ) -> Result<Miniature, SizingError> {
        let footprint = case.survey.footprints[self.page_size].pages;
        let mut miniature = Miniature::new(policies, self.pages, footprint, case.options.seed);
        let mut references = case.references(PAGE_SIZES[self.page_size])?;
        let (mut batch, mut unsaid) = (Batch::default(), 0);
        loop {
            references.read_batch(&mut batch)?;
            if batch.references.is_empty() {
                return Ok(miniature);
            }
            miniature.run(&batch.references);
            unsaid += batch.references.len() as u64;
            if unsaid >= 1 << 18 {
                say(std::mem::take(&mut unsaid));
            }
        }
    }

    fn enter(
        &self,
        case: &Case<'_>,
        policies: &[PolicyKind],
        miniature: &Miniature,
        table: &mut Table,
    ) {
        for (policy, &kind) in policies.iter().enumerate() {
            for (size, &pages) in self.pages.iter().enumerate() {
                let missed = |counts: &Counts| counts.misses().bytes;
                let hits = miniature.hit_ratio(policy, size);
                let byte_hits = miniature.share_without(policy, size, case.survey.bytes, missed);
                let (Some(hits), Some(byte_hits)) = (hits, byte_hits) else { continue };
                let reads = |counts: &Counts| counts.read_misses.references;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count, never negative"
                )]
                let read_misses = miniature.total(policy, size, reads).0.round() as u64;
                let counted = miniature.is_whole(size);
                table.insert(kind, pages, Found { hits, byte_hits, read_misses, counted });
            }
        }
    }
}
