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
use super::fill::FillCause;
use crate::clock::Nanos;
use crate::completion::VolumeHandle;
use crate::counters::{Counter, Recorder};
use crate::frames::Frames;
use crate::hint::Hint;
use crate::page::Key;
use crate::queue::Queue;
use crate::readahead::ObservedRequest;
use crate::request::ReadRequest;
use crate::store::{StoreError, StoreOp};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use crate::volume::Volume;
use std::ops::Range;

/// Pages behind readers that each shard remembers; the ones that were passed first go first.
const DROP_BEHIND_MAX: usize = 4096;

impl<F: Frames> Cache<F> {
    /// Tells the detector of a read that did not only hit, and asks for what it says.
    pub(super) fn detect_stream(handle: &mut VolumeHandle<F>, read: &ReadRequest<F>, now: Nanos) {
        let VolumeHandle { volume, detector, .. } = handle;
        let hint = read.hint_in(volume);
        if matches!(hint, Hint::Random | Hint::NoBuffering) {
            return;
        }
        let paging = volume.paging();
        let Some(mut limits) = volume.ahead_limits(paging) else { return };
        if let Some(part) = &read.part {
            let pages = |byte: u64| paging.page_of(byte / BLOCK_BYTES_U64);
            (limits.first, limits.pages) = (pages(part.start), pages(part.end - 1) + 1);
        }
        let last = read.first_block() + read.parts.len() as u64 - 1;
        let observed = ObservedRequest {
            pages: paging.page_of(read.first_block())..paging.page_of(last) + 1,
            // What has been asked for and not begun is not lost.
            missed: read.missed && !volume.has_pending_windows.load(Ordering::Relaxed),
            wasted: volume.feedback.wasted_so_far(),
            sequential: hint == Hint::Sequential,
        };
        detector.set_page_blocks(paging.page_blocks);
        let advice = detector.note_request(&observed, &limits);
        if advice.abandoned > 0 {
            volume.feedback.unused(advice.abandoned);
        }
        // Of a stream that the cache found by itself, only what nobody asks for again meanwhile.
        let passed = match hint {
            Hint::Sequential => {
                detector.passed_pages(observed.pages).map(|pages| (pages, Nanos::MAX))
            }
            _ if volume.bypasses_scans() => advice.passed.map(|pages| (pages, now)),
            _ => None,
        };
        if advice.window.is_none() && passed.is_none() {
            return;
        }
        let mut queue = lock(&volume.queue);
        if volume.paging() != paging {
            // These pages are no more; whoever changed that has looked into the queue already.
            return;
        }
        if let Some(window) = advice.window {
            let forgotten = queue.pending_windows.push(window);
            handle.recorder.add(Counter::ReadAheadDropped, forgotten);
            volume.has_pending_windows.store(true, Ordering::Relaxed);
        }
        if let Some((passed, at)) = passed {
            let blocks = paging.blocks_of(passed.start).start..paging.blocks_of(passed.end - 1).end;
            queue.drop_behind.push((blocks, at));
            volume.has_drop_behind.store(true, Ordering::Release);
        }
        drop(queue);
        volume.notify.notify();
    }

    /// Takes the marks of read-ahead from the page that `block` lies in; whether it had one, so
    /// that this is its first touch.
    #[cold]
    pub(super) fn touch_ahead(&self, volume: &Volume<F>, block: u64) -> bool {
        let mut marked = false;
        for block in volume.paging().around(block) {
            // Without a lock: should another page have come to this frame meanwhile, its first
            // touch is taken for an ordinary hit, and nothing else.
            marked |= self.table.unmark_key(Key::new(volume.id, block));
        }
        if marked {
            volume.feedback.used();
        }
        marked
    }

