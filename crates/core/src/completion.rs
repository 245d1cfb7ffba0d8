//! Handles of threads on volumes, and the completions that they receive.
//!
//! A `VolumeHandle` belongs to one session. It has a recorder that only its thread writes, a ring
//! of hits per shard, and a queue for the completions of operations that were pending.

use crate::frames::Frames;
use crate::policy::Slot;
use crate::store::StoreError;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// Wakes a thread that waits for work. The cache calls it with locks held, so an implementation
/// must not do more than wake.
pub trait Wake: Send + Sync {
    /// Wakes the thread.
    fn wake(&self);
}

/// A [`Wake`] that wakes no thread, for callers that poll, as tests and simulations do.
#[derive(Debug)]
pub struct NoWaker;

impl Wake for NoWaker {
    fn wake(&self) {}
}

/// The completion of a pending operation, or a reason to retry a stalled one.
#[derive(Debug)]
pub(crate) enum Completion<F: Frames> {
    /// The store has filled blocks that a read waits for, from part `part` of the read on.
    Filled {
        /// Token of the request.
        token: u64,
        /// Index of the first part.
        part: u32,
        /// The blocks, in order.
        pins: Vec<F::Pin>,
    },
    /// The store could not read blocks that a read or a partial write waits for.
    Failed {
        /// Token of the request.
        token: u64,
        /// Number of parts.
        parts: u32,
        /// The error of the store.
        error: StoreError,
    },
    /// The store has filled the page that a partial write waits for: the caller continues the
    /// write.
    Continue {
        /// Token of the request.
        token: u64,
        /// Pins of the page, which protect it from eviction until the caller continues the write.
        /// Only the first write that waits for the page gets them.
        pins: Vec<F::Pin>,
    },
    /// The writeback of pages that a write waits for has ended.
    Synced {
        /// Token of the request.
        token: u64,
        /// Number of pages.
        pages: u32,
        /// True if the pages are on stable storage without a flush.
        stable: bool,
        /// Result of the writeback.
        result: Result<(), StoreError>,
    },
    /// A flush, discard or zeroing has ended.
    Finished {
        /// Token of the request.
        token: u64,
        /// Result of the operation.
        result: Result<(), StoreError>,
    },
    /// Frames or other resources may be free again: the caller retries its stalled operations.
    Unstalled,
}

/// The completions that one handle has not collected.
pub(crate) struct CompletionQueue<F: Frames> {
    inbox: Mutex<Vec<Completion<F>>>,
    /// True if the inbox has entries. A caller does not lock an empty inbox.
    has_entries: AtomicBool,
    closed: AtomicBool,
    waker: Box<dyn Wake>,
    /// Number of write errors of the volume that this handle has reported to its client.
    pub(crate) errors_seen: AtomicU64,
}

impl<F: Frames> std::fmt::Debug for CompletionQueue<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue").finish_non_exhaustive()
    }
}

impl<F: Frames> CompletionQueue<F> {
    pub(crate) fn new(waker: Box<dyn Wake>, errors_seen: u64) -> Self {
        CompletionQueue {
            inbox: Mutex::new(Vec::new()),
            has_entries: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker,
            errors_seen: AtomicU64::new(errors_seen),
        }
    }

    /// Delivers a completion. If the handle is closed, its pins are released instead.
    pub(crate) fn deliver(&self, frames: &F, completion: Completion<F>) {
        let mut inbox = lock(&self.inbox);
        if self.closed.load(Ordering::Acquire) {
            drop(inbox);
            release_pins(frames, completion);
            return;
        }
        inbox.push(completion);
        self.has_entries.store(true, Ordering::Release);
        drop(inbox);
        self.waker.wake();
    }

    pub(crate) fn collect(&self, to: &mut Vec<Completion<F>>) {
        if self.has_entries.swap(false, Ordering::AcqRel) {
            to.append(&mut lock(&self.inbox));
        }
    }

    /// Releases the memory that many completions have taken.
    pub(crate) fn shrink(&self) {
        lock(&self.inbox).shrink_to(INBOX_CAPACITY_KEPT);
    }

