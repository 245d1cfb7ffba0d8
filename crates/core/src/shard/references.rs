//! References to the pages of an instance: the policy, which receives them, the times of the last
//! ones, and samples for the tracker of the volume.

use super::page::Page;
use crate::clock::Nanos;
use crate::curve::sampler::{PendingSamples, SampledReference, Sampler};
use crate::frames::Frames;
use crate::page::{ChunkedArray, Slab};
use crate::policy::{Policy, Slot, hand_over};
use crate::replace::CacheEvent;
use crate::volume::Volume;

/// Time of the last reference to a page that the policy has received, plus one; 0 for a page that
/// the policy does not know. Unless it is pinned, such a page, as write-around mode creates them,
/// is dropped when it is clean.
///
/// Separate from [`Page`], since each hit updates it: eight pages share a cache line of the
/// processor. The highest bits are flags, so one comparison selects the most common case: a known
/// page without flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastReference(pub(super) u64);

impl LastReference {
    /// The page is in the sample of the volume's tracker.
    const SAMPLED: u64 = 1 << 63;
    /// The page was read ahead, and not referenced since.
    const UNUSED: u64 = 1 << 62;
    /// The page is in the sample, and was read ahead.
    const READ_AHEAD: u64 = 1 << 61;
    const FLAGS: u64 = Self::SAMPLED | Self::UNUSED | Self::READ_AHEAD;

    pub(super) fn new(now: Nanos, sampled: bool) -> Self {
        LastReference((now + 1) | if sampled { Self::SAMPLED } else { 0 })
    }

    /// Adds the flags of a page that is read ahead.
    fn mark_ahead(&mut self) {
        self.0 |= Self::UNUSED | if self.is_sampled() { Self::READ_AHEAD } else { 0 };
    }

    /// Returns the time plus one; 0 if the policy does not know the page.
    pub(super) fn at(self) -> Nanos {
        self.0 & !Self::FLAGS
    }

    fn is_sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
    }

    fn is_read_ahead(self) -> bool {
        self.0 & Self::READ_AHEAD != 0
    }

    /// Returns true if the policy knows the page and there is no flag.
    #[inline]
    fn is_plain(self) -> bool {
        self.0.wrapping_sub(1) < Self::READ_AHEAD - 1
    }

    /// Sets the time of a reference, unless the last one is later.
    fn update(&mut self, now: Nanos) {
        let flags = self.0 & Self::FLAGS;
        self.0 = self.0.max((now + 1) | flags);
    }

    /// Clears the flag of an unused page. Returns true if it was set.
    fn take_unused(&mut self) -> bool {
        let unused = self.0 & Self::UNUSED != 0;
        self.0 &= !Self::UNUSED;
        unused
    }
}

/// The state that references change.
#[derive(Debug)]
pub(crate) struct References {
    pub(crate) policy: Box<dyn Policy>,
    pub(super) last: ChunkedArray<LastReference>,
    /// References that the volume's tracker, if there is one, has not received.
    pub(super) samples: Option<PendingSamples>,
}

impl References {
    /// Returns the state without pages; `sampler` is that of the volume's tracker.
    pub(super) fn new(policy: Box<dyn Policy>, sampler: Option<Sampler>) -> Self {
        References {
            policy,
            last: ChunkedArray::default(),
            samples: sampler.map(PendingSamples::new),
        }
    }

    /// Returns true if the policy knows the page.
    pub(crate) fn is_known(&self, slot: Slot) -> bool {
        self.last.find(slot).is_some_and(|last| last.at() > 0)
    }

    /// Returns the time of the last reference to a page that the policy has received; 0 if the
    /// policy does not know the page.
    pub(crate) fn last_at(&self, slot: Slot) -> Nanos {
        self.last.find(slot).map_or(0, |last| last.at().saturating_sub(1))
    }

    /// Adds a page to the policy, and counts the reference as a miss.
    pub(super) fn admit(&mut self, slot: Slot, page: u64, now: Nanos) {
        self.insert(slot, page, CacheEvent::Miss, now);
        if let Some(samples) = &mut self.samples {
            samples.counts.references += 1;
            samples.counts.misses += 1;
        }
    }

