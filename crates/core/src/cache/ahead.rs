//! Read-ahead on the cache's side: requests told to the lane's detector, and windows turned into
//! fills by whoever drives the store.
//!
//! A fill that nobody waits for has its operations in a queue of their own. Its blocks are marked
//! when they are published; the first touch takes the mark away. A client that needs a page which
//! is still coming makes it a fill like any other. What fails on the way is told to nobody: who
//! asks for the page will see for himself.
//!
//! Room is taken as for a miss, but for three things: nobody may be waiting for room, dirty pages
//! are not asked to be written for it, and where there is none the window is given up.

use super::Cache;
use crate::clock::Nanos;
use crate::counters::{Counter, Recorder};
use crate::frames::Frames;
use crate::hint::Hint;
use crate::lane::Lane;
use crate::page::Key;
use crate::queue::Queue;
use crate::readahead::Seen;
use crate::request::Assembly;
use crate::store::{StoreError, StoreOp};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use crate::volume::Volume;
use std::ops::Range;

/// Pages behind readers that each shard remembers; the ones that were passed first go first.
const BEHIND_MAX: usize = 4096;

impl<F: Frames> Cache<F> {
    /// Tells the detector of a read that did not only hit, and asks for what it says.
    pub(super) fn notice(lane: &mut Lane<F>, assembly: &Assembly<F>) {
        let Lane { volume, detector, .. } = lane;
        let hint = assembly.hint_in(volume);
        if matches!(hint, Hint::Random | Hint::NoBuffering) {
            return;
        }
        let Some(limits) = volume.ahead_limits() else { return };
        let last = assembly.first_block() + assembly.parts.len() as u64 - 1;
        let seen = Seen {
            pages: volume.page_of(assembly.first_block())..volume.page_of(last) + 1,
            // What has been asked for and not begun is not lost.
            missed: assembly.missed && !volume.has_wishes.load(Ordering::Relaxed),
            wasted: volume.feedback.wasted_so_far(),
            sequential: hint == Hint::Sequential,
        };
        detector.expect_pages(volume.page_blocks);
        let advice = detector.note(&seen, &limits);
        if advice.abandoned > 0 {
            volume.feedback.unused(advice.abandoned);
        }
        let behind = if hint == Hint::Sequential { detector.passed(seen.pages) } else { None };
        if advice.window.is_none() && behind.is_none() {
            return;
        }
        let mut queue = lock(&volume.queue);
        if let Some(window) = advice.window {
            let forgotten = queue.wishes.push(window);
            lane.recorder.add(Counter::ReadAheadDropped, forgotten);
            volume.has_wishes.store(true, Ordering::Relaxed);
        }
        if let Some(behind) = behind {
            queue.behind.push(behind);
            volume.has_behind.store(true, Ordering::Release);
        }
        drop(queue);
        volume.notify.notify();
    }

    /// Takes the marks of read-ahead from the page that `block` lies in; whether it had one, so
    /// that this is its first touch.
    #[cold]
    pub(super) fn touch_ahead(&self, volume: &Volume<F>, block: u64) -> bool {
        let mut marked = false;
        for block in volume.blocks_of(volume.page_of(block)) {
            // Without a lock: should another page have come to this frame meanwhile, its first
            // touch is taken for an ordinary hit, and nothing else.
            marked |= self.table.unmark(Key::new(volume.id, block));
        }
        if marked {
            volume.feedback.used();
        }
        marked
    }

    /// A client asks for a page that is being read ahead: from now on it is a fill like any other.
    pub(super) fn overtake_ahead(&self, volume: &Volume<F>, queue: &mut Queue<F>, page: u64) {
        queue.promote(&(page..page + 1));
        if !self.touch_ahead(volume, volume.blocks_of(page).start) {
            volume.feedback.used();
        }
    }

    /// Gives up those of `ops`, parts of a joined read that failed, that nobody waits for; the
    /// others.
    pub(super) fn give_up_ahead(
        &self,
        volume: &Volume<F>,
        recorder: &Recorder,
        now: Nanos,
        ops: Vec<StoreOp<F>>,
        error: &StoreError,
    ) -> Vec<StoreOp<F>> {
        let mut others = Vec::new();
        for op in ops {
            let first = op.offset / BLOCK_BYTES_U64;
            let page = volume.page_of(first);
            let mut shard = self.shard(self.table.shard(Key::new(volume.id, first)));
            let instance = shard.instance(volume.id);
            let fill = instance.fills.get(&page).expect("a page that is being filled");
            if fill.waiters.is_empty() {
                lock(&volume.queue).take_context(op.tag);
                let error = Some(error.clone());
                self.filled_in(instance, recorder, now, (op, page), error);
            } else {
                others.push(op);
            }
        }
        others
    }

