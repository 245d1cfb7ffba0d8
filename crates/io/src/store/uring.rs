//! A store on io_uring: reads and writes and flushes in flight together, straight to and from the
//! frames of the cache.

use super::EngineStore;
use super::backing::{Backing, Transfer};
use super::file::OpenedFile;
use super::gather::{Gather, Taken};
use super::plain::zero_rest;
use crate::frames::ArenaFrames;
use crate::waker::Waker;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::{
    Buffer, Geometry, Segment, Store, StoreDone, StoreError, StoreOp, StoreOpKind,
};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Entries of the submission queue; the completion queue has twice as many. More operations than
/// this wait in the cache's queue.
const ENTRIES: u32 = 128;
/// The tag of the poll on the waker's event.
const WAKE: u64 = u64::MAX;

/// An operation that the kernel is doing.
struct InFlight {
    op: StoreOp<ArenaFrames>,
    /// What the kernel was pointed at; must stay where it is until the completion.
    vectors: Box<[libc::iovec]>,
    /// The memory behind that, for later calls.
    rest: Vec<libc::iovec>,
    /// What the kernel was asked to do.
    transfer: Option<Transfer>,
    started_at: Nanos,
    /// The buffer that stands for the memory of the segments.
    gathered: Option<Taken>,
    /// Bytes of earlier calls.
    done: u64,
}

/// A store on io_uring.
pub struct UringStore {
    file: Arc<dyn Backing>,
    ring: IoUring,
    in_flight: Vec<Option<Box<InFlight>>>,
    free: Vec<usize>,
    /// Done without the ring, or found to be wrong before it.
    done: Vec<StoreDone<ArenaFrames>>,
    backlog: VecDeque<squeue::Entry>,
    wake_armed: bool,
    count: usize,
    gather: Gather,
    /// Begun, and waiting for a buffer; while there are any, the buffers are in use.
    held: VecDeque<StoreOp<ArenaFrames>>,
}

impl fmt::Debug for UringStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringStore").finish_non_exhaustive()
    }
}

impl UringStore {
    /// A ring for `file`.
    ///
    /// # Errors
    /// If the kernel has no io_uring, denies it, or lacks waiting with a timeout (Linux 5.11).
    pub fn new(file: Arc<OpenedFile>) -> io::Result<Self> {
        UringStore::on(file)
    }

