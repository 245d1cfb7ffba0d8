//! Writeback of dirty pages to the store.
//!
//! A writeback writes all dirty blocks of a page; a page has at most one in progress. Its frames
//! are pinned, so the store gets their contents at its start. Dirty neighbors inside a 1 MiB
//! region are joined into one operation.

use crate::cache::Cache;
use crate::clock::Nanos;
use crate::counters::{Counter, Recorder};
use crate::frames::Frames;
use crate::page::{BlockKey, FrameState};
use crate::policy::Slot;
use crate::queue::{Context, Queue, WriteCause};
use crate::shard::Instance;
use crate::store::{Buffer, Segment, StoreOpKind};
use crate::sync::{Arc, lock};
use crate::tunables::Tunable;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, SECTOR_BYTES, SECTORS_PER_BLOCK};
use crate::volume::{Call, Volume};
use std::ops::Range;

/// A contiguous range of bytes and the frames that hold them.
struct Run<F: Frames> {
    bytes: Range<u64>,
    segments: Vec<Segment<F>>,
    pages: Vec<(u64, Slot)>,
    epoch: u64,
    blocks: u64,
}

/// The write operations of one or more page writebacks, all in one region.
pub(in crate::cache) struct WritebackOps<F: Frames> {
    runs: Vec<Run<F>>,
    cause: WriteCause,
    fua: bool,
}

impl<F: Frames> WritebackOps<F> {
    pub(in crate::cache) fn new(cause: WriteCause, fua: bool) -> Self {
        WritebackOps { runs: Vec::new(), cause, fua }
    }

    /// Adds bytes of a page; the caller adds them in order of the volume.
    fn add(&mut self, bytes: Range<u64>, segment: Segment<F>, page: (u64, Slot), epoch: u64) {
        match self.runs.last_mut() {
            Some(run) if run.bytes.end == bytes.start => {
                // The bytes are of another block, since a clean sector separates two ranges of the
                // same block.
                run.blocks += 1;
                run.bytes.end = bytes.end;
                run.segments.push(segment);
                run.epoch = run.epoch.min(epoch);
                if run.pages.last() != Some(&page) {
                    run.pages.push(page);
                }
            }
            _ => {
                let (segments, pages) = (vec![segment], vec![page]);
                self.runs.push(Run { bytes, segments, pages, epoch, blocks: 1 });
            }
        }
    }

    /// Queues the operations. The caller holds the lock of the shard.
    pub(in crate::cache) fn finish(
        self,
        instance: &mut Instance<F>,
        queue: &mut Queue<F>,
        recorder: &Recorder,
        now: Nanos,
    ) {
        let (writes, blocks) = match self.cause {
            WriteCause::Lazy => (Counter::LazyWrites, Counter::LazyWriteBlocks),
            WriteCause::Forced => (Counter::ForcedWrites, Counter::ForcedWriteBlocks),
            WriteCause::Steal => (Counter::StealWrites, Counter::StealWriteBlocks),
        };
        for run in self.runs {
            recorder.add(writes, 1);
            recorder.add(blocks, run.blocks);
            for &(_, slot) in &run.pages {
                instance.pages.get_mut(slot).ops += 1;
            }
            let (pages, epoch) = (run.pages, run.epoch);
            let context = Context::WriteBack { pages, paging: instance.paging, epoch };
            let kind = StoreOpKind::Write { fua: self.fua };
            let op = queue.operation(kind, run.bytes, run.segments, context, now);
            match self.cause {
                WriteCause::Lazy => queue.background.push_back(op),
                WriteCause::Forced | WriteCause::Steal => queue.forced.push_back(op),
            }
        }
    }
}

