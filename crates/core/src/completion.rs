//! Lanes: how one thread talks to a volume.
//!
//! A lane belongs to one connection or one user of the cache in process. It has a recorder that
//! nobody else writes, a ring of hits per shard, and an inbox for what is done later.

use crate::counters::Recorder;
use crate::frames::{FrameId, Frames};
use crate::policy::Slot;
use crate::readahead::Detector;
use crate::store::StoreError;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::volume::Volume;

/// Tells somebody that there is something to do. Called with locks held: it must only wake.
pub trait Notify: Send + Sync {
    /// Wakes.
    fn notify(&self);
}

/// Wakes nobody: for callers that ask by themselves, as tests and simulations do.
#[derive(Debug)]
pub struct Silent;

impl Notify for Silent {
    fn notify(&self) {}
}

/// Something that was asked for earlier and is done now, or can be asked for again.
#[derive(Debug)]
pub(crate) enum Completion<F: Frames> {
    /// Blocks that a read waited for, from part `part` of its assembly on.
    Filled {
        /// The request.
        token: u64,
        /// Index of the first part.
        part: u32,
        /// The blocks, in order.
        pins: Vec<F::Pin>,
    },
    /// Blocks that a read or a partial write waited for could not be read.
    Failed {
        /// The request.
        token: u64,
        /// How many parts.
        parts: u32,
        /// Why.
        error: StoreError,
    },
    /// The page that a write needed from the store is there: continue the write.
    Continue {
        /// The request.
        token: u64,
        /// Pins of the page, which keep it from being evicted until the write is continued. Only
        /// the first write that waited for the page gets them.
        pins: Vec<F::Pin>,
    },
    /// Pages of a write that waited for the store have been written, or not.
    Synced {
        /// The request.
        token: u64,
        /// How many pages.
        pages: u32,
        /// Whether they are on stable storage without a flush.
        stable: bool,
        /// How it went.
        result: Result<(), StoreError>,
    },
    /// A flush, discard or zeroing is done.
    Finished {
        /// The request.
        token: u64,
        /// How it went.
        result: Result<(), StoreError>,
    },
    /// There may be room now: try again what was stalled.
    Unstalled,
}

/// Where the completions of a lane arrive.
pub(crate) struct CompletionQueue<F: Frames> {
    inbox: Mutex<Vec<Completion<F>>>,
    /// Whether the inbox has something, so that an empty one is not locked.
    has_entries: AtomicBool,
    closed: AtomicBool,
    notify: Box<dyn Notify>,
    /// The write errors of the volume that this lane has been told of.
    pub(crate) errors_seen: AtomicU64,
}

impl<F: Frames> std::fmt::Debug for CompletionQueue<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl<F: Frames> CompletionQueue<F> {
    pub(crate) fn new(notify: Box<dyn Notify>, errors_seen: u64) -> Self {
        CompletionQueue {
            inbox: Mutex::new(Vec::new()),
            has_entries: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            notify,
            errors_seen: AtomicU64::new(errors_seen),
        }
    }

    /// Delivers; if the lane is closed its pins are given back.
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
        self.notify.notify();
    }

    /// Moves everything that arrived to `to`.
    pub(crate) fn collect(&self, to: &mut Vec<Completion<F>>) {
        if self.has_entries.swap(false, Ordering::AcqRel) {
            to.append(&mut lock(&self.inbox));
        }
    }

    pub(crate) fn has_completions(&self) -> bool {
        self.has_entries.load(Ordering::Acquire)
    }

    /// Refuses further deliveries and gives back what lies there.
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

/// Hits of one lane on one shard, waiting to be told to the policies.
///
/// The lane's thread writes; whoever holds the shard's lock reads. So the order of one lane is
/// kept, and the order between lanes is off by at most a ring.
///
/// On cache lines of its own: lanes are used by different threads.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Ring {
    entries: [AtomicU64; RING_ENTRIES],
    head: AtomicU32,
    tail: AtomicU32,
}

const RING_ENTRIES: usize = 64;
/// Number of completions for which an inbox keeps memory.
const INBOX_CAPACITY_KEPT: usize = 64;

impl Ring {
    pub(crate) fn new() -> Self {
        Ring {
            entries: std::array::from_fn(|_| AtomicU64::new(0)),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    /// Notes a hit; false if the ring is full. Only the lane's own thread may.
    #[inline]
    pub(crate) fn push(&self, volume: u16, slot: Slot) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize == RING_ENTRIES {
            return false;
        }
        let entry = (u64::from(volume) << 32) | u64::from(slot);
        self.entries[head as usize % RING_ENTRIES].store(entry, Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        true
    }

    /// All hits noted so far, which stay noted, under the shard's lock.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (u16, Slot)> + '_ {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        (0..head.wrapping_sub(tail)).map(move |i| self.entry(tail.wrapping_add(i)))
    }

    /// Takes all hits noted so far, under the shard's lock; how many.
    pub(crate) fn drain(&self, mut hit: impl FnMut(u16, Slot)) -> u64 {
        let head = self.head.load(Ordering::Acquire);
        let mut tail = self.tail.load(Ordering::Relaxed);
        let count = u64::from(head.wrapping_sub(tail));
        while tail != head {
            let (volume, slot) = self.entry(tail);
            hit(volume, slot);
            tail = tail.wrapping_add(1);
        }
        self.tail.store(tail, Ordering::Release);
        count
    }

    #[inline]
    fn entry(&self, index: u32) -> (u16, Slot) {
        let entry = self.entries[index as usize % RING_ENTRIES].load(Ordering::Relaxed);
        let volume = u16::try_from(entry >> 32).expect("packed from a u16");
        (volume, u32::try_from(entry & 0xffff_ffff).expect("32 bits"))
    }
}

/// The handle of one thread on one volume. Only the request engine opens it; close it with
/// [`crate::cache::Cache::close_handle`].
#[derive(Debug)]
pub(crate) struct VolumeHandle<F: Frames> {
    pub(crate) volume: Arc<Volume<F>>,
    pub(crate) completions: Arc<CompletionQueue<F>>,
    pub(crate) rings: Box<[Arc<Ring>]>,
    pub(crate) recorder: Arc<Recorder>,
    /// The streams that its client reads in.
    pub(crate) detector: Detector,
    /// Frames taken from the pool for the request at hand.
    pub(crate) spare: Vec<FrameId>,
}

impl<F: Frames> VolumeHandle<F> {
    /// The lane's own counters.
    #[must_use]
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Moves what is done to `to`.
    pub(crate) fn collect(&self, to: &mut Vec<Completion<F>>) {
        self.completions.collect(to);
    }

    /// Whether [`VolumeHandle::collect`] would find something.
    #[must_use]
    pub(crate) fn has_completions(&self) -> bool {
        self.completions.has_completions()
    }

    /// Releases the memory of many completions.
    pub(crate) fn shrink(&self) {
        lock(&self.completions.inbox).shrink_to(INBOX_CAPACITY_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::PlainFrames;

    #[test]
    fn a_mailbox_has_mail_from_delivery_to_collection() {
        let frames = PlainFrames::new(1);
        let queue = CompletionQueue::<PlainFrames>::new(Box::new(Silent), 0);
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
        let queue = CompletionQueue::<PlainFrames>::new(Box::new(Silent), 0);
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