    /// The same for anything that operations can be done on.
    pub(super) fn on(file: Arc<dyn Backing>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_clamp().build(ENTRIES)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::other("this kernel's io_uring cannot wait with a timeout"));
        }
        Ok(UringStore {
            file,
            ring,
            in_flight: Vec::new(),
            free: Vec::new(),
            done: Vec::new(),
            backlog: VecDeque::new(),
            wake_armed: false,
            count: 0,
            gather: Gather::default(),
            held: VecDeque::new(),
        })
    }

    /// What the kernel is to do for an operation.
    fn entry(&self, index: usize) -> squeue::Entry {
        let flight = self.in_flight[index].as_ref().expect("an operation in flight");
        let InFlight { op, vectors, transfer, .. } = &**flight;
        let transfer = transfer.as_ref().expect("it was pointed at something");
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
        entry.user_data(index as u64)
    }

    /// Asks the kernel to go on with an operation; how it ended, if nothing is left to do.
    fn go_on(&mut self, index: usize, frames: &ArenaFrames) -> Option<Result<(), StoreError>> {
        let flight = self.in_flight[index].as_mut().expect("an operation in flight");
        match self.file.next(&flight.op, flight.done) {
            Ok(Some(transfer)) => {
                point(flight, transfer);
                let entry = self.entry(index);
                self.push(entry);
                None
            }
            Ok(None) => {
                zero_rest(frames, &mut flight.op, flight.done);
                Some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Has the kernel do an operation that has begun.
    fn start(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        let transfer = match self.file.next(&op, 0) {
            Ok(Some(transfer)) => transfer,
            other => {
                let mut result = other.map(|_nothing| zero_rest(frames, &mut op, 0));
                self.file.ended(&op, &mut result);
                self.done.push(StoreDone { op, result, started_at: now, finished_at: now });
                return;
            }
        };
        let mut rest = vectors(frames, &mut op.segments);
        let gathered = self.gather.take(&op, rest.len());
        if let Some(taken) = gathered {
            if op.kind != StoreOpKind::Read {
                self.gather.fill(taken, frames, &op.segments);
            }
            let iov_base = self.gather.bytes(taken).as_mut_ptr().cast();
            let iov_len = usize::try_from(op.len).expect("at most a buffer");
            rest = vec![libc::iovec { iov_base, iov_len }];
        }
        let (vectors, started_at) = (Box::default(), now);
        let mut flight =
            InFlight { op, vectors, rest, transfer: None, started_at, gathered, done: 0 };
        point(&mut flight, transfer);
        let index = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[index] = Some(Box::new(flight));
        self.count += 1;
        let entry = self.entry(index);
        self.push(entry);
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.fill_queue();
    }

    /// Moves entries from the backlog to the submission queue.
    fn fill_queue(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the entry points at memory that stays in place until the completion: frames
            // by their holds, vectors in a box, both of its InFlight, or a buffer of `gather`.
            let pushed = unsafe { queue.push(entry) };
            if pushed.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn take(&mut self, index: usize) -> InFlight {
        self.free.push(index);
        self.count -= 1;
        *self.in_flight[index].take().expect("an operation completes once")
    }

    /// Takes in a completion; `None` if there was more to do.
    fn completed(
        &mut self,
        (index, code): (usize, i32),
        now: Nanos,
        frames: &ArenaFrames,
    ) -> Option<StoreDone<ArenaFrames>> {
        let flight = self.in_flight[index].as_mut().expect("an operation in flight");
        let result = match u64::try_from(code) {
            Err(_) if -code == libc::EINTR || -code == libc::EAGAIN => {
                let entry = self.entry(index);
                self.push(entry);
                return None;
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-code);
                if let Some(error) = self.file.failed(&flight.op, &error) {
                    Err(error)
                } else {
                    advance(flight, 0);
                    self.go_on(index, frames)?
                }
            }
            Ok(_) if flight.op.kind == StoreOpKind::Flush => Ok(()),
            Ok(0) => {
                if let Some(error) = self.file.nothing_came(&flight.op) {
                    Err(error)
                } else {
                    zero_rest(frames, &mut flight.op, flight.done);
                    Ok(())
                }
            }
            Ok(n) => {
                advance(flight, n);
                if flight.done < flight.op.len { self.go_on(index, frames)? } else { Ok(()) }
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
    ) -> StoreDone<ArenaFrames> {
        let InFlight { mut op, started_at, gathered, done, .. } = self.take(index);
        self.gather.took(done, started_at, now);
        if let Some(taken) = gathered {
            if op.kind == StoreOpKind::Read && result.is_ok() {
                self.gather.spread(taken, frames, &mut op.segments, done);
            }
            self.gather.give_back(taken);
        }
        self.file.ended(&op, &mut result);
        StoreDone { op, result, started_at, finished_at: now }
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

/// Skips the bytes that the kernel has moved.
fn advance(flight: &mut InFlight, bytes: u64) {
    flight.done += bytes;
    let mut left = usize::try_from(bytes).expect("at most an operation");
    let mut rest = Vec::new();
    for vector in flight.vectors.iter().chain(&flight.rest) {
        let skip = left.min(vector.iov_len);
        left -= skip;
        if skip < vector.iov_len {
            let iov_base = vector.iov_base.wrapping_byte_add(skip);
            rest.push(libc::iovec { iov_base, iov_len: vector.iov_len - skip });
        }
    }
    flight.vectors = Box::default();
    flight.rest = rest;
}

/// Points the kernel at as much of the memory as a transfer is about.
fn point(flight: &mut InFlight, transfer: Transfer) {
    let all = std::mem::take(&mut flight.rest);
    let mut left = usize::try_from(transfer.len).expect("at most an operation");
    let mut first = Vec::with_capacity(all.len());
    for vector in all {
        let len = left.min(vector.iov_len);
        left -= len;
        if len > 0 {
            first.push(libc::iovec { iov_base: vector.iov_base, iov_len: len });
        }
        if len < vector.iov_len {
            let iov_base = vector.iov_base.wrapping_byte_add(len);
            flight.rest.push(libc::iovec { iov_base, iov_len: vector.iov_len - len });
        }
    }
    flight.vectors = first.into();
    flight.transfer = Some(transfer);
}

/// The memory of an operation's segments, neighbours joined.
fn vectors(frames: &ArenaFrames, segments: &mut [Segment<ArenaFrames>]) -> Vec<libc::iovec> {
    let mut vectors: Vec<libc::iovec> = Vec::with_capacity(segments.len());
    for Segment { buffer, offset, len } in segments {
        let base = match buffer {
            Buffer::Owned(own) => frames.arena().address_mut(own),
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
// rules of its holds; the store holds them through the operations that it owns.
unsafe impl Send for InFlight {}

impl Store<ArenaFrames> for UringStore {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        if let Some(result) = self.file.begin(frames, &mut op) {
            self.done.push(StoreDone { op, result, started_at: now, finished_at: now });
            return;
        }
        if self.gather.is_full() {
            let pieces = vectors(frames, &mut op.segments).len();
            if self.gather.wants(&op, pieces) {
                // Somebody may wait for a read, and nobody for most writes.
                match op.kind {
                    StoreOpKind::Read => self.held.push_front(op),
                    _ => self.held.push_back(op),
                }
                return;
            }
        }
        self.start(now, frames, op);
    }

    fn reap(&mut self, now: Nanos, frames: &ArenaFrames, done: &mut Vec<StoreDone<ArenaFrames>>) {
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
            done.extend(self.completed((index, code), now, frames));
        }
        while !self.gather.is_full()
            && let Some(op) = self.held.pop_front()
        {
            self.start(now, frames, op);
        }
        // What was found to be wrong just now.
        done.append(&mut self.done);
        self.fill_queue();
    }

    fn in_flight(&self) -> usize {
        self.count + self.held.len() + self.done.len()
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
    /// Waits for what the kernel is doing: its memory must not go before.
    fn drop(&mut self) {
        while self.count > 0 {
            if self.ring.submit_and_wait(1).is_err() {
                // What is in flight stays held; losing it is better than losing the memory.
                std::mem::forget(std::mem::take(&mut self.gather));
                break;
            }
            let completions: Vec<u64> = self.ring.completion().map(|c| c.user_data()).collect();
            for tag in completions.into_iter().filter(|&tag| tag != WAKE) {
                std::mem::forget(self.take(usize::try_from(tag).expect("an index")));
            }
        }
        std::mem::forget(std::mem::take(&mut self.in_flight));
        std::mem::forget(std::mem::take(&mut self.held));
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
            let mut own = frames.try_write_pin(frame).expect("free");
            let number = u8::try_from(frame % 251).expect("below 256");
            frames.arena().bytes_mut(&mut own).fill(number);
            frames.release_write_pin(own);
        }
        store.gather.took(1 << 20, 0, 10_000 * MILLISECOND);
        for tag in 0..OPS {
            // Backwards, so that no two frames make one piece.
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
        assert_eq!((store.in_flight(), store.held.len()), (6, 4));
        let waker = Waker::new().expect("a waker");
        let mut done = Vec::new();
        while store.in_flight() > 0 {
            store.wait(&waker, None).expect("wait");
            store.reap(0, &frames, &mut done);
        }
        assert_eq!(done.len(), 6);
        for StoreDone { op, result, .. } in done {
            assert_eq!(result, Ok(()));
            for segment in op.segments {
                let Buffer::Pinned(pin) = segment.buffer else { unreachable!("it was written") };
                frames.unpin(pin);
            }
        }
        for frame in 0..OPS * EACH {
            let (tag, place) = (frame / EACH, frame % EACH);
            let number = (tag * EACH + EACH - 1 - place) % 251;
            let mut block = [0; 4096];
            let at = u64::from(frame) * 4096;
            image.as_file().read_exact_at(&mut block, at).expect("read");
            assert!(block.iter().all(|&byte| u32::from(byte) == number), "block {frame}");
        }
    }
}