    /// Adds a page that is read ahead to the policy. Its first use is the first reference.
    pub(super) fn admit_ahead(&mut self, slot: Slot, page: u64, now: Nanos) {
        self.insert(slot, page, CacheEvent::ReadAhead, now);
        self.last.get_mut(slot).mark_ahead();
    }

    fn insert(&mut self, slot: Slot, page: u64, event: CacheEvent, now: Nanos) {
        let sampled = self.samples.as_ref().is_some_and(|samples| samples.sampler.admits(page));
        *self.last.get_mut(slot) = LastReference::new(now, sampled);
        self.policy.on_insert(slot, page);
        if sampled && let Some(samples) = &mut self.samples {
            samples.samples.push(SampledReference { page, event });
        }
    }

    /// Removes a page, of which the policy keeps a ghost if it was evicted. Returns the time of the
    /// last reference to it.
    pub(super) fn remove(&mut self, slot: Slot, page: u64, evicted: bool) -> Nanos {
        let last = std::mem::take(self.last.get_mut(slot));
        if last.at() > 0 {
            self.policy.on_remove(slot, page, evicted);
        }
        last.at().saturating_sub(1)
    }

    /// Replaces the policy by an empty one. The new one receives all pages of the old one
    /// ([`hand_over`]), and expects `expected`.
    pub(crate) fn rebuild_policy(
        &mut self,
        mut policy: Box<dyn Policy>,
        expected: usize,
        pages: &Slab<Page>,
    ) {
        policy.on_capacity(expected);
        hand_over(&*self.policy, &mut *policy, &mut self.known(pages));
        self.policy = policy;
    }

    /// Returns the pages that the policy knows: time of the last reference, slot and number.
    pub(super) fn known(&self, pages: &Slab<Page>) -> Vec<(Nanos, Slot, u64)> {
        let known = pages.slots().filter_map(|slot| {
            let last = self.last.find(slot)?.at();
            (last > 0).then(|| (last, slot, pages.get(slot).number))
        });
        known.collect()
    }

    /// Passes a reference to the policy, if the policy knows the page: the page may have been
    /// evicted. The policy has received the first reference to a page that was read ahead with the
    /// page. `previous` is the slot of the same client's reference before it, or
    /// [`NO_SLOT`](crate::policy::NO_SLOT). The caller counts the reference.
    #[inline]
    pub(super) fn hit(&mut self, pages: &Slab<Page>, slot: Slot, previous: Slot, now: Nanos) {
        if let Some(last) = self.last.find_mut(slot) {
            if last.is_plain() {
                // A store of the same value would take the cache line from other processors.
                if last.0 <= now {
                    last.0 = now + 1;
                }
                self.policy.on_hit(slot);
            } else if last.at() > 0 {
                self.hit_flagged(pages, slot, previous, now);
            }
        }
    }

    /// As [`References::hit`], for a page with flags.
    #[inline(never)]
    fn hit_flagged(&mut self, pages: &Slab<Page>, slot: Slot, previous: Slot, now: Nanos) {
        let page = pages.get(slot).number;
        let last = self.last.get_mut(slot);
        let is_first = last.take_unused();
        if !is_first {
            last.update(now);
            self.policy.on_hit(slot);
        }
        let last = *last;
        let event = if is_first {
            CacheEvent::FirstUse
        } else if last.is_read_ahead() && self.is_next(pages, page, previous) {
            CacheEvent::ReadAheadHit
        } else {
            CacheEvent::Hit
        };
        if let Some(samples) = &mut self.samples {
            samples.counts.first_uses += u64::from(event == CacheEvent::FirstUse);
            if last.is_sampled() {
                samples.samples.push(SampledReference { page, event });
            }
        }
    }

    /// Returns true if `previous` is a neighbor of `page`.
    fn is_next(&self, pages: &Slab<Page>, page: u64, previous: Slot) -> bool {
        self.is_known(previous) && pages.get(previous).number.abs_diff(page) <= 1
    }

