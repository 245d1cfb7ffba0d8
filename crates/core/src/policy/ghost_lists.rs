//! Ghosts in exact queues: for policies that count their ghosts, or drop the oldest of a queue.
//!
//! A ghost enters a queue at its new end and leaves it at the old end, or earlier because its page
//! is referenced again. A queue is a ring of fingerprints, and the index maps a fingerprint to its
//! number in the queue: there are no links, and an operation touches little memory besides the
//! index. A fingerprint that was removed early stays in the ring as a stale entry, which the index
//! does not refer to; stale entries are skipped, and compacted before they outnumber the ghosts.

use super::index::{Index, fingerprint};
use std::collections::VecDeque;

/// The number of stale entries that a short queue may have.
const SLACK: usize = 32;

#[derive(Debug, Default)]
struct Queue {
    /// Fingerprints, the oldest first.
    ring: VecDeque<u32>,
    /// The number of the first fingerprint of the ring, modulo [`GhostLists::NUMBERS`].
    first: u32,
    /// Ghosts without stale entries.
    len: usize,
}

/// `N` queues of ghosts with one index. A page is in at most one of them.
#[derive(Debug)]
pub(crate) struct GhostLists<const N: usize> {
    /// Maps a fingerprint to N times its number in the queue plus the index of the queue.
    index: Index,
    queues: [Queue; N],
}

impl<const N: usize> Default for GhostLists<N> {
    fn default() -> Self {
        GhostLists { index: Index::default(), queues: std::array::from_fn(|_| Queue::default()) }
    }
}

impl<const N: usize> GhostLists<N> {
    /// Maximum memory per ghost in bytes: a cell of the index, and two entries of a ring whose
    /// capacity may be twice its length.
    pub(crate) const BYTES: usize = Index::BYTES + 4 * size_of::<u32>();

    const COUNT: u32 = {
        assert!(N > 0 && N < 256);
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let count = N as u32;
        count
    };

    /// Numbers in a queue wrap at this value; no queue is half as long.
    const NUMBERS: u32 = u32::MAX / Self::COUNT;

    fn queue_of(value: u32) -> usize {
        (value % Self::COUNT) as usize
    }

    /// Returns the index value of the ghost at `position` in the ring of a queue.
    fn value(&self, queue: usize, position: usize) -> u32 {
        let number =
            (u64::from(self.queues[queue].first) + position as u64) % u64::from(Self::NUMBERS);
        let value = number * N as u64 + queue as u64;
        u32::try_from(value).expect("below NUMBERS times N")
    }

    pub(crate) fn len(&self, queue: usize) -> usize {
        self.queues[queue].len
    }

    pub(crate) fn total(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn find(&self, page: u64) -> Option<usize> {
        self.index.get(fingerprint(page)).map(Self::queue_of)
    }

    /// Removes `page`; returns the queue that contained it.
    pub(crate) fn take(&mut self, page: u64) -> Option<usize> {
        let queue = Self::queue_of(self.index.remove(fingerprint(page))?);
        self.queues[queue].len -= 1;
        self.compact(queue);
        Some(queue)
    }

    /// Inserts `page` as the newest ghost of a queue.
    pub(crate) fn push(&mut self, queue: usize, page: u64) {
        let value = self.value(queue, self.queues[queue].ring.len());
        if let Some(before) = self.index.insert(fingerprint(page), value) {
            self.queues[Self::queue_of(before)].len -= 1;
        }
        self.queues[queue].ring.push_back(fingerprint(page));
        self.queues[queue].len += 1;
    }

    /// Removes the oldest ghost of a queue, if it has one.
    pub(crate) fn pop_oldest(&mut self, queue: usize) {
        let mut found = false;
        while !found && let Some(&oldest) = self.queues[queue].ring.front() {
            found = self.index.get(oldest) == Some(self.value(queue, 0));
            let queue = &mut self.queues[queue];
            queue.ring.pop_front();
            queue.first = (queue.first + 1) % Self::NUMBERS;
            if found {
                queue.len -= 1;
                self.index.remove(oldest);
            }
        }
        self.compact(queue);
    }

    /// Compacts a ring with more stale entries than ghosts.
    fn compact(&mut self, queue: usize) {
        let Queue { ring, len, .. } = &self.queues[queue];
        if ring.len() <= len * 2 + SLACK {
            return;
        }
        let is_ghost =
            |&position: &usize| self.index.get(ring[position]) == Some(self.value(queue, position));
        let kept: VecDeque<u32> =
            (0..ring.len()).filter(is_ghost).map(|position| ring[position]).collect();
        self.queues[queue].ring = kept;
        for position in 0..self.queues[queue].ring.len() {
            let value = self.value(queue, position);
            self.index.insert(self.queues[queue].ring[position], value);
        }
    }

    /// Asserts that index and queues agree.
    pub(crate) fn check(&self) {
        self.index.check();
        for (number, queue) in self.queues.iter().enumerate() {
            let is_ghost = |&position: &usize| {
                self.index.get(queue.ring[position]) == Some(self.value(number, position))
            };
            let count = (0..queue.ring.len()).filter(is_ghost).count();
            assert_eq!(count, queue.len, "ghosts of queue {number}");
            assert!(queue.ring.len() <= queue.len * 2 + SLACK + 1, "leavings pile up");
        }
        let total: usize = self.queues.iter().map(|queue| queue.len).sum();
        assert_eq!(total, self.index.len(), "ghosts in queues and in the index");
    }
}
