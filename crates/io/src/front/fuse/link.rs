//! Transport of one thread's requests and replies: the device, or a ring where the kernel has FUSE
//! over io_uring.

use super::abi::InHeader;
use super::device::{Device, Received, error_and_body};
use super::ring::{ReplyQueue, Ring, RingPayload, queue_depth};
use crate::frames::ArenaFrames;
use crate::waker::Waker;
use larder_core::request::ReadRequest;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct FuseRequest<'a> {
    pub(super) header: &'a InHeader,
    /// Bytes after the header, without the data of a write.
    pub(super) body: &'a [u8],
    pub(super) data: &'a [u8],
}

impl FuseRequest<'_> {
    /// Returns all bytes after the header, in one piece.
    pub(super) fn whole_payload(&self) -> Vec<u8> {
        [self.body, self.data].concat()
    }
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

    pub(super) fn answer(&self, unique: u64, answer: Result<Vec<u8>, Errno>) {
        match self {
            ReplyPath::Device(device) => {
                device.answer(unique, answer.as_deref().map_err(|errno| *errno));
            }
            ReplyPath::Queue(queue) => queue.add(unique, answer),
        }
    }
}

/// Transport of one thread's requests and replies.
pub(super) struct Link {
    device: Arc<Device>,
    ring: Option<Box<Ring>>,
}

impl Link {
    pub(super) fn new(device: Arc<Device>, ring: Option<Ring>) -> Self {
        Link { device, ring: ring.map(Box::new) }
    }

    pub(super) fn reply_path(&self) -> ReplyPath {
        match &self.ring {
            Some(ring) => ReplyPath::Queue(Arc::clone(&ring.queue)),
            None => ReplyPath::Device(Arc::clone(&self.device)),
        }
    }

    /// Receives a request, if one is available.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received<RingPayload>> {
        match &mut self.ring {
            Some(ring) => ring.receive(buffer),
            None => self.device.receive(buffer),
        }
    }

    /// Returns true if the requesting processes run on the processor of this thread.
    pub(super) fn shares_processor(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns the payload of a request to its ring entry.
    pub(super) fn return_payload(&mut self, payload: RingPayload) {
        self.ring.as_mut().expect("only a ring lends payloads").return_payload(payload);
    }

    /// Moves queued replies of other threads to the ring, which sends them with the next
    /// submission. Returns true if there were any.
    pub(super) fn take_queued_answers(&mut self) -> bool {
        let queued = self.ring.as_ref().map_or_else(Vec::new, |ring| ring.queue.take());
        for (unique, answer) in &queued {
            self.answer(*unique, answer.as_deref().map_err(|errno| *errno));
        }
        !queued.is_empty()
    }

    /// Submits the replies before a period without other calls to the kernel.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.ring.as_mut().map_or(Ok(()), |ring| ring.submit())
    }

    /// Sleeps until a request comes, the waker is notified, or `timeout` has passed.
    pub(super) fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        match &mut self.ring {
            Some(ring) => ring.sleep(waker, timeout),
            None => self.device.sleep(waker, timeout),
        }
    }

    pub(super) fn reply(&mut self, unique: u64, body: &[u8]) {
        self.answer(unique, Ok(body));
    }

    pub(super) fn refuse(&mut self, unique: u64, errno: Errno) {
        self.answer(unique, Err(errno));
    }

    pub(super) fn answer(&mut self, unique: u64, answer: Result<&[u8], Errno>) {
        let Some((ring, index)) = self.entry_of(unique) else {
            return self.device.answer(unique, answer);
        };
        let (error, body) = error_and_body(answer);
        ring.answer(index, error, std::iter::once(body));
    }

    /// Replies with the data of a completed read, directly from its frames.
    pub(super) fn reply_read(
        &mut self,
        unique: u64,
        frames: &ArenaFrames,
        read: &ReadRequest<ArenaFrames>,
    ) {
        let Some((ring, index)) = self.entry_of(unique) else {
            return self.device.reply_read(unique, frames, read);
        };
        let pieces = read.pieces().map(|(pin, range)| &frames.arena().bytes(pin)[range]);
        ring.answer(index, 0, pieces);
    }

    /// Returns the ring and the index of its entry that holds a request, unless the request came
    /// through the device.
    fn entry_of(&mut self, unique: u64) -> Option<(&mut Ring, usize)> {
        let ring = self.ring.as_mut()?;
        let index = ring.entry_of(unique)?;
        Some((ring, index))
    }
}