    /// Prefetches the data of [`References::hit`].
    #[inline]
    pub(super) fn expect_hit<F: Frames>(&self, slot: Slot) {
        if let Some(last) = self.last.find(slot) {
            F::fetch_to_change(last);
        }
    }

    pub(super) fn count_hits(&mut self, hits: u64) {
        if let Some(samples) = &mut self.samples {
            samples.counts.references += hits;
        }
    }

    /// Passes the collected samples to the volume's tracker if there are many.
    pub(super) fn flush_if_full<F: Frames>(&mut self, volume: &Volume<F>) {
        if self.samples.as_ref().is_some_and(PendingSamples::is_full) {
            self.flush(volume);
        }
    }

    /// Passes the collected samples to the volume's tracker.
    pub(crate) fn flush<F: Frames>(&mut self, volume: &Volume<F>) {
        if let (Some(samples), Some(tracker)) = (&mut self.samples, &volume.tuning.tracker)
            && tracker.record_samples(samples)
        {
            volume.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{NO_SLOT, PolicyKind};

    fn references(sampler: Option<Sampler>) -> (References, Slab<Page>, Slot) {
        let mut references = References::new(PolicyKind::Lru.build(), sampler);
        let mut pages = Slab::new();
        let slot = pages.insert(Page::new(7));
        references.admit(slot, 7, 10);
        (references, pages, slot)
    }

    #[test]
    fn the_policy_receives_hits_of_the_pages_that_it_knows() {
        let (mut references, pages, slot) = references(None);
        assert!(references.is_known(slot));
        references.hit(&pages, slot, NO_SLOT, 20);
        references.hit(&pages, slot, NO_SLOT, 15);
        assert_eq!(references.last_at(slot), 20, "times do not go back");
        assert_eq!(references.remove(slot, 7, true), 20);
        assert!(!references.is_known(slot));
        references.hit(&pages, slot, NO_SLOT, 30);
        assert_eq!((references.last_at(slot), references.policy.len()), (0, 0));
    }

    #[test]
    fn a_new_policy_knows_the_pages_of_the_old_one() {
        let (mut references, pages, slot) = references(None);
        references.rebuild_policy(PolicyKind::TwoQ.build(), 8, &pages);
        assert_eq!(references.policy.len(), 1);
        assert_eq!(references.last_at(slot), 10);
    }

    #[test]
    fn misses_and_hits_of_sampled_pages_are_collected() {
        let (mut references, pages, slot) = references(Some(Sampler::new(0, u64::MAX)));
        references.hit(&pages, slot, NO_SLOT, 20);
        references.count_hits(1);
        let samples = references.samples.expect("there is a sampler");
        assert_eq!((samples.counts.references, samples.counts.misses), (2, 1));
        let events: Vec<_> = samples.samples.iter().map(|it| (it.page, it.event)).collect();
        assert_eq!(events, [(7, CacheEvent::Miss), (7, CacheEvent::Hit)]);
    }

    #[test]
    fn the_policy_receives_read_ahead_once_until_its_second_use() {
        let mut references =
            References::new(PolicyKind::Lru.build(), Some(Sampler::new(0, u64::MAX)));
        let mut pages = Slab::new();
        let slot = pages.insert(Page::new(7));
        references.admit_ahead(slot, 7, 10);
        assert!(references.is_known(slot));
        references.hit(&pages, slot, NO_SLOT, 20);
        assert_eq!(references.last_at(slot), 10, "the first use is that of the read-ahead");
        references.hit(&pages, slot, NO_SLOT, 30);
        assert_eq!(references.last_at(slot), 30);
        let before = pages.insert(Page::new(6));
        references.admit(before, 6, 35);
        references.hit(&pages, slot, before, 40);
        let samples = references.samples.expect("there is a sampler");
        assert_eq!(samples.counts.first_uses, 1);
        let events: Vec<_> = samples.samples.iter().map(|it| it.event).collect();
        assert_eq!(
            events,
            [
                CacheEvent::ReadAhead,
                CacheEvent::FirstUse,
                CacheEvent::Hit,
                CacheEvent::Miss,
                CacheEvent::ReadAheadHit
            ]
        );
    }
}
