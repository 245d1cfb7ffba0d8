//! The page table: from a block of a volume to the frame that holds it.
//!
//! Chains of frames behind buckets, all in fixed arrays of atomics. Each bucket belongs to one
//! shard, and a chain changes only under that shard's lock; reading takes no lock. A reader may
//! meet a chain in the middle of a change, or follow a frame that has just moved to another chain:
//! so it holds the frame first (a pin), looks at its key again, and after [`WALK_MAX`] steps gives
//! up. What it misses this way it finds under the lock.
//!
//! All blocks of an aligned 1 MiB region belong to one shard, whatever the page size, so that a
//! page never spans shards and a change of page size never moves a block.

use super::{FrameState, mix};
use crate::frames::{FrameId, Frames, NO_FRAME};
use crate::policy::Slot;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Longest walk without a lock. Chains have 1 to 4 frames; a longer walk has lost its way.
const WALK_MAX: usize = 32;
const REGION_SHIFT: u32 = 8;

/// A block of a volume, packed: volume + 1 in the upper 16 bits, block number below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    const NONE: u64 = 0;
    const BLOCK_BITS: u32 = 48;

    pub(crate) fn new(volume: u16, block: u64) -> Self {
        debug_assert!(block < 1 << Self::BLOCK_BITS, "volumes end at 2^60 bytes");
        Key(((u64::from(volume) + 1) << Self::BLOCK_BITS) | block)
    }
}

#[derive(Debug)]
struct Descriptor {
    key: AtomicU64,
    state: AtomicU32,
    next: AtomicU32,
    slot: AtomicU32,
}

/// Finds the frame of a block.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Box<[AtomicU32]>,
    descriptors: Box<[Descriptor]>,
    shard_bits: u32,
    /// Buckets of one shard, a power of two.
    buckets_per_shard: usize,
}

impl Table {
    /// Bytes of the table for each frame: a descriptor and up to two buckets.
    pub(crate) const BYTES_PER_FRAME: usize = size_of::<Descriptor>() + 2 * size_of::<u32>();

    pub(crate) fn new(frames: u32, shards: usize) -> Self {
        assert!(shards.is_power_of_two(), "shards are a power of two");
        let descriptor = || Descriptor {
            key: AtomicU64::new(Key::NONE),
            state: AtomicU32::new(0),
            next: AtomicU32::new(NO_FRAME),
            slot: AtomicU32::new(0),
        };
        let buckets_per_shard = (frames as usize / shards).next_power_of_two().max(16);
        Table {
            buckets: (0..buckets_per_shard * shards).map(|_| AtomicU32::new(NO_FRAME)).collect(),
            descriptors: (0..frames).map(|_| descriptor()).collect(),
            shard_bits: shards.trailing_zeros(),
            buckets_per_shard,
        }
    }

    fn shard_of_hash(&self, hash: u64) -> usize {
        // A shift by 64 is not one: with a single shard there is nothing to choose.
        usize::try_from(hash.checked_shr(64 - self.shard_bits).unwrap_or(0)).expect("few shards")
    }

    /// The shard that the block's region belongs to.
    pub(crate) fn shard(&self, key: Key) -> usize {
        self.shard_of_hash(mix(key.0 >> REGION_SHIFT))
    }

    fn bucket(&self, key: Key) -> &AtomicU32 {
        let hash = mix(key.0 >> REGION_SHIFT);
        // Neighbouring blocks lie in neighbouring buckets: a large request walks along them.
        let within = (hash.wrapping_add(key.0 & ((1 << REGION_SHIFT) - 1)) & 0xffff_ffff) as usize;
        let first = self.shard_of_hash(hash) * self.buckets_per_shard;
        &self.buckets[first + (within & (self.buckets_per_shard - 1))]
    }

    fn descriptor(&self, frame: FrameId) -> &Descriptor {
        &self.descriptors[frame as usize]
    }

    /// Has the bucket of `key` come near: the first of two steps, before [`Table::approach`].
    #[inline]
    pub(crate) fn look_ahead<F: Frames>(&self, key: Key) {
        F::fetch(self.bucket(key));
    }

