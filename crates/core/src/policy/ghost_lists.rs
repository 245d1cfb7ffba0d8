//! Ghosts in exact queues: for policies that count their ghosts, or drop the oldest of a queue.
//!
//! A ghost enters a queue at its young end and leaves it at the old end or because its page came
//! back. So a queue is a ring of fingerprints, and the index knows the number of each one in it: no
//! links, and next to no memory touched but the index's. What left early is still in the ring, but
//! the index does not name it any more; such leavings are skipped, and swept out before they are
//! more than the ghosts.

use super::index::{Index, fingerprint};
use std::collections::VecDeque;

/// Leavings that a short queue may have.
const SLACK: usize = 32;

#[derive(Debug, Default)]
struct Queue {
    /// The oldest first.
    ring: VecDeque<u32>,
    /// The number of the first fingerprint of the ring, modulo [`GhostLists::NUMBERS`].
    first: u32,
    /// Ghosts that are not leavings.
    len: usize,
}

/// `N` queues of ghosts with one index. A page is in at most one of them.
#[derive(Debug)]
pub(crate) struct GhostLists<const N: usize> {
    /// From a fingerprint to N times its number in the queue plus the number of the queue.
    index: Index,
    queues: [Queue; N],
}

impl<const N: usize> Default for GhostLists<N> {
    fn default() -> Self {
        GhostLists { index: Index::default(), queues: std::array::from_fn(|_| Queue::default()) }
    }
}

impl<const N: usize> GhostLists<N> {
    /// Bytes that a ghost needs at most: a cell of the index, two places in a ring that may have
    /// twice the room it needs.
    pub(crate) const BYTES: usize = Index::BYTES + 4 * size_of::<u32>();

    const COUNT: u32 = {
        assert!(N > 0 && N < 256);
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let count = N as u32;
        count
    };

    /// Numbers in a queue begin again after so many; no queue is half as long.
    const NUMBERS: u32 = u32::MAX / Self::COUNT;

    fn queue_of(value: u32) -> usize {
        (value % Self::COUNT) as usize
    }

    /// What the index says of the ghost at `place` in the ring of a queue.
    fn value(&self, queue: usize, place: usize) -> u32 {
        let number =
            (u64::from(self.queues[queue].first) + place as u64) % u64::from(Self::NUMBERS);
        let value = number * N as u64 + queue as u64;
        u32::try_from(value).expect("below NUMBERS times N")
    }

    /// Ghosts of a queue.
    pub(crate) fn len(&self, queue: usize) -> usize {
        self.queues[queue].len
    }

    /// Ghosts of all queues.
    pub(crate) fn total(&self) -> usize {
        self.index.len()
    }

    /// The queue that `page` is in.
    pub(crate) fn find(&self, page: u64) -> Option<usize> {
        self.index.get(fingerprint(page)).map(Self::queue_of)
    }

    /// Forgets `page`; the queue that it was in.
    pub(crate) fn take(&mut self, page: u64) -> Option<usize> {
        let queue = Self::queue_of(self.index.remove(fingerprint(page))?);
        self.queues[queue].len -= 1;
        self.tidy(queue);
        Some(queue)
    }

    /// Remembers `page` as the newest one of a queue.
    pub(crate) fn push(&mut self, queue: usize, page: u64) {
        let value = self.value(queue, self.queues[queue].ring.len());
        if let Some(before) = self.index.insert(fingerprint(page), value) {
            self.queues[Self::queue_of(before)].len -= 1;
        }
        self.queues[queue].ring.push_back(fingerprint(page));
        self.queues[queue].len += 1;
    }

    /// Forgets the oldest ghost of a queue, if it has one.
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
        self.tidy(queue);
    }

    /// Sweeps the leavings out of a ring that has more of them than ghosts.
    fn tidy(&mut self, queue: usize) {
        let Queue { ring, len, .. } = &self.queues[queue];
        if ring.len() <= len * 2 + SLACK {
            return;
        }
        let is_ghost =
            |&place: &usize| self.index.get(ring[place]) == Some(self.value(queue, place));
        let kept: VecDeque<u32> =
            (0..ring.len()).filter(is_ghost).map(|place| ring[place]).collect();
        self.queues[queue].ring = kept;
        for place in 0..self.queues[queue].ring.len() {
            let value = self.value(queue, place);
            self.index.insert(self.queues[queue].ring[place], value);
        }
    }

    /// Asserts that index and queues agree.
    pub(crate) fn check(&self) {
        self.index.check();
        for (number, queue) in self.queues.iter().enumerate() {
            let is_ghost = |&place: &usize| {
                self.index.get(queue.ring[place]) == Some(self.value(number, place))
            };
            let count = (0..queue.ring.len()).filter(is_ghost).count();
            assert_eq!(count, queue.len, "ghosts of queue {number}");
            assert!(queue.ring.len() <= queue.len * 2 + SLACK + 1, "leavings pile up");
        }
        let total: usize = self.queues.iter().map(|queue| queue.len).sum();
        assert_eq!(total, self.index.len(), "ghosts in queues and in the index");
    }
}
