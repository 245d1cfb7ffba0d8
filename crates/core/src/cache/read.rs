//! Reads: hits without a lock, misses submitted to the store.

use super::Cache;
use super::fill::FetchOutcome;
use crate::clock::Nanos;
use crate::counters::{Class, Counter};
use crate::frames::Frames;
use crate::message::Prefetch;
use crate::page::{BlockKey, BlockLookup, Table};
use crate::policy::Slot;
use crate::read_write::{ReadPurpose, ReadRequest, Status};
use crate::sync::lock;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, regions, sectors_touched};
use crate::volume::Volume;
use crate::volume::VolumeHandle;
use std::ops::Range;

/// Number of reads between the prefetch of a bucket and its use.
const PREFETCH_DISTANCE: usize = 4;

/// Maximum number of blocks of a read that are prefetched. A larger read spends its time on
/// copying, not on lookups.
const PREFETCH_BLOCKS_MAX: u64 = 4;

/// One read of several; see [`crate::request::Session::read_hits`].
#[derive(Debug)]
pub struct HitRead<'a> {
    /// First byte in the volume.
    pub offset: u64,
    /// Destination of the bytes: 1 to 4,096, all of one block.
    pub to: &'a mut [u8],
    /// Result: true if the bytes were resident and have been copied.
    pub hit: bool,
}

/// Returns the key of the block that contains the `len` bytes at `offset`, and their offset in it;
/// `None` if they are not in a single block.
#[inline]
fn single_block<F: Frames>(
    handle: &VolumeHandle<F>,
    offset: u64,
    len: usize,
) -> Option<(BlockKey, usize)> {
    let within = usize::try_from(offset % BLOCK_BYTES_U64).expect("below a block");
    let fits = len > 0 && within + len <= BLOCK_BYTES;
    let first = handle.volume.lifecycle.lookup_key();
    fits.then(|| (BlockKey::after(first, offset / BLOCK_BYTES_U64), within))
}

/// Returns the mask of the sectors of `block` that `bytes` of the volume touch.
pub(super) fn touched_sectors(block: u64, bytes: &Range<u64>) -> u8 {
    let start = bytes.start.max(block * BLOCK_BYTES_U64) - block * BLOCK_BYTES_U64;
    let end = bytes.end.min((block + 1) * BLOCK_BYTES_U64) - block * BLOCK_BYTES_U64;
    let [start, end] = [start, end].map(|n| usize::try_from(n).expect("within a block"));
    sectors_touched(start, end - start)
}

impl<F: Frames> Cache<F> {
    /// Continues a read: pins resident blocks, and requests the others from the store.
    ///
    /// [`Status::Done`]: every part is pinned; use [`ReadRequest::pieces`] or
    /// [`ReadRequest::copy_to`], then [`ReadRequest::release`]. [`Status::Pending`]: pass the
    /// completions with the token of the read to [`ReadRequest::apply_completion`]; if that returns
    /// [`Status::Stalled`], call this again.
    ///
    /// # Panics
    /// If the range is not inside the volume.
    pub(crate) fn read(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        read: &mut ReadRequest<F>,
    ) -> Status {
        let end = read.offset + u64::from(read.len);
        assert!(end <= handle.volume.geometry().length, "a read past the end of the volume");
        handle.volume.note_request(now);
        if let Some(error) = handle.volume.broken()
            && !read.is_pending()
        {
            read.release(&self.frames);
            return Status::Failed(error.clone());
        }
        let status = self.read_pages(handle, now, read);
        // Read-ahead beside a request that itself names the pages to bring in would evict pages for
        // frames that it then does not need.
        let is_detector_input = std::mem::take(&mut read.is_detector_input);
        if is_detector_input && read.purpose == ReadPurpose::Client {
            Self::detect_stream(handle, read, now);
        }
        status
    }

    fn read_pages(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        read: &mut ReadRequest<F>,
    ) -> Status {
        let missing = read.missing;
        while (read.cursor as usize) < read.parts.len() {
            if !self.read_page(handle, now, read) {
                if read.missing == 0 {
                    // A stalled read holds no pins: readers that each pin frames which others need
                    // would deadlock.
                    read.release(&self.frames);
                    read.cursor = 0;
                }
                self.stall(handle);
                break;
            }
        }
        let was_gathering = std::mem::take(&mut handle.is_gathering);
        if was_gathering {
            lock(&handle.volume.queue).gathering -= 1;
        }
        if was_gathering || read.missing > missing {
            handle.volume.waker.wake();
        }
        if !read.is_call_counted {
            read.is_call_counted = true;
            let is_whole = read.cursor as usize == read.parts.len();
            read.interface.count(&handle.recorder, is_whole && read.missing == 0);
        }
        read.status(&self.frames)
    }

