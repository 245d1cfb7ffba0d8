//! The page table: maps a block of a volume to the frame that holds it.
//!
//! Buckets are heads of chains of frames, all in arrays of atomics that never move. Each bucket
//! belongs to one shard, and a chain changes only under that shard's lock; a reader takes no lock.
//! A reader may find a chain during a change, or follow a frame that has just moved to another
//! chain. So it pins the frame first and then checks its key again, and it stops after [`WALK_MAX`]
//! steps. A block that it misses this way is found under the lock.
//!
//! A cache that grows beyond its initial size adds descriptors in chunks, and the buckets of a
//! shard one at a time (see `buckets`). Neither number ever falls.
//!
//! All blocks of an aligned 1 MiB region belong to one shard, whatever the page size. So a page
//! never spans shards, and a change of the page size never moves a block.

use super::buckets::Buckets;
use super::{FrameState, mix};
use crate::frames::{FrameId, Frames, NO_FRAME};
use crate::page::Slot;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// Maximum number of steps of a walk without a lock. Chains have 1 to 4 frames; a longer walk has
/// followed frames that moved.
const WALK_MAX: usize = 32;
const REGION_SHIFT: u32 = 8;
/// Descriptors that are added to a growing table at a time: 1.5 MiB, for 256 MiB of frames.
const CHUNK: usize = 1 << 16;

/// A block of a volume, packed: volume + 1 in the upper 16 bits, block number below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockKey(u64);

impl BlockKey {
    const NONE: u64 = 0;
    const BLOCK_BITS: u32 = 48;

    pub(crate) fn new(volume: u16, block: u64) -> Self {
        debug_assert!(block < 1 << Self::BLOCK_BITS, "volumes end at 2^60 bytes");
        BlockKey(Self::first_of(volume) | block)
    }

    /// Returns the key of the first block of a volume, as a number.
    pub(crate) fn first_of(volume: u16) -> u64 {
        (u64::from(volume) + 1) << Self::BLOCK_BITS
    }

    /// Returns the key of a block in the volume that has `first` as the key of its first block.
    #[inline]
    pub(crate) fn after(first: u64, block: u64) -> Self {
        BlockKey(first | block)
    }
}

#[derive(Debug)]
struct Descriptor {
    key: AtomicU64,
    state: AtomicU32,
    next: AtomicU32,
    slot: AtomicU32,
}

impl Descriptor {
    fn new() -> Self {
        Descriptor {
            key: AtomicU64::new(BlockKey::NONE),
            state: AtomicU32::new(0),
            next: AtomicU32::new(NO_FRAME),
            slot: AtomicU32::new(0),
        }
    }
}

/// A lookup of a block: its key and its bucket. If the table grows, blocks that have moved are not
/// found there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLookup<'a> {
    pub(crate) key: BlockKey,
    /// The shard that the block's region belongs to.
    pub(crate) shard: usize,
    bucket: &'a AtomicU32,
}

/// Maps blocks to frames.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Buckets,
    /// Descriptors of the initial frames.
    descriptors: Box<[Descriptor]>,
    /// Descriptors of frames that were added.
    chunks: Box<[OnceLock<Box<[Descriptor]>>]>,
    shard_bits: u32,
}

impl Table {
    /// Bytes of the table for each frame: a descriptor and up to two buckets.
    pub(crate) const BYTES_PER_FRAME: usize = size_of::<Descriptor>() + 2 * size_of::<u32>();

