//! Bounce buffers: on a slow device, one operation of the cache is one operation of the device.
//!
//! The frames of a cache that has been in use for a while are scattered in memory, and a device
//! accepts only a limited number of memory segments per operation (`queue/max_segments`: a loop
//! device 128, `NVMe` 127, SATA 168). The kernel splits a request with more segments into several
//! operations, although 1 MiB would fit into one. A rotating disk, and a cloud volume with a limit
//! on operations per second, lose half of their speed by that. So a request with many segments goes
//! through a contiguous buffer, as long as the copy takes little time compared with the device.
//!
//! As many buffers as a slow device needs to be busy are enough: further requests wait for one,
//! since split into several operations they would only delay the others.
//!
//! Invariant: a buffer belongs to one operation from [`BounceBuffers::acquire`] to
//! [`BounceBuffers::release`], and stays at its address as long as the buffers exist.

use crate::frames::ArenaFrames;
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::request::READ_PIECE_BYTES;
use larder_core::store::{Buffer, Segment, StoreOp, StoreOpKind};

/// Size of one buffer: the longest operation.
const BUFFER_BYTES: usize = READ_PIECE_BYTES as usize;
/// Number of buffers: enough to keep a slow device busy while the next one is copied.
const BUFFERS: usize = 2;
/// Requests with more segments than this are worth a copy: hardly any device splits smaller ones.
const PIECES_MAX: usize = 64;
/// A device with a longer service time is slow: the copy takes a tenth of this at most.
const SLOW_SERVICE: Nanos = 2 * MILLISECOND;
/// Number of operations in the mean service time: more than a device completes at once.
const SAMPLES: u64 = 32;
/// Minimum length of operations that count for the service time.
const SAMPLE_BYTES_MIN: u64 = 64 << 10;
const ALIGN: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferIndex(usize);

/// The bounce buffers of one store, and the service time of its device.
#[derive(Debug, Default)]
pub(super) struct BounceBuffers {
    /// Empty until the first buffer is needed.
    memory: Vec<u8>,
    busy: [bool; BUFFERS],
    service: ServiceTime,
}

/// Mean service time of a device, over about the last [`SAMPLES`] operations.
///
/// Each operation counts for the time since the previous one completed, if that was later than its
/// own start. So the times of operations that a device executes in parallel, or completes in
/// batches after a pause, as one with a limit on operations per second does, add up to the time in
/// which the device was busy.
#[derive(Debug, Default)]
struct ServiceTime {
    elapsed: Nanos,
    operations: u64,
    last_finished: Nanos,
}

impl ServiceTime {
    fn record(&mut self, len: u64, started_at: Nanos, finished_at: Nanos) {
        let elapsed = finished_at.saturating_sub(started_at.max(self.last_finished));
        self.last_finished = self.last_finished.max(finished_at);
        if len < SAMPLE_BYTES_MIN {
            return;
        }
        if self.operations == SAMPLES {
            self.elapsed -= self.elapsed / SAMPLES;
        } else {
            self.operations += 1;
        }
        self.elapsed += elapsed;
    }

    /// Returns the mean; 0 while it is unknown.
    fn mean(&self) -> Nanos {
        self.elapsed / self.operations.max(1)
    }
}

impl BounceBuffers {
    pub(super) fn record(&mut self, len: u64, started_at: Nanos, finished_at: Nanos) {
        self.service.record(len, started_at, finished_at);
    }

    /// Returns true if a buffer is worth its copy for an operation on `pieces` segments of memory.
    pub(super) fn is_worthwhile(&self, op: &StoreOp<ArenaFrames>, pieces: usize) -> bool {
        let moves = matches!(op.kind, StoreOpKind::Read | StoreOpKind::Write { .. });
        let fits = op.len <= BUFFER_BYTES as u64;
        moves && fits && pieces > PIECES_MAX && self.service.mean() >= SLOW_SERVICE
    }

    pub(super) fn is_full(&self) -> bool {
        self.busy.iter().all(|&busy| busy)
    }

    /// Returns a buffer for an operation on `pieces` segments of memory, if it is worth its copy
    /// and one is free.
    pub(super) fn acquire(
        &mut self,
        op: &StoreOp<ArenaFrames>,
        pieces: usize,
    ) -> Option<BufferIndex> {
        if !self.is_worthwhile(op, pieces) {
            return None;
        }
        let free = self.busy.iter().position(|busy| !busy)?;
        if self.memory.is_empty() {
            // Large enough for the allocator of the programs to request a huge page, which makes a
            // buffer contiguous in physical memory.
            self.memory = vec![0; BUFFERS * BUFFER_BYTES + ALIGN];
        }
        self.busy[free] = true;
        Some(BufferIndex(free))
    }

    pub(super) fn bytes(&mut self, index: BufferIndex) -> &mut [u8] {
        let start = self.memory.as_ptr().align_offset(ALIGN) + index.0 * BUFFER_BYTES;
        &mut self.memory[start..start + BUFFER_BYTES]
    }

