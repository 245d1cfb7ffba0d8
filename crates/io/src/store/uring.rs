//! A store on io_uring: reads, writes and flushes are in flight together, directly to and from the
//! frames of the cache.

use super::EngineStore;
use super::backing::{Backing, Transfer};
use super::gather::{BounceBuffers, BufferIndex};
use super::plain::zero_rest;
use crate::frames::ArenaFrames;
use crate::waker::Waker;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::{
    Buffer, Geometry, Segment, Store, StoreCompletion, StoreError, StoreOp, StoreOpKind,
};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Entries of the submission queue; the completion queue has twice as many. More operations than
/// this wait in the cache's queue.
const ENTRIES: u32 = 128;
/// Tag of the poll on the waker's event.
const WAKE: u64 = u64::MAX;

/// An operation in flight in the kernel.
struct InFlight {
    op: StoreOp<ArenaFrames>,
    /// The memory of the segments, or the bounce buffer that replaces it.
    memory: Vec<libc::iovec>,
    /// The part of the memory for the call in flight. The kernel reads these vectors; they must
    /// stay in place until the completion.
    vectors: Box<[libc::iovec]>,
    /// The system call in flight.
    transfer: Transfer,
    started_at: Nanos,
    buffer_index: Option<BufferIndex>,
    /// Bytes that earlier calls have moved.
    done: u64,
}

pub(super) struct UringStore {
    backing: Arc<dyn Backing>,
    ring: IoUring,
    in_flight: Slab<Box<InFlight>>,
    /// Operations that completed without the ring, or failed before it.
    done: Vec<StoreCompletion<ArenaFrames>>,
    backlog: VecDeque<squeue::Entry>,
    wake_armed: bool,
    buffers: BounceBuffers,
    /// Operations that have begun, and wait for a buffer; while there are any, all buffers are in
    /// use.
    waiting: VecDeque<StoreOp<ArenaFrames>>,
}