    /// Has what lies behind the bucket come near: the descriptor, the latch, and the bytes from
    /// `within` on of the frame that is most likely that of `key`, the first of its chain.
    #[inline]
    pub(crate) fn approach<F: Frames>(&self, frames: &F, key: Key, within: usize) {
        let guess = self.bucket(key).load(Ordering::Relaxed);
        if let Some(descriptor) = self.descriptors.get(guess as usize) {
            F::fetch(descriptor);
            frames.prefetch(guess, within);
        }
    }

    /// The frame of `key`, pinned, with its state; without a lock.
    #[inline]
    pub(crate) fn pin<F: Frames>(&self, frames: &F, key: Key) -> Option<(F::Pin, FrameState)> {
        let frame = self.walk(key, WALK_MAX)?;
        let pin = frames.try_pin(frame)?;
        if self.holds(frame, key) {
            let state = self.state(frame);
            return Some((pin, state));
        }
        frames.unpin(pin);
        None
    }

    /// The frame of `key`, owned, with its state; without a lock.
    #[inline]
    pub(crate) fn own<F: Frames>(&self, frames: &F, key: Key) -> Option<(F::Own, FrameState)> {
        let frame = self.walk(key, WALK_MAX)?;
        let own = frames.try_own(frame)?;
        if self.holds(frame, key) {
            let state = self.state(frame);
            return Some((own, state));
        }
        frames.disown(own);
        None
    }

    #[inline]
    fn walk(&self, key: Key, steps: usize) -> Option<FrameId> {
        let mut frame = self.bucket(key).load(Ordering::Acquire);
        for _ in 0..steps {
            if frame == NO_FRAME {
                return None;
            }
            let descriptor = self.descriptor(frame);
            if descriptor.key.load(Ordering::Acquire) == key.0 {
                return Some(frame);
            }
            frame = descriptor.next.load(Ordering::Acquire);
        }
        None
    }

    fn holds(&self, frame: FrameId, key: Key) -> bool {
        self.descriptor(frame).key.load(Ordering::Acquire) == key.0
    }

    /// The frame of `key`; exact, under the lock of its shard.
    pub(crate) fn find(&self, key: Key) -> Option<FrameId> {
        self.walk(key, usize::MAX)
    }

    pub(crate) fn state(&self, frame: FrameId) -> FrameState {
        FrameState::unpack(self.descriptor(frame).state.load(Ordering::Acquire))
    }

    /// Sets the state of a published frame, under the lock of its shard and a hold on the frame.
    pub(crate) fn set_state(&self, frame: FrameId, state: FrameState) {
        self.descriptor(frame).state.store(state.pack(), Ordering::Release);
    }

    /// Takes the mark of read-ahead from the frame of `key`, if it is found without a lock; whether
    /// it had one.
    pub(crate) fn unmark(&self, key: Key) -> bool {
        let Some(frame) = self.walk(key, WALK_MAX) else { return false };
        let state = &self.descriptor(frame).state;
        FrameState::unpack(state.load(Ordering::Relaxed)).ahead
            && FrameState::unpack(state.fetch_and(FrameState::UNMARKED, Ordering::AcqRel)).ahead
    }

    /// The slot of the page that the frame is part of. Without a lock it may be a moment old.
    pub(crate) fn slot(&self, frame: FrameId) -> Slot {
        self.descriptor(frame).slot.load(Ordering::Relaxed)
    }

    /// Makes a frame findable as `key`, under the lock of its shard.
    pub(crate) fn publish(&self, frame: FrameId, key: Key, slot: Slot, state: FrameState) {
        let bucket = self.bucket(key);
        let descriptor = self.descriptor(frame);
        debug_assert_eq!(descriptor.key.load(Ordering::Relaxed), Key::NONE, "published twice");
        descriptor.slot.store(slot, Ordering::Relaxed);
        descriptor.state.store(state.pack(), Ordering::Release);
        descriptor.next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        descriptor.key.store(key.0, Ordering::Release);
        bucket.store(frame, Ordering::Release);
    }

    /// Makes a frame unfindable, under the lock of its shard. Pins taken before stay good.
    pub(crate) fn retract(&self, frame: FrameId) {
        let descriptor = self.descriptor(frame);
        let key = Key(descriptor.key.swap(Key::NONE, Ordering::AcqRel));
        debug_assert_ne!(key.0, Key::NONE, "retracted twice");
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