    /// Reads `to.len()` bytes at `offset` if all of them are resident. Returns true if they were.
    /// Otherwise nothing is counted or requested. A first touch of read-ahead pages is left to
    /// [`Cache::read`], which triggers the next window. For several reads at once see
    /// [`Cache::read_hits`].
    #[inline]
    pub(crate) fn read_hit(&self, handle: &VolumeHandle<F>, offset: u64, to: &mut [u8]) -> bool {
        let Some((key, within)) = single_block(handle, offset, to.len()) else { return false };
        let lookup = self.table.lookup(key);
        self.table.prefetch_block(&self.frames, &lookup, within);
        self.copy_hit(handle, &lookup, within, to)
    }

    /// Performs [`Cache::read_hit`] for each of `reads`, in order, and sets its `hit`. Returns the
    /// number of hits.
    ///
    /// Faster than separate calls: a hit needs two memory accesses, to the table and to the bytes,
    /// and those of later reads overlap with the copies of earlier ones.
    #[inline]
    pub(crate) fn read_hits(&self, handle: &VolumeHandle<F>, reads: &mut [HitRead<'_>]) -> usize {
        let start_prefetch = |reads: &[HitRead<'_>], i: usize| {
            let read = reads.get(i)?;
            let (key, within) = single_block(handle, read.offset, read.to.len())?;
            let lookup = self.table.lookup(key);
            Table::prefetch_bucket::<F>(&lookup);
            Some((lookup, within))
        };
        let mut prefetched: [_; PREFETCH_DISTANCE] =
            std::array::from_fn(|i| start_prefetch(reads, i));
        let mut hits = 0;
        for i in 0..reads.len() {
            let found = std::mem::replace(
                &mut prefetched[i % PREFETCH_DISTANCE],
                start_prefetch(reads, i + PREFETCH_DISTANCE),
            );
            if let Some((lookup, within)) = &prefetched[(i + 1) % PREFETCH_DISTANCE] {
                self.table.prefetch_block(&self.frames, lookup, *within);
            }
            let read = &mut reads[i];
            let hit = |(lookup, within)| self.copy_hit(handle, &lookup, within, read.to);
            read.hit = found.is_some_and(hit);
            hits += usize::from(read.hit);
        }
        hits
    }

    /// Performs one step of the prefetch for a request of `bytes`, which lie inside the volume.
    #[inline]
    pub(crate) fn prefetch(&self, volume: &Volume<F>, bytes: &Range<u64>, step: Prefetch) {
        let first = bytes.start / BLOCK_BYTES_U64;
        let end = bytes.end.div_ceil(BLOCK_BYTES_U64).min(first + PREFETCH_BLOCKS_MAX);
        for block in first..end {
            let lookup = self.table.lookup(BlockKey::new(volume.id, block));
            match step {
                Prefetch::Table => Table::prefetch_bucket::<F>(&lookup),
                Prefetch::Frames => self.table.prefetch_pin(&self.frames, &lookup),
            }
        }
    }

    #[inline]
    fn copy_hit(
        &self,
        handle: &VolumeHandle<F>,
        lookup: &BlockLookup<'_>,
        within: usize,
        to: &mut [u8],
    ) -> bool {
        let Some((pin, state, slot)) = self.table.pin_at(&self.frames, lookup) else {
            return false;
        };
        let hit = !state.ahead && state.covers(sectors_touched(within, to.len()));
        if hit {
            self.frames.read(&pin, within, to);
            self.frames.unpin(pin);
            self.note_hit_in(handle, lookup.shard, slot, 0);
            handle.recorder.add(Counter::FastReads, 1);
        } else {
            self.frames.unpin(pin);
        }
        hit
    }

    /// Returns the length of the run of unclean blocks, or of clean ones, at the start of `blocks`,
    /// and true for unclean ones. The store does not have the data of an unclean block yet.
    /// `blocks` must not be empty.
    #[must_use]
    pub fn unclean_run(&self, volume: &Volume<F>, blocks: Range<u64>) -> (u64, bool) {
        let mut is_run_unclean = None;
        for region in regions(blocks.clone()) {
            // A search without the lock could miss a block that a client is writing.
            let mut shard = self.shard_of(volume, region.start);
            let has_unclean = shard.instance_of(volume).is_some_and(|it| it.has_unclean());
            // Without unclean blocks the first one stands for all.
            let examined = if has_unclean { region } else { region.start..region.start + 1 };
            for block in examined {
                let is_unclean = has_unclean && self.is_unclean(volume, block);
                if *is_run_unclean.get_or_insert(is_unclean) != is_unclean {
                    return (block - blocks.start, !is_unclean);
                }
            }
        }
        (blocks.end - blocks.start, is_run_unclean.unwrap_or(false))
    }

    /// Returns true if the cache has data of a block that the store does not have yet. The caller
    /// holds the lock of the block's shard, or no client is active.
    pub(super) fn is_unclean(&self, volume: &Volume<F>, block: u64) -> bool {
        self.table.find(BlockKey::new(volume.id, block)).is_some_and(|frame| {
            let state = self.table.state(frame);
            state.dirty | state.writing != 0
        })
    }

    /// Reads the blocks of the next page of the read. Returns false if the read must stall. If the
    /// page size has changed, it returns true without progress.
    fn read_page(
        &self,
        handle: &mut VolumeHandle<F>,
        now: Nanos,
        read: &mut ReadRequest<F>,
    ) -> bool {
        let volume = &*handle.volume;
        let first = read.first_block() + u64::from(read.cursor);
        let last = read.first_block() + read.parts.len() as u64;
        let blocks = first..last.min(volume.paging().around(first).end);
        let count = u32::try_from(blocks.end - blocks.start).expect("at most a page");
        let (found, slot, ahead) = self.pin_resident(volume, read, &blocks);
        let fresh = read.cursor >= read.counted;
        let first_touch = ahead && self.touch_ahead(volume, first);
        read.is_detector_input |= first_touch;
        if found == count {
            if fresh {
                self.note_hit(handle, BlockKey::new(volume.id, first), slot, now);
                let class = if first_touch { Class::ReadAheadHit } else { Class::ReadHit };
                read.count(&handle.recorder, class);
            }
            read.advance(count);
            return true;
        }
        // A waiter gets all blocks of the page at once; the resident ones may be evicted in the
        // meantime.
        let part = read.cursor as usize;
        for pin in read.parts[part..part + count as usize].iter_mut().filter_map(Option::take) {
            self.frames.unpin(pin);
        }
        if blocks.end < last && !std::mem::replace(&mut handle.is_gathering, true) {
            lock(&handle.volume.queue).gathering += 1;
        }
        let class = match self.miss(handle, now, read, &blocks) {
            FetchOutcome::NoRoom => return false,
            FetchOutcome::PageSizeChanged => return true,
            FetchOutcome::Present if self.touch_ahead(&handle.volume, first) => Class::ReadAheadHit,
            FetchOutcome::Present => Class::ReadHit,
            FetchOutcome::ReadAheadPending => Class::ReadAheadWait,
            FetchOutcome::Filling if found > 0 => Class::ReadPartialHit,
            FetchOutcome::Filling => Class::ReadMiss,
            FetchOutcome::Bypassed(reason) => {
                let is_counted = fresh && read.purpose == ReadPurpose::Client;
                handle.recorder.add(reason.counter(), u64::from(is_counted));
                Class::ReadBypass
            }
        };
        read.missed |= matches!(class, Class::ReadMiss | Class::ReadPartialHit);
        read.is_detector_input |= !matches!(class, Class::ReadHit | Class::ReadBypass);
        if fresh {
            read.count(&handle.recorder, class);
        }
        read.advance(count);
        true
    }

    /// Pins the resident blocks. Returns their number, the slot of their page, and true if one of
    /// them has the read-ahead flag.
    fn pin_resident(
        &self,
        volume: &Volume<F>,
        read: &mut ReadRequest<F>,
        blocks: &Range<u64>,
    ) -> (u32, Slot, bool) {
        let bytes = read.offset..read.offset + u64::from(read.len);
        let (mut found, mut ahead) = (0, false);
        let mut slot = crate::policy::NO_SLOT;
        for block in blocks.clone() {
            let key = BlockKey::new(volume.id, block);
            let Some((pin, state, page_slot)) = self.table.pin(&self.frames, key) else { continue };
            if !state.covers(touched_sectors(block, &bytes)) {
                self.frames.unpin(pin);
                continue;
            }
            ahead |= state.ahead;
            slot = page_slot;
            let part = usize::try_from(block - read.first_block()).expect("an index");
            read.parts[part] = Some(pin);
            found += 1;
        }
        (found, slot, ahead)
    }

    /// Records a hit for the policy. It takes a lock only if the handle's ring is full.
    #[inline]
    pub(super) fn note_hit(&self, handle: &VolumeHandle<F>, key: BlockKey, slot: Slot, now: Nanos) {
        self.note_hit_in(handle, self.table.shard(key), slot, now);
    }

    #[inline]
    fn note_hit_in(&self, handle: &VolumeHandle<F>, index: usize, slot: Slot, now: Nanos) {
        if handle.rings[index].push(slot) {
            return;
        }
        if self.shards.is_rebuilding(index) {
            // The policy misses one hit, so that the hit does not wait.
            return;
        }
        self.shards.lock(index).drain_ring(&handle.rings[index], now);
        let pushed = handle.rings[index].push(slot);
        debug_assert!(pushed, "a drained ring has room");
    }
}
