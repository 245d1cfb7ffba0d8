//! Gathering: on a slow device, one operation of ours is one operation of the device.
//!
//! The frames of a cache that has been in use for a while lie anywhere in memory, and a device
//! takes only so many pieces of memory at once (`queue/max_segments`: a loop device 128, `NVMe`
//! 127, SATA 168). The kernel cuts what has more of them into several operations, although 1 MiB
//! would have been one. A disk that turns, and a volume of a cloud that is counted by operations,
//! lose half of their speed by that. So what has many pieces goes through a buffer in one piece, as
//! long as the copy is nothing beside the time that the device takes.
//!
//! As many buffers as a slow device needs to be busy are enough: what wants one waits for it, since
//! in pieces it would only be in the way.
//!
//! Invariant: a buffer belongs to one operation from [`Gather::take`] to [`Gather::give_back`], and
//! stays where it is as long as the gathering is there.

use crate::frames::ArenaFrames;
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::request::READ_PIECE_BYTES;
use larder_core::store::{Buffer, Segment, StoreOp, StoreOpKind};

/// What one buffer takes: the longest operation.
const BUFFER_BYTES: usize = READ_PIECE_BYTES as usize;
/// As many as keep a slow device busy while the next one is copied.
const BUFFERS: usize = 2;
/// More pieces than this are worth a copy: below, hardly a device cuts.
const PIECES_MAX: usize = 64;
/// A device that takes longer for an operation is slow: the copy takes a tenth of this at most.
const SLOW: Nanos = 2 * MILLISECOND;
/// So many operations tell how slow a device is: more than one hands over at once.
const MEMORY: u64 = 32;
/// Operations from this size on tell how slow a device is.
const TELLING_BYTES: u64 = 64 << 10;
const ALIGN: usize = 4096;

/// Which of the buffers an operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken(usize);

/// The buffers of one store, and whether it is worth using them.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Empty until the first is wanted.
    memory: Vec<u8>,
    busy: [bool; BUFFERS],
    service: Service,
}

/// How long a device takes for an operation: the mean of about the last [`MEMORY`] of them.
///
/// Each counts for the time since the one before it was done, if that was later than its own
/// start: what a device does side by side, or hands over by tens after a pause, as one does that
/// is limited to a number of operations per second, adds up to the time in which it was busy.
#[derive(Debug, Default)]
struct Service {
    elapsed: Nanos,
    operations: u64,
    last_finished: Nanos,
}

impl Service {
    fn took(&mut self, len: u64, started_at: Nanos, finished_at: Nanos) {
        let elapsed = finished_at.saturating_sub(started_at.max(self.last_finished));
        self.last_finished = self.last_finished.max(finished_at);
        if len < TELLING_BYTES {
            return;
        }
        if self.operations == MEMORY {
            self.elapsed -= self.elapsed / MEMORY;
        } else {
            self.operations += 1;
        }
        self.elapsed += elapsed;
    }

    /// 0 while unknown.
    fn mean(&self) -> Nanos {
        self.elapsed / self.operations.max(1)
    }
}

impl Gather {
    /// Notes from when to when an operation of `len` bytes was under way.
    pub(super) fn took(&mut self, len: u64, started_at: Nanos, finished_at: Nanos) {
        self.service.took(len, started_at, finished_at);
    }

    /// Whether a buffer is worth it for an operation on `pieces` pieces of memory.
    pub(super) fn wants(&self, op: &StoreOp<ArenaFrames>, pieces: usize) -> bool {
        let moves = matches!(op.kind, StoreOpKind::Read | StoreOpKind::Write { .. });
        let fits = op.len <= BUFFER_BYTES as u64;
        moves && fits && pieces > PIECES_MAX && self.service.mean() >= SLOW
    }

    /// Whether all buffers belong to operations.
    pub(super) fn is_full(&self) -> bool {
        self.busy.iter().all(|&busy| busy)
    }

    /// A buffer for an operation on `pieces` pieces of memory, if it is worth it and one is free.
    pub(super) fn take(&mut self, op: &StoreOp<ArenaFrames>, pieces: usize) -> Option<Taken> {
        if !self.wants(op, pieces) {
            return None;
        }
        let free = self.busy.iter().position(|busy| !busy)?;
        if self.memory.is_empty() {
            // Large enough for the allocator of our programs to ask for a huge page, which is what
            // makes a buffer one piece of physical memory.
            self.memory = vec![0; BUFFERS * BUFFER_BYTES + ALIGN];
        }
        self.busy[free] = true;
        Some(Taken(free))
    }

    /// Where a buffer is, and how long it is.
    pub(super) fn bytes(&mut self, taken: Taken) -> &mut [u8] {
        let start = self.memory.as_ptr().align_offset(ALIGN) + taken.0 * BUFFER_BYTES;
        &mut self.memory[start..start + BUFFER_BYTES]
    }

    /// Copies what an operation writes into its buffer.
    pub(super) fn fill(
        &mut self,
        taken: Taken,
        frames: &ArenaFrames,
        segments: &[Segment<ArenaFrames>],
    ) {
        let mut rest = self.bytes(taken);
        for Segment { buffer, offset, len } in segments {
            let (piece, after) = rest.split_at_mut(*len as usize);
            if let Buffer::Pinned(pin) = buffer {
                let start = *offset as usize;
                piece.copy_from_slice(&frames.arena().bytes(pin)[start..start + piece.len()]);
            }
            rest = after;
        }
    }