    /// Returns a table for `frames` frames that can grow to `frames_max`.
    pub(crate) fn new(frames: u32, frames_max: u32, shards: usize) -> Self {
        assert!(shards.is_power_of_two(), "shards are a power of two");
        let later = (frames_max - frames) as usize;
        Table {
            buckets: Buckets::new(frames as usize / shards, frames_max as usize / shards, shards),
            descriptors: (0..frames).map(|_| Descriptor::new()).collect(),
            chunks: (0..later.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            shard_bits: shards.trailing_zeros(),
        }
    }

    /// Allocates the descriptors of all frames below `frames`. This must happen before one of them
    /// is used.
    pub(crate) fn make_descriptors(&self, frames: u32) {
        let later = (frames as usize).saturating_sub(self.descriptors.len());
        for chunk in &self.chunks[..later.div_ceil(CHUNK)] {
            chunk.get_or_init(|| (0..CHUNK).map(|_| Descriptor::new()).collect());
        }
    }

    /// Returns true if a shard has buckets for `frames` frames.
    pub(crate) fn has_buckets(&self, shard: usize, frames: usize) -> bool {
        self.buckets.is_enough(shard, frames)
    }

    /// Adds up to `count_max` buckets to a shard that gets `frames` frames. The caller holds the
    /// shard's lock.
    pub(crate) fn grow_buckets(&self, shard: usize, frames: usize, count_max: usize) {
        for _ in 0..count_max {
            let Some((parent, new)) = self.buckets.grow(shard, frames) else { return };
            self.split_bucket(shard, parent, new);
        }
    }

    /// Moves the entries that belong to the bucket `new` from `parent`, which had them so far.
    fn split_bucket(&self, shard: usize, parent: &AtomicU32, new: &AtomicU32) {
        let mut link = parent;
        loop {
            let frame = link.load(Ordering::Relaxed);
            if frame == NO_FRAME {
                return;
            }
            let descriptor = self.descriptor(frame);
            let key = BlockKey(descriptor.key.load(Ordering::Relaxed));
            if std::ptr::eq(self.buckets.get(shard, Self::bucket_index(key)), new) {
                link.store(descriptor.next.load(Ordering::Relaxed), Ordering::Release);
                descriptor.next.store(new.load(Ordering::Relaxed), Ordering::Release);
                new.store(frame, Ordering::Release);
            } else {
                link = &descriptor.next;
            }
        }
    }

    #[inline]
    fn shard_of_hash(&self, hash: u64) -> usize {
        // A shift by 64 bits would overflow: with a single shard the index is 0.
        usize::try_from(hash.checked_shr(64 - self.shard_bits).unwrap_or(0)).expect("few shards")
    }

    pub(crate) fn shard(&self, key: BlockKey) -> usize {
        self.shard_of_hash(mix(key.0 >> REGION_SHIFT))
    }

    /// Returns the index of a block's bucket. Adjacent blocks have adjacent buckets: a large
    /// request walks along them.
    fn bucket_index(key: BlockKey) -> usize {
        Self::bucket_index_of_hash(mix(key.0 >> REGION_SHIFT), key)
    }

    #[inline]
    fn bucket_index_of_hash(hash: u64, key: BlockKey) -> usize {
        (hash.wrapping_add(key.0 & ((1 << REGION_SHIFT) - 1)) & 0xffff_ffff) as usize
    }

    #[inline]
    pub(crate) fn lookup(&self, key: BlockKey) -> BlockLookup<'_> {
        let hash = mix(key.0 >> REGION_SHIFT);
        let shard = self.shard_of_hash(hash);
        BlockLookup {
            key,
            shard,
            bucket: self.buckets.get(shard, Self::bucket_index_of_hash(hash, key)),
        }
    }

    #[inline]
    fn bucket(&self, key: BlockKey) -> &AtomicU32 {
        self.lookup(key).bucket
    }

    #[inline]
    fn descriptor(&self, frame: FrameId) -> &Descriptor {
        match self.descriptors.get(frame as usize) {
            Some(descriptor) => descriptor,
            None => self.later_descriptor(frame).expect("a frame that is in use"),
        }
    }

    #[inline(never)]
    fn later_descriptor(&self, frame: FrameId) -> Option<&Descriptor> {
        let later = frame as usize - self.descriptors.len();
        Some(&self.chunks.get(later / CHUNK)?.get()?[later % CHUNK])
    }

    /// Prefetches the bucket: the first of two steps, before [`Table::prefetch_block`].
    #[inline]
    pub(crate) fn prefetch_bucket<F: Frames>(lookup: &BlockLookup<'_>) {
        F::fetch(lookup.bucket);
    }

    /// Prefetches the descriptor, the latch, and the bytes from `within` on of the first frame of
    /// the chain, which most likely holds the block.
    #[inline]
    pub(crate) fn prefetch_block<F: Frames>(
        &self,
        frames: &F,
        lookup: &BlockLookup<'_>,
        within: usize,
    ) {
        let likely_frame = lookup.bucket.load(Ordering::Relaxed);
        if likely_frame != NO_FRAME {
            F::fetch(self.descriptor(likely_frame));
            frames.prefetch(likely_frame, within);
        }
    }

    /// Prefetches the descriptor and the latch of the first frame of the chain, which most likely
    /// holds the block.
    #[inline]
    pub(crate) fn prefetch_pin<F: Frames>(&self, frames: &F, lookup: &BlockLookup<'_>) {
        let likely_frame = lookup.bucket.load(Ordering::Relaxed);
        if likely_frame != NO_FRAME {
            F::fetch(self.descriptor(likely_frame));
            frames.prefetch_latch(likely_frame);
        }
    }

