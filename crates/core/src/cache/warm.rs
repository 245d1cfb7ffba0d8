//! Warm restart: the read-back of a list of blocks ([`Cache::residents`]) into another cache.
//!
//! Only block numbers are kept; data always comes from the store, so a wrong list costs reads and
//! nothing else. The list is read back with read-ahead operations, and only into free frames, in
//! two ways:
//!
//! - With misses of clients: listed neighbors of a missed page are included in the same read of
//!   the store.
//! - In order, hottest first, when there are no other reads and no client waits for the store.
//!   While clients are active, this is one small read at a time, since the next request may wait
//!   for it.
//!
//! So a store that clients keep busy performs no more reads than without a list.

use super::Cache;
use super::fill::{FillCause, WarmRange, range_len};
use crate::clock::Nanos;
use crate::frames::{FrameId, Frames};
use crate::input::Input;
use crate::queue::{FillWaiter, Queue};
use crate::shard::Instance;
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::units::PAGE_BLOCKS_MAX;
use crate::volume::{Call, Volume};
use std::ops::Range;

/// Blocks of a read while clients are active.
const BUSY_READ_BLOCKS: u64 = 16;
/// Maximum number of takes from a list per poll, if the blocks are already resident.
const TAKES_PER_POLL: usize = 64;
/// Size and alignment in blocks of the window around a missed page from which neighbors are read:
/// small enough that a disk needs hardly more time than for the page alone.
const NEIGHBOR_BLOCKS: u64 = 64;

impl<F: Frames> Cache<F> {
    /// Requests reads of `blocks` in this order when there are no other reads, as long as there are
    /// free frames. Ignores blocks beyond the end of the volume.
    pub fn warm(&self, volume: &Volume<F>, blocks: impl IntoIterator<Item = Range<u64>>) {
        let inside = |range: Range<u64>| range.start..range.end.min(volume.blocks);
        let ranges = blocks.into_iter().map(inside).filter(|range| range.start < range.end);
        let ranges: Vec<_> = ranges.collect();
        let _logged = self.log.add(|| Input::Warm { volume: volume.id, blocks: ranges.clone() });
        let mut queue = lock(&volume.queue);
        queue.warm.extend(ranges.into_iter());
        volume.ahead.set_has_warm(true);
        drop(queue);
        volume.waker.wake();
    }

    /// Returns true if blocks of [`Cache::warm`] are still to be read.
    #[must_use]
    pub fn is_warming(&self, volume: &Volume<F>) -> bool {
        volume.ahead.has_warm()
    }

    /// Searches the warm-restart list around `block`, which a client misses, and takes frames for
    /// the listed blocks if enough are free.
    pub(super) fn reserve_warm_range(
        &self,
        volume: &Volume<F>,
        block: u64,
        warm_range: &mut WarmRange,
    ) {
        if !volume.ahead.has_warm() || !warm_range.frames.is_empty() {
            return;
        }
        let Some(listed) = lock(&volume.queue).warm.around(block) else { return };
        let window = block / NEIGHBOR_BLOCKS * NEIGHBOR_BLOCKS;
        warm_range.blocks = listed.start.max(window)..listed.end.min(window + NEIGHBOR_BLOCKS);
        let wanted = self.count_absent(volume.id, &warm_range.blocks);
        if !self.pool.take(&self.frames, volume, wanted, &mut warm_range.frames) {
            self.pool.give_back(volume, warm_range.frames.drain(..));
        }
    }

    /// Starts to fill a page that a client waits for, and its listed neighbors.
    pub(super) fn fill_around(
        &self,
        instance: &mut Instance<F>,
        queue: &mut Queue<F>,
        page: u64,
        (spare, warm_range): (&mut Vec<FrameId>, &mut WarmRange),
        waiter: FillWaiter<F>,
        now: Nanos,
    ) {
        let pages = self.neighbors_to_fill(instance, queue, page, warm_range);
        let spare_along = &mut warm_range.frames;
        // In order of position, so that they are joined into one read.
        for before in pages.start..page {
            self.start_fill(instance, queue, before, spare_along, FillCause::WarmNeighbor, now);
        }
        self.start_fill(instance, queue, page, spare, FillCause::Client(waiter), now);
        for after in page + 1..pages.end {
            self.start_fill(instance, queue, after, spare_along, FillCause::WarmNeighbor, now);
        }
    }

    /// Returns the pages around `page` to read with it: adjacent ones without resident blocks and
    /// without a fill, as far as there are frames for them.
    fn neighbors_to_fill(
        &self,
        instance: &Instance<F>,
        queue: &Queue<F>,
        page: u64,
        warm_range: &WarmRange,
    ) -> Range<u64> {
        let paging = instance.paging;
        let mut frames_left = warm_range.frames.len();
        let mut can_fill = |page: u64| {
            let blocks = paging.blocks_of(page);
            let is_inside =
                blocks.start >= warm_range.blocks.start && blocks.end <= warm_range.blocks.end;
            let wanted = range_len(&blocks);
            let can = is_inside
                && wanted <= frames_left
                && self.count_absent(instance.volume.id, &blocks) == wanted
                && !instance.fills.contains_key(&page)
                && !queue.is_exclusive(&blocks);
            frames_left -= if can { wanted } else { 0 };
            can
        };
        let before = (0..page).rev().take_while(|&page| can_fill(page)).count();
        let end = paging.page_of(warm_range.blocks.end.max(1) - 1) + 1;
        let after = (page + 1..end.max(page + 1)).take_while(|&page| can_fill(page)).count();
        page - before as u64..page + 1 + after as u64
    }

    /// Starts reads of the warm-restart list if there are no other reads. Returns true if the
    /// caller should call it again immediately.
    pub(super) fn read_warm(&self, call: &Call<'_, F>) -> bool {
        let Call { volume, now, .. } = *call;
        if !volume.ahead.has_warm() || volume.ahead.has_windows() || volume.is_frozen() {
            return false;
        }
        let (started, depth, blocks) = {
            let queue = lock(&volume.queue);
            if !queue.ahead.is_empty() || queue.has_waiting_reads() {
                return false;
            }
            let last = volume.last_request();
            let is_idle =
                last == 0 || now >= last + volume.config.tunables.nanos(Tunable::IdleDelay);
            let (depth, blocks) = if is_idle {
                (volume.config.tunables.get(Tunable::ReadAheadDepth), u64::from(PAGE_BLOCKS_MAX))
            } else {
                (1, BUSY_READ_BLOCKS)
            };
            (queue.ahead_in_flight() as u64, depth, blocks)
        };
        let mut started = started;
        for _ in 0..TAKES_PER_POLL {
            if started >= depth {
                return false;
            }
            let mut queue = lock(&volume.queue);
            let page_blocks = u64::from(volume.page_blocks());
            let pages_max = Self::ahead_pages_max(volume, &queue) * page_blocks;
            let pages_max = pages_max.min(blocks).max(page_blocks);
            let queued = queue.ahead.len();
            let Some(next) = queue.warm.take(pages_max) else {
                volume.ahead.set_has_warm(false);
                return false;
            };
            drop(queue);
            let is_continued = !volume.lifecycle.is_stopping() && self.ahead(call, next, false);
            let mut queue = lock(&volume.queue);
            if !is_continued {
                queue.warm.clear();
                volume.ahead.set_has_warm(false);
                return false;
            }
            // Resident blocks need no read.
            started += u64::from(queue.ahead.len() > queued);
        }
        true
    }
}
