//! Buckets: the heads of the chains of a page table, whose number grows.
//!
//! Each shard begins with enough buckets for its frames, a power of two. When the shard gets more
//! frames, buckets are added one at a time (linear hashing: Litwin, "Linear hashing: a new tool for
//! file and table addressing", VLDB 1980): bucket `n` takes over a part of bucket `n - 2^k`, where
//! `2^k` is the largest power of two up to `n`. So growth is a series of short steps under the
//! shard's lock, and no bucket moves. A reader without the lock that still computes with one bucket
//! less misses the blocks that have moved, and then searches under the lock.

use crate::frames::NO_FRAME;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::OnceLock;

/// The buckets of all shards.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The initial buckets of all shards, `first_each` per shard.
    first: Box<[AtomicU32]>,
    first_each: usize,
    /// Number of buckets in use, by shard.
    counts: Box<[AtomicUsize]>,
    /// Added buckets, by shard and doubling; each doubling has as many as there were before it.
    later: Box<[OnceLock<Box<[AtomicU32]>>]>,
    doublings: usize,
}

fn empty(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(NO_FRAME)).collect()
}

impl Buckets {
    /// Returns buckets for `frames` frames in each shard, which can grow to `frames_max`.
    pub(super) fn new(frames: usize, frames_max: usize, shards: usize) -> Self {
        let first_each = frames.next_power_of_two().max(16);
        let buckets_max = frames_max.next_power_of_two().max(first_each);
        let doublings = (buckets_max / first_each).ilog2() as usize;
        Buckets {
            first: empty(first_each * shards),
            first_each,
            counts: (0..shards).map(|_| AtomicUsize::new(first_each)).collect(),
            later: (0..doublings * shards).map(|_| OnceLock::new()).collect(),
            doublings,
        }
    }

    /// Returns the bucket of `hash_index`, which may be any number.
    #[inline]
    pub(super) fn get(&self, shard: usize, hash_index: usize) -> &AtomicU32 {
        if self.counts[shard].load(Ordering::Acquire) == self.first_each {
            return &self.first[shard * self.first_each + (hash_index & (self.first_each - 1))];
        }
        self.get_grown(shard, hash_index)
    }

    /// Not inlined, so that [`Buckets::get`] stays small for caches of their initial size.
    #[cold]
    #[inline(never)]
    fn get_grown(&self, shard: usize, hash_index: usize) -> &AtomicU32 {
        let count = self.counts[shard].load(Ordering::Acquire);
        let mask = count.next_power_of_two() - 1;
        let index = hash_index & mask;
        self.at(shard, if index < count { index } else { index & (mask >> 1) })
    }

    fn at(&self, shard: usize, index: usize) -> &AtomicU32 {
        if index < self.first_each {
            return &self.first[shard * self.first_each + index];
        }
        let doubling = (index / self.first_each).ilog2() as usize;
        let begin = self.first_each << doubling;
        let later = self.later[shard * self.doublings + doubling].get();
        &later.expect("made before the count says so")[index - begin]
    }

    /// Returns true if a shard has a bucket for each of `frames` frames, or the maximum number.
    pub(super) fn is_enough(&self, shard: usize, frames: usize) -> bool {
        let count = self.counts[shard].load(Ordering::Relaxed);
        count >= frames || count == self.first_each << self.doublings
    }

    /// Adds a bucket if a shard of `frames` frames needs one. Returns the bucket to split and the
    /// new one, which is empty. The caller holds the shard's lock and moves the entries before it
    /// releases the lock; until then lookups do not find them.
    pub(super) fn grow(&self, shard: usize, frames: usize) -> Option<(&AtomicU32, &AtomicU32)> {
        if self.is_enough(shard, frames) {
            return None;
        }
        let count = self.counts[shard].load(Ordering::Relaxed);
        let doubling = (count / self.first_each).ilog2() as usize;
        let later = &self.later[shard * self.doublings + doubling];
        later.get_or_init(|| empty(self.first_each << doubling));
        self.counts[shard].store(count + 1, Ordering::Release);
        Some((self.at(shard, count - (1 << count.ilog2())), self.at(shard, count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_bucket_takes_places_of_its_parent_only() {
        let buckets = Buckets::new(16, 100, 2);
        let address = |hash_index| std::ptr::from_ref(buckets.get(1, hash_index)) as usize;
        for count in 16..128 {
            let before: Vec<_> = (0..1024).map(address).collect();
            let (parent, new) = buckets.grow(1, 100_000).unwrap();
            let [parent, new] = [parent, new].map(|bucket| std::ptr::from_ref(bucket) as usize);
            let mut moved = 0;
            for (hash_index, was) in before.into_iter().enumerate() {
                let is = address(hash_index);
                assert!(is == was || (was == parent && is == new), "{count}: place {hash_index}");
                moved += usize::from(is != was);
            }
            assert!(moved > 0, "bucket {count} takes nothing");
        }
        assert!(buckets.grow(1, 100_000).is_none(), "100 frames have at most 128 buckets");
        assert!(buckets.is_enough(0, 16) && !buckets.is_enough(0, 17), "the other shard is as was");
    }
}