    /// Pins the frame of `key` without a lock. Returns the pin, its state and the slot of its page.
    #[inline]
    pub(crate) fn pin<F: Frames>(
        &self,
        frames: &F,
        key: BlockKey,
    ) -> Option<(F::Pin, FrameState, Slot)> {
        self.pin_at(frames, &self.lookup(key))
    }

    /// As [`Table::pin`], with a lookup that was started before.
    #[inline]
    pub(crate) fn pin_at<F: Frames>(
        &self,
        frames: &F,
        lookup: &BlockLookup<'_>,
    ) -> Option<(F::Pin, FrameState, Slot)> {
        let (frame, descriptor) = self.walk_from(lookup, WALK_MAX)?;
        let pin = frames.try_pin(frame)?;
        if descriptor.key.load(Ordering::Acquire) == lookup.key.0 {
            let state = FrameState::unpack(descriptor.state.load(Ordering::Acquire));
            return Some((pin, state, descriptor.slot.load(Ordering::Relaxed)));
        }
        frames.unpin(pin);
        None
    }

    /// Write-pins the frame of `key` without a lock. Returns the write pin and the state.
    #[inline]
    pub(crate) fn try_write_pin<F: Frames>(
        &self,
        frames: &F,
        key: BlockKey,
    ) -> Option<(F::WritePin, FrameState)> {
        let frame = self.walk(key, WALK_MAX)?;
        let write_pin = frames.try_write_pin(frame)?;
        if self.holds(frame, key) {
            let state = self.state(frame);
            return Some((write_pin, state));
        }
        frames.release_write_pin(write_pin);
        None
    }

    #[inline]
    fn walk(&self, key: BlockKey, steps: usize) -> Option<FrameId> {
        self.walk_from(&self.lookup(key), steps).map(|(frame, _)| frame)
    }

    #[inline]
    fn walk_from(&self, lookup: &BlockLookup<'_>, steps: usize) -> Option<(FrameId, &Descriptor)> {
        let mut frame = lookup.bucket.load(Ordering::Acquire);
        for _ in 0..steps {
            if frame == NO_FRAME {
                return None;
            }
            let descriptor = self.descriptor(frame);
            if descriptor.key.load(Ordering::Acquire) == lookup.key.0 {
                return Some((frame, descriptor));
            }
            frame = descriptor.next.load(Ordering::Acquire);
        }
        None
    }

    fn holds(&self, frame: FrameId, key: BlockKey) -> bool {
        self.descriptor(frame).key.load(Ordering::Acquire) == key.0
    }

    /// Returns the frame of `key`. Exact under the lock of its shard.
    pub(crate) fn find(&self, key: BlockKey) -> Option<FrameId> {
        self.walk(key, usize::MAX)
    }

    pub(crate) fn state(&self, frame: FrameId) -> FrameState {
        FrameState::unpack(self.descriptor(frame).state.load(Ordering::Acquire))
    }

    /// Sets the state of a published frame. The caller holds the lock of its shard, or a write pin
    /// of the frame.
    pub(crate) fn set_state(&self, frame: FrameId, state: FrameState) {
        self.descriptor(frame).state.store(state.pack(), Ordering::Release);
    }

    /// Clears the read-ahead flag of the frame of `key`, if a walk without a lock finds it. Returns
    /// true if the flag was set.
    pub(crate) fn unmark_key(&self, key: BlockKey) -> bool {
        self.walk(key, WALK_MAX).is_some_and(|frame| self.unmark(frame))
    }

    /// Clears the read-ahead flag of a frame without a lock. Returns true if the flag was set.
    pub(crate) fn unmark(&self, frame: FrameId) -> bool {
        let state = &self.descriptor(frame).state;
        FrameState::unpack(state.load(Ordering::Relaxed)).ahead
            && FrameState::unpack(state.fetch_and(FrameState::UNMARKED, Ordering::AcqRel)).ahead
    }

    /// Returns the slot of the page of a frame. Without a lock it may be outdated.
    pub(crate) fn slot(&self, frame: FrameId) -> Slot {
        self.descriptor(frame).slot.load(Ordering::Relaxed)
    }

    /// Makes a frame a part of another page. The caller holds the lock of its shard.
    pub(crate) fn set_slot(&self, frame: FrameId, slot: Slot) {
        self.descriptor(frame).slot.store(slot, Ordering::Relaxed);
    }

