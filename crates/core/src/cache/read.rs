//! Reads: hits without a lock, misses handed to the store.

use super::Cache;
use super::fill::Missing;
use crate::clock::Nanos;
use crate::completion::VolumeHandle;
use crate::counters::{Class, Counter};
use crate::frames::Frames;
use crate::page::{Key, Place, Table};
use crate::policy::Slot;
use crate::request::{Prefetch, Purpose, ReadRequest, Status};
use crate::sync::atomic::Ordering;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64, PAGE_BLOCKS_MAX, sectors_touched};
use crate::volume::Volume;
use std::ops::Range;

/// How many reads ahead the table is looked at.
const LOOK_AHEAD: usize = 4;

/// Maximum number of blocks of a read that are prefetched. A larger read takes its time for
/// copying, not for finding its blocks.
const PREFETCH_BLOCKS_MAX: u64 = 4;

/// One read of several; see [`crate::request::Session::read_hits`].
#[derive(Debug)]
pub struct HitRead<'a> {
    /// First byte of the volume.
    pub offset: u64,
    /// Where the bytes go: 1 to 4,096, all of one block.
    pub to: &'a mut [u8],
    /// Set: whether they were resident and have been copied.
    pub hit: bool,
}

/// The block that `len` bytes at `offset` lie in, and where in it; `None` if not in a single one.
#[inline]
fn single_block<F: Frames>(
    lane: &VolumeHandle<F>,
    offset: u64,
    len: usize,
) -> Option<(Key, usize)> {
    let within = usize::try_from(offset % BLOCK_BYTES_U64).expect("below a block");
    let fits = len > 0 && within + len <= BLOCK_BYTES;
    let first = lane.volume.lookup_key.load(Ordering::Relaxed);
    fits.then(|| (Key::after(first, offset / BLOCK_BYTES_U64), within))
}

/// The sectors of `block` that the bytes `offset..offset + len` of the volume touch.
pub(super) fn touched_sectors(block: u64, bytes: &Range<u64>) -> u8 {
    let start = bytes.start.max(block * BLOCK_BYTES_U64) - block * BLOCK_BYTES_U64;
    let end = bytes.end.min((block + 1) * BLOCK_BYTES_U64) - block * BLOCK_BYTES_U64;
    let [start, end] = [start, end].map(|n| usize::try_from(n).expect("within a block"));
    sectors_touched(start, end - start)
}

impl<F: Frames> Cache<F> {
    /// Goes on with a read: pins what is resident, asks the store for what is not.
    ///
    /// [`Status::Done`]: every part is pinned; use [`ReadRequest::pieces`] or [`ReadRequest::copy_to`],
    /// then [`ReadRequest::release`]. [`Status::Pending`]: give the completions with the assembly's
    /// token to [`ReadRequest::absorb`]; should that say [`Status::Stalled`], call this again.
    ///
    /// # Panics
    /// If the range is not inside the volume.
    pub(crate) fn read(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        assembly: &mut ReadRequest<F>,
    ) -> Status {
        let end = assembly.offset + u64::from(assembly.len);
        assert!(end <= lane.volume.geometry().length, "a read past the end of the volume");
        lane.volume.touch(now);
        if let Some(error) = lane.volume.broken()
            && !assembly.is_pending()
        {
            assembly.release(&self.frames);
            return Status::Failed(error.clone());
        }
        let status = self.read_pages(lane, now, assembly);
        if std::mem::take(&mut assembly.noticed) {
            Self::notice(lane, assembly, now);
        }
        status
    }

    fn read_pages(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        assembly: &mut ReadRequest<F>,
    ) -> Status {
        while (assembly.cursor as usize) < assembly.parts.len() {
            if !self.read_page(lane, now, assembly) {
                if assembly.missing == 0 {
                    // Holding nothing while waiting: readers that hold what others want would
                    // wait for each other for ever.
                    assembly.release(&self.frames);
                    assembly.cursor = 0;
                }
                self.stall(lane);
                break;
            }
        }
        if !assembly.told {
            assembly.told = true;
            let is_whole = assembly.cursor as usize == assembly.parts.len();
            assembly.interface.count(&lane.recorder, is_whole && assembly.missing == 0);
        }
        assembly.status(&self.frames)
    }