    /// Copies the data that an operation writes into its buffer.
    pub(super) fn copy_in(
        &mut self,
        index: BufferIndex,
        frames: &ArenaFrames,
        segments: &[Segment<ArenaFrames>],
    ) {
        let mut rest = self.bytes(index);
        for Segment { buffer, offset, len } in segments {
            let (piece, after) = rest.split_at_mut(*len as usize);
            if let Buffer::Pinned(pin) = buffer {
                let start = *offset as usize;
                piece.copy_from_slice(&frames.arena().bytes(pin)[start..start + piece.len()]);
            }
            rest = after;
        }
    }

    /// Copies the first `bytes` of a read from its buffer to the memory of the operation.
    pub(super) fn copy_out(
        &mut self,
        index: BufferIndex,
        frames: &ArenaFrames,
        segments: &mut [Segment<ArenaFrames>],
        bytes: u64,
    ) {
        let bytes = usize::try_from(bytes).expect("at most an operation");
        let mut rest = &self.bytes(index)[..bytes];
        for Segment { buffer, offset, len } in segments {
            let (piece, after) = rest.split_at(rest.len().min(*len as usize));
            if let Buffer::Owned(pin) = buffer {
                let start = *offset as usize;
                frames.arena().bytes_mut(pin)[start..start + piece.len()].copy_from_slice(piece);
            }
            rest = after;
        }
    }

    pub(super) fn release(&mut self, index: BufferIndex) {
        debug_assert!(self.busy[index.0], "{index:?} is given back once");
        self.busy[index.0] = false;
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

    /// Returns a segment for every frame, from the last to the first, each without its first 512
    /// bytes.
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

    fn release_op(frames: &ArenaFrames, op: StoreOp<ArenaFrames>) {
        for segment in op.segments {
            match segment.buffer {
                Buffer::Owned(pin) => frames.release_write_pin(pin),
                Buffer::Pinned(pin) => frames.unpin(pin),
            }
        }
    }

    fn slow() -> BounceBuffers {
        let mut buffers = BounceBuffers::default();
        buffers.record(1 << 20, 0, 10 * MILLISECOND);
        buffers
    }

    #[test]
    fn what_is_read_in_one_piece_and_written_in_one_piece_is_the_same() {
        let (frames, mut buffers) = (frames(), slow());
        let mut read = op(StoreOpKind::Read, backwards(&frames, true));
        let index = buffers.acquire(&read, read.segments.len()).expect("it is worth it");
        let expected: Vec<u8> = (0..read.len).map(|n| (n % 251) as u8).collect();
        buffers.bytes(index)[..expected.len()].copy_from_slice(&expected);
        buffers.copy_out(index, &frames, &mut read.segments, read.len - 100);
        buffers.release(index);
        release_op(&frames, read);

        let write = op(StoreOpKind::Write { fua: false }, backwards(&frames, false));
        let index = buffers.acquire(&write, write.segments.len()).expect("it is worth it");
        buffers.bytes(index).fill(0xee);
        buffers.copy_in(index, &frames, &write.segments);
        let end = expected.len() - 100;
        assert_eq!(buffers.bytes(index)[..end], expected[..end]);
        assert!(
            buffers.bytes(index)[end..expected.len()].iter().all(|&byte| byte == 0),
            "not read"
        );
        assert!(buffers.bytes(index)[expected.len()..].iter().all(|&byte| byte == 0xee));
        release_op(&frames, write);
    }

    /// A device with a limit of a hundred operations per second, as the kernel applies it: ten at
    /// once, every 100 ms.
    #[test]
    fn a_device_that_answers_by_tens_is_slow_all_the_time() {
        let mut buffers = BounceBuffers::default();
        for burst in 1..20 {
            let finished_at = burst * 100 * MILLISECOND;
            for _ in 0..10 {
                buffers.record(1 << 20, finished_at - 60 * MILLISECOND, finished_at);
                assert!(buffers.service.mean() >= SLOW_SERVICE, "{buffers:?}");
            }
        }
    }

    #[test]
    fn only_a_slow_device_and_many_pieces_are_worth_a_copy() {
        let frames = frames();
        let write = op(StoreOpKind::Write { fua: false }, backwards(&frames, false));
        let pieces = write.segments.len();
        let mut unknown = BounceBuffers::default();
        assert_eq!(unknown.acquire(&write, pieces), None);
        let mut fast = BounceBuffers::default();
        for _ in 0..16 {
            fast.record(1 << 20, 0, 10 * MILLISECOND);
        }
        assert_eq!(fast.acquire(&write, pieces), None, "16 at once: 0.6 ms each");
        fast.record(4096, 0, 900 * MILLISECOND);
        assert_eq!(fast.acquire(&write, pieces), None, "small operations tell nothing");
        let mut slow = slow();
        assert_eq!(slow.acquire(&write, PIECES_MAX), None);
        let first = slow.acquire(&write, pieces).expect("it is worth it");
        let second = slow.acquire(&write, pieces).expect("there are two");
        assert_ne!(first, second);
        assert_ne!(slow.bytes(first).as_ptr(), slow.bytes(second).as_ptr());
        assert_eq!(slow.acquire(&write, pieces), None, "both are busy");
        slow.release(first);
        assert_eq!(slow.acquire(&write, pieces), Some(first));
        release_op(&frames, write);
        let flush = op(StoreOpKind::Flush, Vec::new());
        slow.release(second);
        assert_eq!(slow.acquire(&flush, pieces), None, "nothing to copy");
    }
}
