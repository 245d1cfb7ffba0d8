//! Transport of one thread's requests and replies: the device, or a ring where the kernel has FUSE
//! over io_uring.

use super::abi::InHeader;
use super::device::{Device, Received};
use super::ring::{Ring, RingPayload, queue_depth};
use crate::frames::ArenaFrames;
use crate::waker::Waker;
use larder_core::completion::Notify as _;
use larder_core::request::ReadRequest;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct FuseRequest<'a> {
    pub(super) header: &'a InHeader,
    /// Bytes after the header, without the data of a write.
    pub(super) body: &'a [u8],
    /// The data of a write.
    pub(super) data: &'a [u8],
}

impl FuseRequest<'_> {
    /// Returns all bytes after the header, in one piece.
    pub(super) fn whole_payload(&self) -> Vec<u8> {
        [self.body, self.data].concat()
    }
}

/// A reply, with the number of its request.
type Answer = (u64, Result<Vec<u8>, Errno>);

/// Replies from other threads, until the thread of the ring submits them.
#[derive(Debug)]
pub(super) struct ReplyQueue {
    answers: Mutex<Vec<Answer>>,
    is_nonempty: AtomicBool,
    waker: Waker,
}

/// Path for the reply of a thread that did not receive the request.
#[derive(Clone, Debug)]
pub(super) enum ReplyPath {
    Device(Arc<Device>),
    Queue(Arc<ReplyQueue>),
}

impl ReplyPath {
    /// Returns the maximum number of requests that may wait for other processes. Each request from
    /// a ring holds an entry of its processor's queue: if all did, no other request of the
    /// processor would be received.
    pub(super) fn waiting_max(&self) -> usize {
        match self {
            ReplyPath::Device(_) => usize::MAX,
            ReplyPath::Queue(_) => queue_depth() / 2,
        }
    }

    /// Replies to a request.
    pub(super) fn answer(&self, unique: u64, answer: Result<Vec<u8>, Errno>) {
        match (self, answer) {
            (ReplyPath::Device(device), Ok(bytes)) => device.reply(unique, &bytes),
            (ReplyPath::Device(device), Err(errno)) => device.refuse(unique, errno),
            (ReplyPath::Queue(queue), answer) => {
                let mut answers = queue.answers.lock().expect("no holder panics");
                answers.push((unique, answer));
                queue.is_nonempty.store(true, Ordering::Release);
                drop(answers);
                queue.waker.notify();
            }
        }
    }
}

/// Transport of one thread's requests and replies.
#[derive(Debug)]
pub(super) enum Link {
    Device(Arc<Device>),
    Ring { ring: Box<Ring>, queue: Arc<ReplyQueue> },
}

impl Link {
    /// Returns a link through a ring, for the thread that `waker` wakes.
    pub(super) fn with_ring(ring: Ring, waker: Waker) -> Self {
        let (answers, is_nonempty) = (Mutex::default(), AtomicBool::new(false));
        let queue = Arc::new(ReplyQueue { answers, is_nonempty, waker });
        Link::Ring { ring: Box::new(ring), queue }
    }

    /// Returns the path for replies of other threads.
    pub(super) fn reply_path(&self) -> ReplyPath {
        match self {
            Link::Device(device) => ReplyPath::Device(Arc::clone(device)),
            Link::Ring { queue, .. } => ReplyPath::Queue(Arc::clone(queue)),
        }
    }

    /// Receives a request, if one is available.
    ///
    /// # Errors
    /// If the kernel reports an error.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received<RingPayload>> {
        match self {
            Link::Device(device) => device.receive(buffer),
            Link::Ring { ring, .. } => ring.receive(buffer),
        }
    }

    /// Returns true if the requesting processes run on the processor of this thread.
    pub(super) fn shares_processor(&self) -> bool {
        matches!(self, Link::Ring { .. })
    }

    /// Returns the payload of a request to its ring entry.
    pub(super) fn return_payload(&mut self, payload: RingPayload) {
        match self {
            Link::Device(_) => debug_assert!(false, "the device lends nothing"),
            Link::Ring { ring, .. } => ring.return_payload(payload),
        }
    }

    /// Moves queued replies of other threads to the ring, which sends them with the next
    /// submission. Returns true if there were any.
    pub(super) fn take_queued_answers(&mut self) -> bool {
        let Link::Ring { ring, queue } = self else { return false };
        let mut queued = Vec::new();
        if queue.is_nonempty.load(Ordering::Acquire) {
            let mut answers = queue.answers.lock().expect("no holder panics");
            queue.is_nonempty.store(false, Ordering::Release);
            queued = std::mem::take(&mut *answers);
        }
        for (unique, answer) in &queued {
            match answer {
                Ok(bytes) => ring.reply(*unique, bytes),
                Err(errno) => ring.refuse(*unique, *errno),
            }
        }
        !queued.is_empty()
    }

    /// Submits the replies before a period without other calls to the kernel.
    ///
    /// # Errors
    /// If the kernel accepts nothing any more.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        match self {
            Link::Device(_) => Ok(()),
            Link::Ring { ring, .. } => ring.submit(),
        }
    }

    /// Sleeps until a request comes, the waker is notified, or `timeout` has passed.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub(super) fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Link::Device(device) => device.sleep(waker, timeout),
            Link::Ring { ring, .. } => ring.sleep(waker, timeout),
        }
    }

    /// Replies with `body`.
    pub(super) fn reply(&mut self, unique: u64, body: &[u8]) {
        match self {
            Link::Device(device) => device.reply(unique, body),
            Link::Ring { ring, .. } => ring.reply(unique, body),
        }
    }

    /// Replies with an errno.
    pub(super) fn refuse(&mut self, unique: u64, errno: Errno) {
        match self {
            Link::Device(device) => device.refuse(unique, errno),
            Link::Ring { ring, .. } => ring.refuse(unique, errno),
        }
    }

    /// Replies with the data of a completed read, directly from its frames.
    pub(super) fn reply_read(
        &mut self,
        unique: u64,
        frames: &ArenaFrames,
        read: &ReadRequest<ArenaFrames>,
    ) {
        match self {
            Link::Device(device) => device.reply_read(unique, frames, read),
            Link::Ring { ring, .. } => ring.reply_read(unique, frames, read),
        }
    }
}