impl UringStore {
    /// Creates a ring for a backing.
    ///
    /// # Errors
    /// If the kernel has no io_uring, denies it, or lacks waiting with a timeout (Linux 5.11).
    pub(super) fn new(backing: Arc<dyn Backing>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().build(ENTRIES)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::other("this kernel's io_uring cannot wait with a timeout"));
        }
        Ok(UringStore {
            backing,
            ring,
            in_flight: Slab::new(),
            done: Vec::new(),
            backlog: VecDeque::new(),
            wake_armed: false,
            buffers: BounceBuffers::default(),
            waiting: VecDeque::new(),
        })
    }

    /// Queues the submission entry of an operation.
    fn push_call(&mut self, index: usize) {
        let InFlight { op, vectors, transfer, .. } = &*self.in_flight[index];
        let (descriptor, at) = (types::Fd(transfer.descriptor().as_raw_fd()), transfer.offset);
        let count = u32::try_from(vectors.len()).expect("at most 512 vectors");
        let entry = match op.kind {
            StoreOpKind::Read => {
                opcode::Readv::new(descriptor, vectors.as_ptr(), count).offset(at).build()
            }
            StoreOpKind::Write { fua } => {
                let flags = if fua { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(descriptor, vectors.as_ptr(), count)
                    .offset(at)
                    .rw_flags(flags)
                    .build()
            }
            StoreOpKind::Flush => {
                let data_only = types::FsyncFlags::DATASYNC;
                let flags = if transfer.metadata { types::FsyncFlags::empty() } else { data_only };
                opcode::Fsync::new(descriptor).flags(flags).build()
            }
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
                unreachable!("discards and zeroings are plain calls")
            }
        };
        self.push(entry.user_data(index as u64));
    }

    /// Submits the next call of an operation; returns its result if no call is left.
    fn continue_operation(
        &mut self,
        index: usize,
        frames: &ArenaFrames,
    ) -> Option<Result<(), StoreError>> {
        let flight = &mut *self.in_flight[index];
        match self.backing.next_transfer(&flight.op, flight.done) {
            Ok(Some(transfer)) => {
                flight.vectors = part(&flight.memory, flight.done, transfer.len);
                flight.transfer = transfer;
                self.push_call(index);
                None
            }
            Ok(None) => {
                zero_rest(frames, &mut flight.op, flight.done);
                Some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Submits the first call of an operation that has begun.
    fn start(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        let transfer = match self.backing.next_transfer(&op, 0) {
            Ok(Some(transfer)) => transfer,
            other => {
                let mut result = other.map(|_nothing| zero_rest(frames, &mut op, 0));
                self.backing.finish(&op, &mut result);
                self.done.push(StoreCompletion { op, result, started_at: now, finished_at: now });
                return;
            }
        };
        let mut memory = vectors(frames, &mut op.segments);
        let buffer_index = self.buffers.acquire(&op, memory.len());
        if let Some(buffer_index) = buffer_index {
            if op.kind != StoreOpKind::Read {
                self.buffers.copy_in(buffer_index, frames, &op.segments);
            }
            let iov_base = self.buffers.bytes(buffer_index).as_mut_ptr().cast();
            let iov_len = usize::try_from(op.len).expect("at most a buffer");
            memory = vec![libc::iovec { iov_base, iov_len }];
        }
        let (vectors, started_at) = (part(&memory, 0, transfer.len), now);
        let flight = InFlight { op, memory, vectors, transfer, started_at, buffer_index, done: 0 };
        let index = self.in_flight.insert(Box::new(flight));
        self.push_call(index);
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.fill_queue();
    }

    /// Moves entries from the backlog to the submission queue.
    fn fill_queue(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the entry points to memory that stays in place until the completion: frames
            // by their pins, and vectors in a box, both owned by its InFlight, or a buffer of
            // `buffers`.
            let pushed = unsafe { queue.push(entry) };
            if pushed.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Processes a completion; `None` if the operation continues.
    fn handle_completion(
        &mut self,
        (index, code): (usize, i32),
        now: Nanos,
        frames: &ArenaFrames,
    ) -> Option<StoreCompletion<ArenaFrames>> {
        let flight = &mut *self.in_flight[index];
        let result = match u64::try_from(code) {
            Err(_) if -code == libc::EINTR || -code == libc::EAGAIN => {
                self.push_call(index);
                return None;
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-code);
                if let Some(error) = self.backing.call_failed(&flight.op, &error) {
                    Err(error)
                } else {
                    self.continue_operation(index, frames)?
                }
            }
            Ok(_) if flight.op.kind == StoreOpKind::Flush => Ok(()),
            Ok(0) => {
                if let Some(error) = self.backing.no_progress(&flight.op) {
                    Err(error)
                } else {
                    zero_rest(frames, &mut flight.op, flight.done);
                    Ok(())
                }
            }
            Ok(n) => {
                flight.done += n;
                if flight.done < flight.op.len {
                    self.continue_operation(index, frames)?
                } else {
                    Ok(())
                }
            }
        };
        Some(self.end(index, result, now, frames))
    }

    fn end(
        &mut self,
        index: usize,
        mut result: Result<(), StoreError>,
        now: Nanos,
        frames: &ArenaFrames,
    ) -> StoreCompletion<ArenaFrames> {
        let InFlight { mut op, started_at, buffer_index, done, .. } = *self.in_flight.remove(index);
        self.buffers.record(done, started_at, now);
        if let Some(buffer_index) = buffer_index {
            if op.kind == StoreOpKind::Read && result.is_ok() {
                self.buffers.copy_out(buffer_index, frames, &mut op.segments, done);
            }
            self.buffers.release(buffer_index);
        }
        self.backing.finish(&op, &mut result);
        StoreCompletion { op, result, started_at, finished_at: now }
    }

    fn arm_wake(&mut self, waker: &Waker) {
        if self.wake_armed {
            return;
        }
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let poll = opcode::PollAdd::new(types::Fd(waker.event().as_raw_fd()), events);
        self.push(poll.build().user_data(WAKE));
        self.wake_armed = true;
    }
}

/// Returns the parts of an operation's memory for a call that moves `len` bytes from byte `done`
/// on.
fn part(memory: &[libc::iovec], done: u64, len: u64) -> Box<[libc::iovec]> {
    let [mut skip, mut left] = [done, len].map(|n| usize::try_from(n).expect("an operation"));
    let parts = memory.iter().map(|vector| {
        let skipped = skip.min(vector.iov_len);
        let iov_len = left.min(vector.iov_len - skipped);
        (skip, left) = (skip - skipped, left - iov_len);
        libc::iovec { iov_base: vector.iov_base.wrapping_byte_add(skipped), iov_len }
    });
    let mut found = Vec::with_capacity(memory.len());
    found.extend(parts.filter(|part| part.iov_len > 0));
    found.into()
}

/// Returns the memory of an operation's segments, with neighbors joined.
fn vectors(frames: &ArenaFrames, segments: &mut [Segment<ArenaFrames>]) -> Vec<libc::iovec> {
    let mut vectors: Vec<libc::iovec> = Vec::with_capacity(segments.len());
    for Segment { buffer, offset, len } in segments {
        let base = match buffer {
            Buffer::Owned(pin) => frames.arena().address_mut(pin),
            Buffer::Pinned(pin) => frames.arena().address(pin).cast_mut(),
        };
        let iov_base = base.wrapping_add(*offset as usize).cast::<libc::c_void>();
        match vectors.last_mut() {
            Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == iov_base => {
                last.iov_len += *len as usize;
            }
            _ => vectors.push(libc::iovec { iov_base, iov_len: *len as usize }),
        }
    }
    vectors
}

// SAFETY: the raw pointers in the vectors point into the arena, which every thread may use by the
// rules of its pins; the store holds the pins through the operations that it owns.
unsafe impl Send for InFlight {}

impl Store<ArenaFrames> for UringStore {
    fn geometry(&self) -> Geometry {
        self.backing.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        if let Some(result) = self.backing.begin(frames, &mut op) {
            self.done.push(StoreCompletion { op, result, started_at: now, finished_at: now });
            return;
        }
        if self.buffers.is_full() {
            let pieces = vectors(frames, &mut op.segments).len();
            if self.buffers.is_worthwhile(&op, pieces) {
                // A client may wait for a read, but not for most writes.
                match op.kind {
                    StoreOpKind::Read => self.waiting.push_front(op),
                    _ => self.waiting.push_back(op),
                }
                return;
            }
        }
        self.start(now, frames, op);
    }

    fn reap(
        &mut self,
        now: Nanos,
        frames: &ArenaFrames,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) {
        done.append(&mut self.done);
        if !self.ring.submission().is_empty() {
            // EBUSY and EINTR resolve themselves: the entries stay queued until the next call.
            let submitted = self.ring.submit();
            debug_assert!(
                submitted.as_ref().is_ok_and(|_| true)
                    || submitted.is_err_and(|e| {
                        matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EINTR | libc::EAGAIN))
                    }),
                "io_uring refused what it was given"
            );
        }
        let completions: Vec<(u64, i32)> =
            self.ring.completion().map(|c: cqueue::Entry| (c.user_data(), c.result())).collect();
        for (tag, code) in completions {
            if tag == WAKE {
                self.wake_armed = false;
                continue;
            }
            let index = usize::try_from(tag).expect("an index");
            done.extend(self.handle_completion((index, code), now, frames));
        }
        while !self.buffers.is_full()
            && let Some(op) = self.waiting.pop_front()
        {
            self.start(now, frames, op);
        }
        // Operations that have failed just now.
        done.append(&mut self.done);
        self.fill_queue();
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.waiting.len() + self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.done.is_empty()).then_some(0)
    }
}