    /// Tells the shards which pages a reader in order has passed.
    pub(super) fn drop_behind(&self, volume: &Volume<F>) {
        if !volume.has_behind.swap(false, Ordering::AcqRel) {
            return;
        }
        let ranges = std::mem::take(&mut lock(&volume.queue).behind);
        for page in ranges.into_iter().flatten() {
            let block = volume.blocks_of(page).start;
            let mut shard = self.shard(self.table.shard(Key::new(volume.id, block)));
            let behind = &mut shard.instance(volume.id).behind;
            if behind.len() >= BEHIND_MAX {
                behind.pop_front();
            }
            behind.push_back(page);
        }
    }

    /// Begins to read what was asked for, as far as the store and the memory have room for it.
    pub(super) fn read_ahead(&self, volume: &Volume<F>, recorder: &Recorder, now: Nanos) {
        if !volume.has_wishes.load(Ordering::Relaxed) {
            return;
        }
        let depth = usize::try_from(volume.tunables.get(Tunable::ReadAheadDepth)).expect("few");
        // Operations that wait for the store hold frames: no more than it takes at once.
        let begun = {
            let queue = lock(&volume.queue);
            if queue.ahead.is_empty() { queue.ahead_in_flight() } else { depth }
        };
        for _ in begun..depth {
            let mut queue = lock(&volume.queue);
            let most = Self::ahead_pages_max(volume, &queue);
            let Some(pages) = queue.wishes.take(most) else {
                volume.has_wishes.store(false, Ordering::Relaxed);
                return;
            };
            drop(queue);
            let wanted = pages.end - pages.start;
            let given_up = most == 0
                || volume.is_stopping()
                || !self.ahead(volume, (recorder, now), pages, true);
            if given_up {
                let mut queue = lock(&volume.queue);
                let dropped = wanted + queue.wishes.clear();
                volume.has_wishes.store(false, Ordering::Relaxed);
                drop(queue);
                recorder.add(Counter::ReadAheadDropped, dropped);
                return;
            }
        }
    }

    /// Pages that may be read ahead with one operation now: within the volume's share of memory
    /// for what is on its way.
    pub(super) fn ahead_pages_max(volume: &Volume<F>, queue: &Queue<F>) -> u64 {
        let share = volume.tunables.share(Tunable::ReadAheadShare, volume.capacity());
        let left = share.saturating_sub(queue.ahead_frames as u64);
        left.min(u64::from(PAGE_BLOCKS_MAX)) / u64::from(volume.page_blocks)
    }

    /// Begins to read `pages`, neighbours, for which others may be evicted or not; false if there is
    /// no room for all of them.
    pub(super) fn ahead(
        &self,
        volume: &Volume<F>,
        (recorder, now): (&Recorder, Nanos),
        pages: Range<u64>,
        may_evict: bool,
    ) -> bool {
        let pages = pages.start..pages.end.min(volume.page_of(volume.blocks - 1) + 1);
        let mut from = pages.start;
        while from < pages.end {
            // The pages of one region, which one lock guards.
            let region = u64::from(PAGE_BLOCKS_MAX / volume.page_blocks);
            let to = (from / region * region + region).min(pages.end);
            if !self.ahead_in_region(volume, (recorder, now), from..to, may_evict) {
                return false;
            }
            from = to;
        }
        true
    }

    fn ahead_in_region(
        &self,
        volume: &Volume<F>,
        (recorder, now): (&Recorder, Nanos),
        pages: Range<u64>,
        may_evict: bool,
    ) -> bool {
        let blocks = volume.blocks_of(pages.start).start..volume.blocks_of(pages.end - 1).end;
        let wanted = self.count_absent(volume.id, &blocks);
        let mut spare = Vec::new();
        let nobody_waits = self.stalled.load(Ordering::Relaxed) == 0;
        let room = wanted == 0
            || nobody_waits
                && if may_evict {
                    self.reserve_clean(volume, wanted, &mut spare, recorder, now)
                } else {
                    self.pool.take(&self.frames, volume, wanted, &mut spare)
                };
        let mut shard = self.shard(self.table.shard(Key::new(volume.id, blocks.start)));
        let instance = shard.instance(volume.id);
        let mut queue = lock(&volume.queue);
        // Looked at under this lock: who closes a volume looks into the queue afterwards.
        let pages = if volume.is_closed() { 0..0 } else { pages };
        for page in pages {
            let whole = volume.blocks_of(page);
            let absent = self.count_absent(volume.id, &whole);
            let under_way = instance.fills.contains_key(&page) || queue.is_exclusive(&whole);
            if absent == 0 || under_way || absent > spare.len() {
                continue;
            }
            self.start_fill(instance, &mut queue, page, &mut spare, None, now);
        }
        drop(queue);
        drop(shard);
        self.pool.give_back(volume, spare);
        room
    }
}
