//! A store on io_uring: reads and writes and flushes in flight together, straight to and from the
//! frames of the cache.

use super::EngineStore;
use super::error::store_error;
use super::file::OpenedFile;
use super::plain::execute;
use crate::frames::ArenaFrames;
use crate::wake::Waker;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::{
    Buffer, Geometry, Segment, Store, StoreDone, StoreError, StoreErrorKind, StoreOp, StoreOpKind,
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
    started_at: Nanos,
    /// Bytes that came before a short completion.
    done: u64,
}

/// A store on io_uring.
pub struct UringStore {
    file: Arc<OpenedFile>,
    ring: IoUring,
    in_flight: Vec<Option<Box<InFlight>>>,
    free: Vec<usize>,
    /// Done without the ring, or found to be wrong before it.
    done: Vec<StoreDone<ArenaFrames>>,
    backlog: VecDeque<squeue::Entry>,
    wake_armed: bool,
    count: usize,
}

impl fmt::Debug for UringStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringStore").field("file", &self.file).finish_non_exhaustive()
    }
}

impl UringStore {
    /// A ring for `file`.
    ///
    /// # Errors
    /// If the kernel has no io_uring, denies it, or lacks waiting with a timeout (Linux 5.11).
    pub fn new(file: Arc<OpenedFile>) -> io::Result<Self> {
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
        })
    }

    /// Points the kernel at what is left of an operation.
    fn entry(&self, index: usize) -> squeue::Entry {
        let flight = self.in_flight[index].as_ref().expect("an operation in flight");
        let InFlight { op, vectors, done, .. } = &**flight;
        let at = op.offset + done;
        let descriptor = types::Fd(self.file.descriptor(at, op.len - done).as_raw_fd());
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
            StoreOpKind::Flush => opcode::Fsync::new(types::Fd(self.file.main().as_raw_fd()))
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
                unreachable!("discards and zeroings are plain calls")
            }
        };
        entry.user_data(index as u64)
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.fill_queue();
    }

    /// Moves entries from the backlog to the submission queue.
    fn fill_queue(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the entry points at frames and vectors that its InFlight keeps in place until
            // the completion: the frames by their holds, the vectors in a box.
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

    /// Takes in a completion; `None` if the rest of a short one was submitted.
    fn completed(&mut self, index: usize, code: i32, now: Nanos) -> Option<StoreDone<ArenaFrames>> {
        let flight = self.in_flight[index].as_mut().expect("an operation in flight");
        let (kind, len) = (flight.op.kind, flight.op.len);
        let result = match u64::try_from(code) {
            Err(_) if -code == libc::EINTR || -code == libc::EAGAIN => {
                let entry = self.entry(index);
                self.push(entry);
                return None;
            }
            Err(_) => {
                let (offset, error) = (flight.op.offset, io::Error::from_raw_os_error(-code));
                Err(store_error(&self.file.path, kind, offset, len, &error))
            }
            Ok(_) if kind == StoreOpKind::Flush => Ok(()),
            Ok(n) if flight.done + n == len => Ok(()),
            Ok(0) => Err(self.nothing_came(kind)),
            Ok(n) => {
                advance(flight, n);
                let entry = self.entry(index);
                self.push(entry);
                return None;
            }
        };
        let InFlight { op, started_at, .. } = self.take(index);
        Some(StoreDone { op, result, started_at, finished_at: now })
    }

    fn nothing_came(&self, kind: StoreOpKind) -> StoreError {
        let length = self.file.check_length(kind);
        length.err().unwrap_or_else(|| {
            let message = format!("{kind} {}: the kernel moved nothing", self.file.path.display());
            StoreError::new(StoreErrorKind::Io, message)
        })
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

/// Skips the bytes of a short completion in the vectors.
fn advance(flight: &mut InFlight, bytes: u64) {
    flight.done += bytes;
    let mut left = usize::try_from(bytes).expect("at most an operation");
    let mut rest = Vec::new();
    for vector in &flight.vectors {
        let skip = left.min(vector.iov_len);
        left -= skip;
        if skip < vector.iov_len {
            let iov_base = vector.iov_base.wrapping_byte_add(skip);
            rest.push(libc::iovec { iov_base, iov_len: vector.iov_len - skip });
        }
    }
    flight.vectors = rest.into();
}

/// The memory of an operation's segments, neighbours joined.
fn vectors(frames: &ArenaFrames, segments: &mut [Segment<ArenaFrames>]) -> Box<[libc::iovec]> {
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
    vectors.into()
}

// SAFETY: the raw pointers in the vectors point into the arena, which every thread may use by the
// rules of its holds; the store holds them through the operations that it owns.
unsafe impl Send for InFlight {}

impl Store<ArenaFrames> for UringStore {
    fn geometry(&self) -> Geometry {
        self.file.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, mut op: StoreOp<ArenaFrames>) {
        let refused = match op.kind {
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
                Some(execute(&self.file, frames, &mut op))
            }
            // A write would make a file that was cut longer again, with a hole in it.
            StoreOpKind::Write { .. } => self.file.check_length(op.kind).err().map(Err),
            StoreOpKind::Read | StoreOpKind::Flush => None,
        };
        if let Some(result) = refused {
            self.done.push(StoreDone { op, result, started_at: now, finished_at: now });
            return;
        }
        let vectors = vectors(frames, &mut op.segments);
        let flight = Box::new(InFlight { op, vectors, started_at: now, done: 0 });
        let index = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[index] = Some(flight);
        self.count += 1;
        let entry = self.entry(index);
        self.push(entry);
    }

    fn reap(&mut self, now: Nanos, _frames: &ArenaFrames, done: &mut Vec<StoreDone<ArenaFrames>>) {
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
            done.extend(self.completed(index, code, now));
        }
        self.fill_queue();
    }

    fn in_flight(&self) -> usize {
        self.count + self.done.len()
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
                // Frames in flight stay held; losing them is better than losing the memory.
                break;
            }
            let completions: Vec<u64> = self.ring.completion().map(|c| c.user_data()).collect();
            for tag in completions.into_iter().filter(|&tag| tag != WAKE) {
                std::mem::forget(self.take(usize::try_from(tag).expect("an index")));
            }
        }
        std::mem::forget(std::mem::take(&mut self.in_flight));
    }
}
