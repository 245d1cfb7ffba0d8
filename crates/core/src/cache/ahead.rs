//! Read-ahead in the cache: requests are passed to the detector of their handle or file, and the
//! driver of the store turns windows into fills.
//!
//! Read-ahead operations have their own queue. Their blocks get a flag when they are published; the
//! first touch clears it. A client that needs a page that is being read ahead turns it into an
//! ordinary fill. A failed read-ahead is not reported: a client that needs the page reads it again.
//!
//! Read-ahead takes frames like a miss, with three exceptions: it takes none while an operation is
//! stalled, it does not request the writeback of dirty pages, and without frames the window is
//! dropped.

use super::Cache;
use super::fill::FillCause;
use crate::clock::Nanos;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::hint::Hint;
use crate::page::BlockKey;
use crate::queue::Queue;
use crate::read_write::ReadRequest;
use crate::readahead::{ObservedRequest, StreamDetector};
use crate::store::{StoreError, StoreOp};
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, regions};
use crate::volume::{Call, Volume, VolumeHandle};
use std::ops::Range;

/// Maximum number of pages behind readers that each shard remembers; the pages that were passed
/// first are evicted first.
const DROP_BEHIND_MAX: usize = 4096;

impl<F: Frames> Cache<F> {
    /// Passes a read that was not only hits to the detector, and queues the resulting window.
    pub(super) fn detect_stream(handle: &mut VolumeHandle<F>, read: &ReadRequest<F>, now: Nanos) {
        let VolumeHandle { volume, detector, .. } = handle;
        let hint = read.hint.unwrap_or_else(|| volume.config.hint.get());
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
            // A window that is pending was not evicted.
            missed: read.missed && !volume.ahead.has_windows(),
            wasted: volume.ahead.feedback.wasted_so_far(),
            sequential: hint == Hint::Sequential,
        };
        let detect = |detector: &mut StreamDetector| {
            detector.set_page_blocks(paging.page_blocks);
            detector.note_request(&observed, &limits)
        };
        let advice = match &read.part {
            Some(file) => volume.ahead.files.with(file.start, detect),
            None => detect(detector),
        };
        // Of a detected stream, pages that are referenced again in the meantime stay.
        let passed = match hint {
            Hint::Sequential => advice.passed.map(|pages| (pages, Nanos::MAX)),
            _ if volume.bypasses_scans() => advice.passed.map(|pages| (pages, now)),
            _ => None,
        };
        if advice.abandoned > 0 {
            volume.ahead.feedback.unused(advice.abandoned);
        }
        if advice.window.is_none() && passed.is_none() {
            return;
        }
        let mut queue = lock(&volume.queue);
        if volume.paging() != paging {
            // These pages no longer exist; the thread that changed the page size has already
            // examined the queue.
            return;
        }
        if let Some(window) = advice.window {
            let forgotten = queue.pending_windows.push(window);
            handle.recorder.add(Counter::ReadAheadDropped, forgotten);
            volume.ahead.set_has_windows(true);
        }
        if let Some((passed, at)) = passed {
            let blocks = paging.blocks_of(passed.start).start..paging.blocks_of(passed.end - 1).end;
            queue.drop_behind.push((blocks, at));
            volume.ahead.note_passed();
        }
        drop(queue);
        volume.waker.wake();
    }

    /// Clears the read-ahead flags of the page of `block`. Returns true if one was set, so that
    /// this is the first touch.
    #[cold]
    pub(super) fn touch_ahead(&self, volume: &Volume<F>, block: u64) -> bool {
        let mut marked = false;
        for block in volume.paging().around(block) {
            // Without a lock: if the frame has got another page in the meantime, the only effect is
            // that the first touch of that page counts as an ordinary hit.
            marked |= self.table.unmark_key(BlockKey::new(volume.id, block));
        }
        if marked {
            volume.ahead.feedback.used();
        }
        marked
    }

    /// Turns the read-ahead of a page, whose blocks are `whole`, into an ordinary fill: a client
    /// needs the page.
    pub(super) fn overtake_ahead(
        &self,
        volume: &Volume<F>,
        queue: &mut Queue<F>,
        whole: &Range<u64>,
    ) {
        queue.promote(whole);
        if !self.touch_ahead(volume, whole.start) {
            volume.ahead.feedback.used();
        }
    }

    /// Drops those of `ops`, parts of a failed joined read, for which no client waits. Returns the
    /// others.
    pub(super) fn give_up_ahead(
        &self,
        call: &Call<'_, F>,
        ops: Vec<StoreOp<F>>,
        error: &StoreError,
    ) -> Vec<StoreOp<F>> {
        let Call { volume, .. } = *call;
        let mut others = Vec::new();
        for op in ops {
            let first = op.offset / BLOCK_BYTES_U64;
            let mut shard = self.shard_of(volume, first);
            let instance = shard.instance(volume.id);
            let page = instance.paging.page_of(first);
            let fill = instance.fills.get(&page).expect("a page that is being filled");
            if fill.ahead {
                lock(&volume.queue).take_context(op.tag);
                let error = Some(error.clone());
                self.filled_in(call, instance, (op, page), error);
            } else {
                others.push(op);
            }
        }
        others
    }

    /// Passes the pages that sequential readers have passed to the shards.
    pub(super) fn apply_drop_behind(&self, volume: &Volume<F>) {
        if !volume.ahead.take_passed() {
            return;
        }
        let ranges = std::mem::take(&mut lock(&volume.queue).drop_behind);
        for (mut blocks, at) in ranges {
            while blocks.start < blocks.end {
                let mut shard = self.shard_of(volume, blocks.start);
                let instance = shard.instance(volume.id);
                let page = instance.paging.page_of(blocks.start);
                let whole = instance.paging.blocks_of(page);
                // If the page size has grown since, a page that was passed only in part stays.
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

    /// Starts to read pending windows, as far as the store and the memory allow.
    pub(super) fn read_ahead(&self, call: &Call<'_, F>) {
        let Call { volume, recorder, .. } = *call;
        if !volume.ahead.has_windows() {
            return;
        }
        let depth = volume.config.tunables.count(Tunable::ReadAheadDepth);
        // Queued operations hold frames, so there are no more of them than the store takes at once.
        let in_progress = {
            let queue = lock(&volume.queue);
            if queue.ahead.is_empty() { queue.ahead_in_flight() } else { depth }
        };
        for _ in in_progress..depth {
            let mut queue = lock(&volume.queue);
            let pages_max = Self::ahead_pages_max(volume, &queue);
            let Some(pages) = queue.pending_windows.take(pages_max) else {
                volume.ahead.set_has_windows(false);
                return;
            };
            drop(queue);
            let wanted = pages.end - pages.start;
            // A change of the page size drops all pending windows.
            let paging = volume.paging();
            let first = paging.blocks_of(pages.start).start;
            let blocks = first..paging.blocks_of(pages.end - 1).end;
            let is_given_up = pages_max == 0
                || volume.lifecycle.is_stopping()
                || volume.is_frozen()
                || !self.ahead(call, blocks, true);
            if is_given_up {
                let mut queue = lock(&volume.queue);
                let dropped = wanted + queue.pending_windows.clear();
                volume.ahead.set_has_windows(false);
                drop(queue);
                recorder.add(Counter::ReadAheadDropped, dropped);
                return;
            }
        }
    }

    /// Returns the maximum number of pages that one operation may read ahead now, within the
    /// volume's share of memory for read-ahead in progress.
    pub(super) fn ahead_pages_max(volume: &Volume<F>, queue: &Queue<F>) -> u64 {
        let share = volume.config.share_of_capacity(Tunable::ReadAheadShare);
        let left = share.saturating_sub(queue.ahead_frames as u64);
        left.min(u64::from(PAGE_BLOCKS_MAX)) / u64::from(volume.page_blocks())
    }

    /// Starts to read the pages of `blocks`; `may_evict` is true if other pages may be evicted for
    /// them. Returns false if there are not enough frames.
    pub(super) fn ahead(&self, call: &Call<'_, F>, blocks: Range<u64>, may_evict: bool) -> bool {
        let Call { volume, .. } = *call;
        let blocks = blocks.start..blocks.end.min(volume.blocks);
        regions(blocks).all(|blocks| self.ahead_in_region(call, blocks, may_evict))
    }

    fn ahead_in_region(&self, call: &Call<'_, F>, blocks: Range<u64>, may_evict: bool) -> bool {
        let Call { volume, now, .. } = *call;
        let around = |block| volume.paging().around(block);
        let blocks = around(blocks.start).start..around(blocks.end - 1).end;
        let wanted = self.count_absent(volume.id, &blocks);
        let mut spare = Vec::new();
        let no_session_waits = !self.stalls.is_any();
        let has_frames = wanted == 0
            || no_session_waits
                && if may_evict {
                    self.reserve_with(call, wanted, &mut spare, false)
                } else {
                    self.pool.take(&self.frames, volume, wanted, &mut spare)
                };
        let mut shard = self.shard_of(volume, blocks.start);
        let instance = shard.instance(volume.id);
        let mut queue = lock(&volume.queue);
        // Checked under this lock: a thread that closes a volume inspects the queue afterwards.
        let is_paused =
            volume.lifecycle.is_closed() || volume.is_regrouping() || volume.is_frozen();
        let paging = instance.paging;
        let pages = paging.pages_of(&blocks);
        for page in if is_paused { 0..0 } else { pages } {
            let whole = paging.blocks_of(page);
            let absent = self.count_absent(volume.id, &whole);
            let is_in_progress = instance.fills.contains_key(&page) || queue.is_exclusive(&whole);
            if absent == 0 || is_in_progress || absent > spare.len() {
                continue;
            }
            let cause = FillCause::Ahead;
            self.start_fill(instance, &mut queue, page, &mut spare, cause, now);
        }
        drop(queue);
        drop(shard);
        self.pool.give_back(volume, spare);
        has_frames
    }
}