    pub(crate) fn has_completions(&self) -> bool {
        self.has_entries.load(Ordering::Acquire)
    }

    /// Refuses further deliveries, and releases the pins of the completions that are queued.
    pub(crate) fn close(&self, frames: &F) {
        let mut inbox = lock(&self.inbox);
        self.closed.store(true, Ordering::Release);
        for completion in inbox.drain(..) {
            release_pins(frames, completion);
        }
    }
}

fn release_pins<F: Frames>(frames: &F, completion: Completion<F>) {
    if let Completion::Filled { pins, .. } | Completion::Continue { pins, .. } = completion {
        for pin in pins {
            frames.unpin(pin);
        }
    }
}

/// Hits of one handle on one shard that the policies have not received.
///
/// The thread of the handle writes, and the holder of the shard's lock reads. So the hits of one
/// handle stay in order, and the order between handles is off by at most one ring.
///
/// Aligned to a cache line: different threads write different rings.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Ring {
    /// The volume of the handle, and so of all hits.
    volume: u16,
    entries: [AtomicU32; RING_ENTRIES],
    head: AtomicU32,
    tail: AtomicU32,
}

const RING_ENTRIES: usize = 64;
/// Number of completions for which an empty inbox keeps memory.
const INBOX_CAPACITY_KEPT: usize = 64;

impl Ring {
    pub(crate) fn new(volume: u16) -> Self {
        Ring {
            volume,
            entries: std::array::from_fn(|_| AtomicU32::new(0)),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    pub(crate) fn volume(&self) -> u16 {
        self.volume
    }

    /// Records a hit. Returns false if the ring is full. Only the thread of the handle may call it.
    #[inline]
    pub(crate) fn push(&self, slot: Slot) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize == RING_ENTRIES {
            return false;
        }
        self.entries[head as usize % RING_ENTRIES].store(slot, Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        true
    }

    /// Returns all recorded hits without removing them. The caller holds the shard's lock.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Slot> + '_ {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        (0..head.wrapping_sub(tail)).map(move |i| self.entry(tail.wrapping_add(i)))
    }

    /// Removes all recorded hits and passes them to `hit`. Returns their number. The caller holds
    /// the shard's lock.
    pub(crate) fn drain(&self, mut hit: impl FnMut(Slot)) -> u64 {
        let head = self.head.load(Ordering::Acquire);
        let mut tail = self.tail.load(Ordering::Relaxed);
        let count = u64::from(head.wrapping_sub(tail));
        while tail != head {
            hit(self.entry(tail));
            tail = tail.wrapping_add(1);
        }
        self.tail.store(tail, Ordering::Release);
        count
    }

    #[inline]
    fn entry(&self, index: u32) -> Slot {
        self.entries[index as usize % RING_ENTRIES].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::PlainFrames;

    #[test]
    fn a_mailbox_has_mail_from_delivery_to_collection() {
        let frames = PlainFrames::new(1);
        let queue = CompletionQueue::<PlainFrames>::new(Box::new(NoWaker), 0);
        assert!(!queue.has_completions(), "nothing was delivered");
        queue.deliver(&frames, Completion::Unstalled);
        assert!(queue.has_completions());
        let mut completions = Vec::new();
        queue.collect(&mut completions);
        assert_eq!(completions.len(), 1);
        assert!(!queue.has_completions(), "it was collected");
    }

    #[test]
    fn a_closed_mailbox_releases_pins_instead_of_keeping_them() {
        let frames = PlainFrames::new(2);
        let queue = CompletionQueue::<PlainFrames>::new(Box::new(NoWaker), 0);
        for frame in [0, 1] {
            let pins = vec![frames.try_pin(frame).unwrap()];
            let filled = Completion::Filled { token: 1, part: 0, pins };
            queue.deliver(&frames, filled);
            if frame == 0 {
                assert!(frames.try_write_pin(0).is_none(), "the mailbox holds the pin");
                queue.close(&frames);
            }
        }
        for frame in [0, 1] {
            assert!(frames.try_write_pin(frame).is_some(), "frame {frame} is free");
        }
    }
}