impl<F: Frames> Cache<F> {
    /// Starts the writeback of a page that has dirty blocks and is not under writeback.
    pub(super) fn start_page_writeback(
        &self,
        instance: &mut Instance<F>,
        slot: Slot,
        writeback: &mut WritebackOps<F>,
    ) {
        instance.dirty.remove(&mut instance.pages, slot);
        let volume = Arc::clone(&instance.volume);
        let page = instance.pages.get_mut(slot);
        assert!(page.can_start_writeback(), "{page:?} cannot be written now");
        let (number, epoch) = (page.number, page.dirty_epoch);
        let blocks = instance.paging.blocks_of(number);
        volume.write_order.with_any(|groups| groups.start_write(&blocks));
        let mut count = 0;
        for block in instance.paging.blocks_of(number) {
            let Some(frame) = self.table.find(BlockKey::new(volume.id, block)) else { continue };
            if self.table.state(frame).dirty == 0 {
                continue;
            }
            let pin = self.pin_published(frame);
            // The pin blocks writers from here on. A writer may have changed the frame before.
            let state = self.table.state(frame);
            let mask = state.dirty;
            self.table.set_state(frame, FrameState { dirty: 0, writing: mask, ..state });
            self.add_sectors(&volume, block, mask, pin, |bytes, segment| {
                writeback.add(bytes, segment, (number, slot), epoch);
            });
            count += 1;
        }
        let page = instance.pages.get_mut(slot);
        assert_eq!(count, page.dirty, "dirty blocks of {page:?}");
        page.writing = count;
        page.dirty = 0;
        page.writeback_seq = page.writeback_seq.wrapping_add(1);
        instance.pages_under_writeback += 1;
        // Writers that wait for this writeback may need it stable.
        let waiters = instance.syncs.get(&slot);
        writeback.fua |= waiters.is_some_and(|all| all.iter().any(|waiter| waiter.fua));
        volume.dirty.start_write(count.into());
    }

    /// Splits the dirty sectors of a block into ranges of bytes, with a pin for each.
    fn add_sectors(
        &self,
        volume: &Volume<F>,
        block: u64,
        mask: u8,
        pin: F::Pin,
        mut add: impl FnMut(Range<u64>, Segment<F>),
    ) {
        let frame = self.frames.pinned(&pin);
        let mut pins = vec![pin];
        let end = volume.bytes_of(block) as usize;
        let is_dirty = |sector: &usize| mask & (1 << sector) != 0;
        let mut sector = 0;
        while let Some(first) = (sector..SECTORS_PER_BLOCK).find(is_dirty) {
            let last = (first..SECTORS_PER_BLOCK).find(|s| !is_dirty(s));
            sector = last.unwrap_or(SECTORS_PER_BLOCK);
            let [from, to] = [first, sector].map(|s| (s * SECTOR_BYTES).min(end));
            if from == to {
                break;
            }
            let pin = pins.pop().unwrap_or_else(|| self.pin_published(frame));
            let start = block * BLOCK_BYTES_U64;
            let [offset, len] = [from, to - from].map(|n| u32::try_from(n).expect("a block"));
            let segment = Segment { buffer: Buffer::Pinned(pin), offset, len };
            add(start + from as u64..start + to as u64, segment);
        }
        for pin in pins {
            self.frames.unpin(pin);
        }
    }

    /// Starts the writeback around each of `blocks`, up to the depth of forced writes.
    pub(in crate::cache) fn write_back_each(
        &self,
        call: &Call<'_, F>,
        blocks: impl IntoIterator<Item = u64>,
        cause: WriteCause,
    ) {
        let depth = call.volume.config.tunables.count(Tunable::ForcedDepth);
        for block in blocks {
            if lock(&call.volume.queue).writes_started() >= depth {
                return;
            }
            self.write_back_around(call, block, cause);
        }
    }

    /// Starts the writeback of the page of `block` and of the adjacent dirty pages in its region.
    /// Returns false if the page is not resident, not dirty, or cannot be written now.
    pub(in crate::cache) fn write_back_around(
        &self,
        call: &Call<'_, F>,
        block: u64,
        cause: WriteCause,
    ) -> bool {
        let Call { volume, recorder, now } = *call;
        let mut shard = self.shard_of(volume, block);
        let instance = shard.instance(volume.id);
        let paging = instance.paging;
        let page = paging.page_of(block);
        let region_pages = u64::from(PAGE_BLOCKS_MAX / paging.page_blocks);
        let region = page / region_pages * region_pages..(page / region_pages + 1) * region_pages;
        let mut queue = lock(&volume.queue);
        if volume.write_order.expedite_if_held(&paging.blocks_of(page)) {
            return false;
        }
        let startable = |instance: &Instance<F>, queue: &Queue<F>, page: u64| {
            instance.find(&self.table, page).filter(|&slot| {
                let blocks = paging.blocks_of(page);
                instance.pages.get(slot).can_start_writeback()
                    && !queue.is_exclusive(&blocks)
                    && !volume.write_order.is_held(&blocks)
            })
        };
        if startable(instance, &queue, page).is_none() {
            return false;
        }
        let mut first = page;
        while first > region.start && startable(instance, &queue, first - 1).is_some() {
            first -= 1;
        }
        let mut writeback = WritebackOps::new(cause, false);
        for page in first..region.end {
            let Some(slot) = startable(instance, &queue, page) else { break };
            self.start_page_writeback(instance, slot, &mut writeback);
        }
        writeback.finish(instance, &mut queue, recorder, now);
        true
    }
}
