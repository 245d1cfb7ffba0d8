//! Writes that wait for the writeback of their pages: write-through, write-around and FUA.

use super::write::WritebackOps;
use crate::cache::{Cache, read};
use crate::clock::Nanos;
use crate::completion::Completion;
use crate::frames::Frames;
use crate::page::BlockKey;
use crate::policy::Slot;
use crate::queue::{Queue, WriteCause};
use crate::read_write::{Status, WriteRequest};
use crate::shard::{Instance, SyncWaiter};
use crate::store::StoreError;
use crate::sync::{Arc, lock};
use crate::units::{blocks_touched, regions};
use crate::volume::{Volume, VolumeHandle};
use std::ops::Range;

impl<F: Frames> Cache<F> {
    /// Submits a write whose bytes are in the cache to the store; `write` waits for each of its
    /// pages.
    pub(in crate::cache) fn sync(
        &self,
        handle: &VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
        fua: bool,
    ) {
        let volume = &*handle.volume;
        let bytes = write.offset..write.offset + u64::from(write.len);
        for blocks in regions(blocks_touched(&bytes)) {
            let mut shard = self.shard_of(volume, blocks.start);
            let instance = shard.instance(volume.id);
            let pages = instance.paging.pages_of(&blocks);
            let mut queue = lock(&volume.queue);
            let mut writeback = WritebackOps::new(WriteCause::Forced, fua);
            for page in pages {
                self.sync_page(instance, &queue, page, &mut writeback, (handle, write, fua));
            }
            writeback.finish(instance, &mut queue, &handle.recorder, now);
        }
        volume.waker.wake();
    }

    fn sync_page(
        &self,
        instance: &mut Instance<F>,
        queue: &Queue<F>,
        page: u64,
        writeback: &mut WritebackOps<F>,
        (handle, write, fua): (&VolumeHandle<F>, &mut WriteRequest, bool),
    ) {
        let blocks = instance.paging.blocks_of(page);
        let Some(slot) = instance.find(&self.table, page) else {
            // The page was written and evicted already.
            write.needs_flush |= fua;
            return;
        };
        let page = instance.pages.get(slot);
        if page.dirty == 0 && page.writing == 0 {
            write.needs_flush |= fua;
            return;
        }
        // The data that an earlier writeback has taken may not be stable, whatever the next one
        // does.
        write.needs_flush |= fua && !self.is_all_dirty(&instance.volume, &blocks, write);
        let blocked =
            queue.is_exclusive(&blocks) || instance.volume.write_order.expedite_if_held(&blocks);
        let writeback_seq =
            if page.dirty == 0 { page.writeback_seq } else { page.writeback_seq.wrapping_add(1) };
        if page.can_start_writeback() && !blocked {
            self.start_page_writeback(instance, slot, writeback);
        }
        let (completions, token) = (Arc::clone(&handle.completions), write.token);
        instance.syncs.entry(slot).or_default().push(SyncWaiter {
            completions,
            token,
            writeback_seq,
            fua,
        });
        write.waiting += 1;
    }

    /// Returns true if every sector of the write in `blocks` is dirty, so that the next writeback
    /// contains all of its data.
    fn is_all_dirty(&self, volume: &Volume<F>, blocks: &Range<u64>, write: &WriteRequest) -> bool {
        let bytes = write.offset..write.offset + u64::from(write.len);
        let touched = blocks_touched(&bytes);
        (blocks.start.max(touched.start)..blocks.end.min(touched.end)).all(|block| {
            let touched = read::touched_sectors(block, &bytes);
            let frame = self.table.find(BlockKey::new(volume.id, block));
            frame.is_some_and(|frame| self.table.state(frame).dirty & touched == touched)
        })
    }

    /// Completes the writes that waited for the writeback that has ended.
    pub(in crate::cache) fn complete_syncs(
        &self,
        instance: &mut Instance<F>,
        slot: Slot,
        error: Option<&StoreError>,
        stable: bool,
    ) {
        let Some(waiters) = instance.syncs.remove(&slot) else { return };
        let page = instance.pages.get(slot);
        let (writeback_seq, dirty) = (page.writeback_seq, page.dirty > 0);
        let mut left = Vec::new();
        for waiter in waiters {
            // Without dirty blocks a later writeback would not add any data.
            let reached =
                !dirty || writeback_seq.wrapping_sub(waiter.writeback_seq).cast_signed() >= 0;
            if !reached {
                left.push(waiter);
                continue;
            }
            let result = error.map_or(Ok(()), |error| Err(error.clone()));
            let token = waiter.token;
            let synced = Completion::Synced { token, pages: 1, stable, result };
            waiter.completions.deliver(&self.frames, synced);
        }
        if !left.is_empty() {
            instance.syncs.insert(slot, left);
        }
    }

    /// Processes a completion of a write.
    ///
    /// # Panics
    /// If the completion is not one of a write.
    pub(crate) fn write_completed(
        &self,
        handle: &mut crate::volume::VolumeHandle<F>,
        now: Nanos,
        write: &mut WriteRequest,
        completion: Completion<F>,
    ) -> Status {
        match completion {
            Completion::Synced { pages, stable, result, .. } => {
                write.waiting -= pages;
                write.needs_flush |= write.is_stable() && !stable;
                if let Err(error) = result {
                    write.error.get_or_insert(error);
                }
            }
            Completion::Finished { result, .. } => {
                write.waiting -= 1;
                if let Err(error) = result {
                    write.error.get_or_insert(error);
                }
            }
            Completion::Failed { error, .. } => return Status::Failed(error),
            other => panic!("{other:?} is not a completion of a write"),
        }
        if write.waiting > 0 {
            return Status::Pending;
        }
        if let Some(error) = write.error.take() {
            return Status::Failed(error);
        }
        if write.needs_flush {
            return self.flush_for(handle, now, write);
        }
        Status::Done
    }
}