    /// Reads `to.len()` bytes at `offset` if all of them are resident; whether they were. Nothing
    /// is counted or asked for if not; and the first touch of what was read ahead is left to
    /// [`Cache::read`], which reads on from there. For several reads at once see
    /// [`Cache::read_hits`].
    #[inline]
    pub(crate) fn read_hit(&self, lane: &VolumeHandle<F>, offset: u64, to: &mut [u8]) -> bool {
        let Some((key, within)) = single_block(lane, offset, to.len()) else { return false };
        let place = self.table.place(key);
        self.table.approach(&self.frames, &place, within);
        self.copy_hit(lane, &place, within, to)
    }

    /// Performs [`Cache::read_hit`] for each of `reads`, in order, and sets whether it was a hit.
    /// Returns the number of hits.
    ///
    /// Faster than one by one: a hit makes two trips to memory, to the table and to the bytes, and
    /// with several at hand those of the later ones are made while the earlier ones are copied.
    #[inline]
    pub(crate) fn read_hits(&self, lane: &VolumeHandle<F>, reads: &mut [HitRead<'_>]) -> usize {
        let look = |reads: &[HitRead<'_>], i: usize| {
            let read = reads.get(i)?;
            let (key, within) = single_block(lane, read.offset, read.to.len())?;
            let place = self.table.place(key);
            Table::look_ahead::<F>(&place);
            Some((place, within))
        };
        let mut coming: [_; LOOK_AHEAD] = std::array::from_fn(|i| look(reads, i));
        let mut hits = 0;
        for i in 0..reads.len() {
            let found = std::mem::replace(&mut coming[i % LOOK_AHEAD], look(reads, i + LOOK_AHEAD));
            if let Some((place, within)) = &coming[(i + 1) % LOOK_AHEAD] {
                self.table.approach(&self.frames, place, *within);
            }
            let read = &mut reads[i];
            let hit = |(place, within)| self.copy_hit(lane, &place, within, read.to);
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
            let place = self.table.place(Key::new(volume.id, block));
            match step {
                Prefetch::Table => Table::look_ahead::<F>(&place),
                Prefetch::Frames => self.table.prefetch_pin(&self.frames, &place),
            }
        }
    }

    #[inline]
    fn copy_hit(
        &self,
        lane: &VolumeHandle<F>,
        place: &Place<'_>,
        within: usize,
        to: &mut [u8],
    ) -> bool {
        let Some((pin, state, slot)) = self.table.pin_at(&self.frames, place) else { return false };
        let hit = !state.ahead && state.covers(sectors_touched(within, to.len()));
        if hit {
            self.frames.read(&pin, within, to);
            self.frames.unpin(pin);
            self.note_hit_in(lane, place.shard, slot, 0);
            lane.recorder.add(Counter::FastReads, 1);
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
        let region_blocks = u64::from(PAGE_BLOCKS_MAX);
        let (mut next, mut is_run_unclean) = (blocks.start, None);
        while next < blocks.end {
            // A search without the lock may miss a block that a client is writing. A region lies in
            // one shard.
            let mut shard = self.shard(self.table.shard(Key::new(volume.id, next)));
            let has_unclean = shard.instance_of(volume).is_some_and(|it| it.has_unclean());
            let region_end = (next / region_blocks + 1) * region_blocks;
            while next < blocks.end.min(region_end) {
                let is_unclean = has_unclean && self.is_unclean(volume, next);
                if *is_run_unclean.get_or_insert(is_unclean) != is_unclean {
                    return (next - blocks.start, !is_unclean);
                }
                next = if has_unclean { next + 1 } else { blocks.end.min(region_end) };
            }
        }
        (next - blocks.start, is_run_unclean.unwrap_or(false))
    }

    /// Returns whether the cache has data of a block that the store does not have yet. Without the
    /// lock of the block's shard, clients must be idle.
    pub(super) fn is_unclean(&self, volume: &Volume<F>, block: u64) -> bool {
        self.table.find(Key::new(volume.id, block)).is_some_and(|frame| {
            let state = self.table.state(frame);
            state.dirty | state.writing != 0
        })
    }

    /// Reads the blocks of the next page of the assembly; false if there is no room. If the page
    /// size has changed meanwhile, nothing has happened yet.
    fn read_page(
        &self,
        lane: &mut VolumeHandle<F>,
        now: Nanos,
        assembly: &mut ReadRequest<F>,
    ) -> bool {
        let volume = &*lane.volume;
        let first = assembly.first_block() + u64::from(assembly.cursor);
        let last = assembly.first_block() + assembly.parts.len() as u64;
        let blocks = first..last.min(volume.paging().around(first).end);
        let count = u32::try_from(blocks.end - blocks.start).expect("at most a page");
        let (found, slot, ahead) = self.pin_resident(volume, assembly, &blocks);
        let fresh = assembly.cursor >= assembly.counted;
        let first_touch = ahead && self.touch_ahead(volume, first);
        assembly.noticed |= first_touch;
        if found == count {
            if first_touch && fresh {
                // The policy has been told of it when it came.
                assembly.count(&lane.recorder, Class::ReadAheadHit);
            } else if fresh {
                self.note_hit(lane, Key::new(volume.id, first), slot, now);
                assembly.count(&lane.recorder, Class::ReadHit);
            }
            assembly.advance(count);
            return true;
        }
        // Whoever waits gets all blocks of the page at once; what was found may go meanwhile.
        let part = assembly.cursor as usize;
        for pin in assembly.parts[part..part + count as usize].iter_mut().filter_map(Option::take) {
            self.frames.unpin(pin);
        }
        let class = match self.miss(lane, now, assembly, &blocks) {
            Missing::NoRoom => return false,
            Missing::Recut => return true,
            Missing::Present if self.touch_ahead(&lane.volume, first) => Class::ReadAheadHit,
            Missing::Present => Class::ReadHit,
            Missing::Coming => Class::ReadAheadWait,
            Missing::Filling if found > 0 => Class::ReadPartialHit,
            Missing::Filling => Class::ReadMiss,
            Missing::Bypassed(reason) => {
                let is_counted = fresh && assembly.purpose == Purpose::Client;
                lane.recorder.add(reason.counter(), u64::from(is_counted));
                Class::ReadBypass
            }
        };
        assembly.missed |= matches!(class, Class::ReadMiss | Class::ReadPartialHit);
        assembly.noticed |= !matches!(class, Class::ReadHit | Class::ReadBypass);
        if fresh {
            assembly.count(&lane.recorder, class);
        }
        assembly.advance(count);
        true
    }

    /// Pins the blocks that are resident; how many, the slot of their page, and whether one of them
    /// is marked as read ahead.
    fn pin_resident(
        &self,
        volume: &Volume<F>,
        assembly: &mut ReadRequest<F>,
        blocks: &Range<u64>,
    ) -> (u32, Slot, bool) {
        let bytes = assembly.offset..assembly.offset + u64::from(assembly.len);
        let (mut found, mut ahead) = (0, false);
        let mut slot = crate::policy::NO_SLOT;
        for block in blocks.clone() {
            let key = Key::new(volume.id, block);
            let Some((pin, state, its)) = self.table.pin(&self.frames, key) else { continue };
            if !state.covers(touched_sectors(block, &bytes)) {
                self.frames.unpin(pin);
                continue;
            }
            ahead |= state.ahead;
            slot = its;
            let part = usize::try_from(block - assembly.first_block()).expect("an index");
            assembly.parts[part] = Some(pin);
            found += 1;
        }
        (found, slot, ahead)
    }

    /// Notes a hit for the policy. Only when the lane's ring is full is a lock taken.
    #[inline]
    pub(super) fn note_hit(&self, lane: &VolumeHandle<F>, key: Key, slot: Slot, now: Nanos) {
        self.note_hit_in(lane, self.table.shard(key), slot, now);
    }

    #[inline]
    fn note_hit_in(&self, lane: &VolumeHandle<F>, index: usize, slot: Slot, now: Nanos) {
        if lane.rings[index].push(lane.volume.id, slot) {
            return;
        }
        if self.rebuilding[index].load(Ordering::Relaxed) {
            // One hit that the policy does not hear of is better than one that waits.
            return;
        }
        self.shard(index).drain_ring(&lane.rings[index], now);
        let pushed = lane.rings[index].push(lane.volume.id, slot);
        debug_assert!(pushed, "a drained ring has room");
    }
}