impl EngineStore for UringStore {
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        if !self.done.is_empty() || !self.ring.completion().is_empty() {
            return Ok(());
        }
        self.arm_wake(waker);
        if !waker.prepare_sleep() {
            return Ok(());
        }
        let timeout = timeout.unwrap_or(Duration::from_nanos(SECOND * 3600));
        let timespec = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let arguments = types::SubmitArgs::new().timespec(&timespec);
        let waited = self.ring.submitter().submit_with_args(1, &arguments);
        waker.awake();
        match waited {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

impl Drop for UringStore {
    /// Waits for operations in the kernel: their memory must not be freed before.
    fn drop(&mut self) {
        while !self.in_flight.is_empty() {
            if self.ring.submit_and_wait(1).is_err() {
                // Operations in flight stay pinned; leaking them is better than freeing their
                // memory.
                std::mem::forget(std::mem::take(&mut self.buffers));
                break;
            }
            let completions: Vec<u64> = self.ring.completion().map(|c| c.user_data()).collect();
            for tag in completions.into_iter().filter(|&tag| tag != WAKE) {
                let index = usize::try_from(tag).expect("an index");
                std::mem::forget(self.in_flight.remove(index));
            }
        }
        std::mem::forget(std::mem::take(&mut self.in_flight));
        std::mem::forget(std::mem::take(&mut self.waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open_file;
    use larder_core::clock::MILLISECOND;
    use larder_core::frames::Frames;
    use larder_mem::{Arena, ArenaOptions};
    use std::os::unix::fs::FileExt as _;

    const OPS: u32 = 6;
    const EACH: u32 = 256;

    #[test]
    fn what_waits_for_a_buffer_is_done_as_the_rest() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let bytes = u64::from(OPS * EACH) * 4096;
        image.as_file().set_len(bytes).expect("make it long");
        let file = Arc::new(open_file(image.path(), false).expect("open it"));
        let mut store = match UringStore::new(file) {
            Ok(store) => store,
            Err(error) => {
                larder_testing::skip(error);
                return;
            }
        };
        let options = ArenaOptions { frames: OPS * EACH, huge_pages: false, lock: false };
        let frames = ArenaFrames::new(Arena::new(options).expect("6 MiB"));
        for frame in 0..OPS * EACH {
            let mut pin = frames.try_write_pin(frame).expect("free");
            let number = u8::try_from(frame % 251).expect("below 256");
            frames.arena().bytes_mut(&mut pin).fill(number);
            frames.release_write_pin(pin);
        }
        store.buffers.record(1 << 20, 0, 10_000 * MILLISECOND);
        for tag in 0..OPS {
            // Backwards, so that no two frames are joined.
            let of_op = (tag * EACH..(tag + 1) * EACH).rev();
            let segments = of_op.map(|frame| {
                let buffer = Buffer::Pinned(frames.try_pin(frame).expect("free"));
                Segment { buffer, offset: 0, len: 4096 }
            });
            let (offset, len) = (u64::from(tag * EACH) * 4096, u64::from(EACH) * 4096);
            let kind = StoreOpKind::Write { fua: false };
            let segments = segments.collect();
            let tag = u64::from(tag);
            let op = StoreOp { tag, kind, offset, len, segments, queued_at: 0 };
            store.submit(0, &frames, op);
        }
        assert_eq!((store.in_flight(), store.waiting.len()), (6, 4));
        let waker = Waker::new().expect("a waker");
        let mut done = Vec::new();
        while store.in_flight() > 0 {
            store.wait(&waker, None).expect("wait");
            store.reap(0, &frames, &mut done);
        }
        assert_eq!(done.len(), 6);
        for StoreCompletion { op, result, .. } in done {
            assert_eq!(result, Ok(()));
            for segment in op.segments {
                let Buffer::Pinned(pin) = segment.buffer else { unreachable!("it was written") };
                frames.unpin(pin);
            }
        }
        for frame in 0..OPS * EACH {
            let (tag, index) = (frame / EACH, frame % EACH);
            let number = (tag * EACH + EACH - 1 - index) % 251;
            let mut block = [0; 4096];
            let at = u64::from(frame) * 4096;
            image.as_file().read_exact_at(&mut block, at).expect("read");
            assert!(block.iter().all(|&byte| u32::from(byte) == number), "block {frame}");
        }
    }
}