    /// Adds a frame to the table as `key`. The caller holds the lock of its shard.
    pub(crate) fn publish(&self, frame: FrameId, key: BlockKey, slot: Slot, state: FrameState) {
        let bucket = self.bucket(key);
        let descriptor = self.descriptor(frame);
        debug_assert_eq!(descriptor.key.load(Ordering::Relaxed), BlockKey::NONE, "published twice");
        descriptor.slot.store(slot, Ordering::Relaxed);
        descriptor.state.store(state.pack(), Ordering::Release);
        descriptor.next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        descriptor.key.store(key.0, Ordering::Release);
        bucket.store(frame, Ordering::Release);
    }

    /// Removes a frame from the table. The caller holds the lock of its shard. Existing pins stay
    /// valid.
    pub(crate) fn retract(&self, frame: FrameId) {
        let descriptor = self.descriptor(frame);
        let key = BlockKey(descriptor.key.swap(BlockKey::NONE, Ordering::AcqRel));
        debug_assert_ne!(key.0, BlockKey::NONE, "retracted twice");
        let next = descriptor.next.load(Ordering::Relaxed);
        let bucket = self.bucket(key);
        let mut at = bucket.load(Ordering::Relaxed);
        if at == frame {
            bucket.store(next, Ordering::Release);
            return;
        }
        while at != NO_FRAME {
            let link = &self.descriptor(at).next;
            at = link.load(Ordering::Relaxed);
            if at == frame {
                link.store(next, Ordering::Release);
                return;
            }
        }
        unreachable!("frame {frame} is not in the chain of its key");
    }
}

/// The table under a scheduler that explores interleavings; for the tests of `larder-core-shuttle`.
#[cfg(larder_shuttle)]
pub mod schedules {
    use super::{AtomicU64, BlockKey, FrameId, FrameState, Frames, Ordering, Table};
    use crate::frames::NoFrames;
    use crate::sync::{Arc, spin};
    use shuttle::scheduler::RandomScheduler;
    use shuttle::{Config, Runner, thread};

    /// Two frames that one thread moves between three blocks, as evictions and fills do, and the
    /// block that each frame holds.
    struct World {
        table: Table,
        frames: NoFrames,
        holds: [AtomicU64; 2],
    }

    impl World {
        fn write(&self, frame: FrameId, block: u64) {
            self.holds[frame as usize].store(block, Ordering::Relaxed);
        }

        fn move_frames(&self) {
            for step in 0..4 {
                let frame = step % 2;
                self.table.retract(frame);
                let write_pin = loop {
                    match self.frames.try_write_pin(frame) {
                        Some(write_pin) => break write_pin,
                        None => spin(),
                    }
                };
                let block = u64::from(step + 2) % 3;
                self.write(frame, block);
                self.table.publish(frame, BlockKey::new(0, block), 0, FrameState::default());
                self.frames.release_write_pin(write_pin);
            }
        }

        fn read(&self, block: u64) {
            let key = BlockKey::new(0, block);
            if let Some((pin, ..)) = self.table.pin(&self.frames, key) {
                let frame = self.frames.pinned(&pin) as usize;
                assert_eq!(self.holds[frame].load(Ordering::Relaxed), block);
                self.frames.unpin(pin);
            }
            if let Some((write_pin, _)) = self.table.try_write_pin(&self.frames, key) {
                let frame = self.frames.write_pinned(&write_pin) as usize;
                assert_eq!(self.holds[frame].load(Ordering::Relaxed), block);
                self.frames.release_write_pin(write_pin);
            }
        }
    }

    /// Moves frames while other threads look up blocks; a frame that is found must hold its block.
    ///
    /// # Panics
    /// If a frame that is found holds another block.
    pub fn move_and_look_up(seed: u64, rounds: usize) {
        let scheduler = RandomScheduler::new_from_seed(seed, rounds);
        Runner::new(scheduler, Config::default()).run(|| {
            let holds = [0, 1].map(AtomicU64::new);
            let world = World { table: Table::new(2, 2, 1), frames: NoFrames::new(2), holds };
            for frame in 0..2 {
                let key = BlockKey::new(0, frame.into());
                world.table.publish(frame, key, 0, FrameState::default());
            }
            let world = Arc::new(world);
            let [mover, reader] = [Arc::clone(&world), Arc::clone(&world)];
            let mover = thread::spawn(move || mover.move_frames());
            let reader = thread::spawn(move || (0..3).for_each(|block| reader.read(block)));
            world.read(0);
            world.read(2);
            mover.join().expect("the mover comes to its end");
            reader.join().expect("the reader comes to its end");
        });
    }
}