    /// A client asks for a page, these blocks, that is being read ahead: from now on it is a fill
    /// like any other.
    pub(super) fn overtake_ahead(
        &self,
        volume: &Volume<F>,
        queue: &mut Queue<F>,
        whole: &Range<u64>,
    ) {
        queue.promote(whole);
        if !self.touch_ahead(volume, whole.start) {
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
            let mut shard = self.shard(self.table.shard(Key::new(volume.id, first)));
            let instance = shard.instance(volume.id);
            let page = instance.paging.page_of(first);
            let fill = instance.fills.get(&page).expect("a page that is being filled");
            if fill.ahead {
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
    pub(super) fn apply_drop_behind(&self, volume: &Volume<F>) {
        if !volume.has_drop_behind.swap(false, Ordering::AcqRel) {
            return;
        }
        let ranges = std::mem::take(&mut lock(&volume.queue).drop_behind);
        for (mut blocks, at) in ranges {
            while blocks.start < blocks.end {
                let mut shard = self.shard(self.table.shard(Key::new(volume.id, blocks.start)));
                let instance = shard.instance(volume.id);
                let page = instance.paging.page_of(blocks.start);
                let whole = instance.paging.blocks_of(page);
                // Of a page that has become larger than it was then, the rest is not passed.
                if whole.start >= blocks.start && whole.end <= blocks.end {
                    if instance.drop_behind.len() >= DROP_BEHIND_MAX {
                        instance.drop_behind.pop_front();
                    }
                    instance.drop_behind.push_back((page, at));
                }
                blocks.start = whole.end;
            }
        }
    }

    /// Begins to read what was asked for, as far as the store and the memory have room for it.
    pub(super) fn read_ahead(&self, volume: &Volume<F>, recorder: &Recorder, now: Nanos) {
        if !volume.has_pending_windows.load(Ordering::Relaxed) {
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
            let pages_max = Self::ahead_pages_max(volume, &queue);
            let Some(pages) = queue.pending_windows.take(pages_max) else {
                volume.has_pending_windows.store(false, Ordering::Relaxed);
                return;
            };
            drop(queue);
            let wanted = pages.end - pages.start;
            // Windows of pages of another size were forgotten when they became so.
            let paging = volume.paging();
            let first = paging.blocks_of(pages.start).start;
            let blocks = first..paging.blocks_of(pages.end - 1).end;
            let is_given_up = pages_max == 0
                || volume.is_stopping()
                || volume.is_frozen()
                || !self.ahead(volume, (recorder, now), blocks, true);
            if is_given_up {
                let mut queue = lock(&volume.queue);
                let dropped = wanted + queue.pending_windows.clear();
                volume.has_pending_windows.store(false, Ordering::Relaxed);
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
        left.min(u64::from(PAGE_BLOCKS_MAX)) / u64::from(volume.page_blocks())
    }

    /// Begins to read the pages that `blocks` touch, for which others may be evicted or not; false
    /// if there is no room for all of them.
    pub(super) fn ahead(
        &self,
        volume: &Volume<F>,
        (recorder, now): (&Recorder, Nanos),
        blocks: Range<u64>,
        may_evict: bool,
    ) -> bool {
        let blocks = blocks.start..blocks.end.min(volume.blocks);
        let mut from = blocks.start;
        while from < blocks.end {
            // The blocks of one region, which one lock guards.
            let region = u64::from(PAGE_BLOCKS_MAX);
            let to = (from / region * region + region).min(blocks.end);
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
        blocks: Range<u64>,
        may_evict: bool,
    ) -> bool {
        let around = |block| volume.paging().around(block);
        let blocks = around(blocks.start).start..around(blocks.end - 1).end;
        let wanted = self.count_absent(volume.id, &blocks);
        let mut spare = Vec::new();
        let no_session_waits = self.stalled.load(Ordering::Relaxed) == 0;
        let room = wanted == 0
            || no_session_waits
                && if may_evict {
                    self.reserve_with(volume, wanted, &mut spare, (recorder, now), false)
                } else {
                    self.pool.take(&self.frames, volume, wanted, &mut spare)
                };
        let mut shard = self.shard(self.table.shard(Key::new(volume.id, blocks.start)));
        let instance = shard.instance(volume.id);
        let mut queue = lock(&volume.queue);
        // Looked at under this lock: who closes a volume looks into the queue afterwards.
        let rests = volume.is_closed() || volume.is_regrouping() || volume.is_frozen();
        let paging = instance.paging;
        let pages = paging.pages_of(&blocks);
        for page in if rests { 0..0 } else { pages } {
            let whole = paging.blocks_of(page);
            let absent = self.count_absent(volume.id, &whole);
            let under_way = instance.fills.contains_key(&page) || queue.is_exclusive(&whole);
            if absent == 0 || under_way || absent > spare.len() {
                continue;
            }
            let cause = FillCause::Ahead;
            self.start_fill(instance, &mut queue, page, &mut spare, cause, now);
        }
        drop(queue);
        drop(shard);
        self.pool.give_back(volume, spare);
        room
    }
}