    /// Copies the first `bytes` that an operation has read from its buffer to where they belong.
    pub(super) fn spread(
        &mut self,
        taken: Taken,
        frames: &ArenaFrames,
        segments: &mut [Segment<ArenaFrames>],
        bytes: u64,
    ) {
        let bytes = usize::try_from(bytes).expect("at most an operation");
        let mut rest = &self.bytes(taken)[..bytes];
        for Segment { buffer, offset, len } in segments {
            let (piece, after) = rest.split_at(rest.len().min(*len as usize));
            if let Buffer::Owned(own) = buffer {
                let start = *offset as usize;
                frames.arena().bytes_mut(own)[start..start + piece.len()].copy_from_slice(piece);
            }
            rest = after;
        }
    }

    /// The operation is over.
    pub(super) fn give_back(&mut self, taken: Taken) {
        debug_assert!(self.busy[taken.0], "{taken:?} is given back once");
        self.busy[taken.0] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::frames::Frames;
    use larder_mem::{Arena, ArenaOptions};

    const FRAMES: u32 = 256;

    fn frames() -> ArenaFrames {
        let options = ArenaOptions { frames: FRAMES, huge_pages: false, lock: false };
        ArenaFrames::new(Arena::new(options).expect("1 MiB"))
    }

    fn op(kind: StoreOpKind, segments: Vec<Segment<ArenaFrames>>) -> StoreOp<ArenaFrames> {
        let len = segments.iter().map(|segment| u64::from(segment.len)).sum();
        StoreOp { tag: 0, kind, offset: 0, len, segments, queued_at: 0 }
    }

    /// Every frame, from the last to the first, each without its first 512 bytes.
    fn backwards(frames: &ArenaFrames, owned: bool) -> Vec<Segment<ArenaFrames>> {
        let segment = |frame: u32| {
            let buffer = if owned {
                Buffer::Owned(frames.try_write_pin(frame).expect("free"))
            } else {
                Buffer::Pinned(frames.try_pin(frame).expect("free"))
            };
            Segment { buffer, offset: 512, len: 3584 }
        };
        (0..FRAMES).rev().map(segment).collect()
    }

    fn let_go(frames: &ArenaFrames, op: StoreOp<ArenaFrames>) {
        for segment in op.segments {
            match segment.buffer {
                Buffer::Owned(own) => frames.release_write_pin(own),
                Buffer::Pinned(pin) => frames.unpin(pin),
            }
        }
    }

    fn slow() -> Gather {
        let mut gather = Gather::default();
        gather.took(1 << 20, 0, 10 * MILLISECOND);
        gather
    }

    #[test]
    fn what_is_read_in_one_piece_and_written_in_one_piece_is_the_same() {
        let (frames, mut gather) = (frames(), slow());
        let mut read = op(StoreOpKind::Read, backwards(&frames, true));
        let taken = gather.take(&read, read.segments.len()).expect("it is worth it");
        let wanted: Vec<u8> = (0..read.len).map(|n| (n % 251) as u8).collect();
        gather.bytes(taken)[..wanted.len()].copy_from_slice(&wanted);
        gather.spread(taken, &frames, &mut read.segments, read.len - 100);
        gather.give_back(taken);
        let_go(&frames, read);

        let write = op(StoreOpKind::Write { fua: false }, backwards(&frames, false));
        let taken = gather.take(&write, write.segments.len()).expect("it is worth it");
        gather.bytes(taken).fill(0xee);
        gather.fill(taken, &frames, &write.segments);
        let end = wanted.len() - 100;
        assert_eq!(gather.bytes(taken)[..end], wanted[..end]);
        assert!(gather.bytes(taken)[end..wanted.len()].iter().all(|&byte| byte == 0), "not read");
        assert!(gather.bytes(taken)[wanted.len()..].iter().all(|&byte| byte == 0xee));
        let_go(&frames, write);
    }

    /// A hundred per second, as the kernel limits them: ten at once, every 100 ms.
    #[test]
    fn a_device_that_answers_by_tens_is_slow_all_the_time() {
        let mut gather = Gather::default();
        for burst in 1..20 {
            let finished_at = burst * 100 * MILLISECOND;
            for _ in 0..10 {
                gather.took(1 << 20, finished_at - 60 * MILLISECOND, finished_at);
                assert!(gather.service.mean() >= SLOW, "{gather:?}");
            }
        }
    }

    #[test]
    fn only_a_slow_device_and_many_pieces_are_worth_a_copy() {
        let frames = frames();
        let write = op(StoreOpKind::Write { fua: false }, backwards(&frames, false));
        let pieces = write.segments.len();
        let mut unknown = Gather::default();
        assert_eq!(unknown.take(&write, pieces), None);
        let mut fast = Gather::default();
        for _ in 0..16 {
            fast.took(1 << 20, 0, 10 * MILLISECOND);
        }
        assert_eq!(fast.take(&write, pieces), None, "16 at once: 0.6 ms each");
        fast.took(4096, 0, 900 * MILLISECOND);
        assert_eq!(fast.take(&write, pieces), None, "small operations tell nothing");
        let mut slow = slow();
        assert_eq!(slow.take(&write, PIECES_MAX), None);
        let first = slow.take(&write, pieces).expect("it is worth it");
        let second = slow.take(&write, pieces).expect("there are two");
        assert_ne!(first, second);
        assert_ne!(slow.bytes(first).as_ptr(), slow.bytes(second).as_ptr());
        assert_eq!(slow.take(&write, pieces), None, "both are busy");
        slow.give_back(first);
        assert_eq!(slow.take(&write, pieces), Some(first));
        let_go(&frames, write);
        let flush = op(StoreOpKind::Flush, Vec::new());
        slow.give_back(second);
        assert_eq!(slow.take(&flush, pieces), None, "nothing to copy");
    }
}
