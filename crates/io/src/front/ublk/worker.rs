//! The thread of a queue: it takes requests as they come, answers hits at once, and goes on with
//! the others when their completions arrive.
//!
//! Invariants: it waits only in its sleep; a tag is answered once; what it holds for writes that
//! wait for room is bounded, and beyond that it leaves their data in the kernel; it ends when the
//! kernel has taken back every tag.

use super::abi::{IoDescriptor, RES_OK, flag, op};
use super::driver::Queue;
use crate::call::Call as _;
use crate::engine::ArenaCache;
use crate::fault::{Panicked, confine};
use crate::front::desk::{Desk, Kind, Over, Request, Work};
use crate::wake::Waker;
use larder_core::clock::{Clock, Nanos};
use larder_core::counters::{Counter, Latency};
use larder_core::lane::Completion;
use larder_core::mode::WriteMode;
use larder_core::request::{Assembly, READ_PIECE_BYTES, Status};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// The largest read or write: enough to cost little for each byte, and small enough to be kept.
pub(super) const IO_BYTES_MAX: u32 = 256 << 10;
const _: () = assert!(IO_BYTES_MAX <= READ_PIECE_BYTES);
/// Bytes of writes that wait here for room.
const PARKED_BYTES_MAX: usize = 2 << 20;
/// Bytes of reads that are under way; each pins as much of the cache.
const READING_BYTES_MAX: usize = 4 << 20;
const READING_SHARE: usize = 16;
/// How often a stalled request is tried again without having been woken.
const STALL_RETRY: Duration = Duration::from_millis(5);
/// The blocks of the longest request, wherever it begins.
const SLICES_MAX: usize = IO_BYTES_MAX as usize / BLOCK_BYTES + 1;

/// A thread's state.
pub(super) struct Worker {
    pub(super) queue: Box<dyn Queue>,
    pub(super) waker: Waker,
    pub(super) cache: Arc<ArenaCache>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) desk: Desk,
    /// How the volume is written.
    pub(super) mode: Box<dyn Fn() -> WriteMode + Send>,
    /// Bytes of the volume.
    pub(super) length: u64,
    /// Tags that the kernel has not taken back.
    pub(super) tags: u16,
}

/// Tags and memory that are used again and again.
#[derive(Default)]
struct Waiting {
    came: Vec<(u16, i32)>,
    /// Requests that have come and are not begun.
    tags: VecDeque<u16>,
    buffer: Vec<u8>,
}

impl Worker {
    /// Asks for requests; from now on the device can be shown.
    pub(super) fn fetch(&mut self) -> std::io::Result<()> {
        for tag in 0..self.tags {
            self.queue.fetch(tag);
        }
        // Nobody can ask yet, so that what comes is a refusal.
        let mut came = Vec::new();
        self.queue.exchange(&mut came)?;
        match came.first() {
            Some((_, errno)) => Err(std::io::Error::from_raw_os_error(errno.saturating_neg())),
            None => Ok(()),
        }
    }

    /// Gives everything back. The kernel has no request left that could be answered.
    pub(super) fn abandon(self) {
        drop(self.desk.abandon(&self.cache));
    }

    fn take_back(&mut self, came: &[(u16, i32)]) {
        let ended = came.iter().filter(|(_, result)| *result != RES_OK).count();
        self.tags -= u16::try_from(ended).expect("a tag each");
    }

    /// Serves until the device is stopped.
    ///
    /// # Errors
    /// The panic that has ended the queue.
    pub(super) fn run(mut self) -> Result<(), Panicked> {
        let served = confine(|| self.serve());
        if let Err(panic) = &served {
            panic.end_if_damaging(&self.cache);
        }
        self.abandon();
        served
    }

    fn serve(&mut self) {
        let mut waiting = Waiting { buffer: vec![0; IO_BYTES_MAX as usize], ..Waiting::default() };
        loop {
            let now = self.clock.now();
            let mut moved = self.take_completions(now);
            if let Err(error) = self.queue.exchange(&mut waiting.came) {
                tracing::error!(%error, "a queue of a block device cannot be served any more");
                break;
            }
            moved |= !waiting.came.is_empty();
            self.take_back(&waiting.came);
            let requests = waiting.came.drain(..).filter(|(_, result)| *result == RES_OK);
            waiting.tags.extend(requests.map(|(tag, _)| tag));
            while self.has_room()
                && let Some(tag) = waiting.tags.pop_front()
            {
                moved = true;
                self.begin(now, tag, &mut waiting.buffer);
            }
            if self.tags == 0 {
                break;
            }
            if !moved && let Err(error) = self.sleep(now) {
                tracing::error!(%error, "waiting for requests failed");
                break;
            }
        }
    }

    fn has_room(&self) -> bool {
        let pool = self.cache.frame_count() as usize * BLOCK_BYTES;
        let reading_max = (pool / READING_SHARE).min(READING_BYTES_MAX);
        self.desk.parked_bytes() <= PARKED_BYTES_MAX && self.desk.reading_bytes() < reading_max
    }

    fn begin(&mut self, now: Nanos, tag: u16, buffer: &mut [u8]) {
        let asked = self.queue.descriptor(tag);
        if let Err(errno) = self.try_begin(now, tag, asked, buffer) {
            self.queue.commit(tag, -errno.raw_os_error());
        }
    }

    fn try_begin(
        &mut self,
        now: Nanos,
        tag: u16,
        asked: IoDescriptor,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        let (offset, len) = asked.bytes().ok_or(Errno::INVAL)?;
        let is_flush = asked.op() == op::FLUSH;
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.length);
        if !is_flush && (!is_inside || len == 0) {
            return Err(Errno::INVAL);
        }
        let moves = matches!(asked.op(), op::READ | op::WRITE);
        if moves && len > u64::from(IO_BYTES_MAX) {
            return Err(Errno::INVAL);
        }
        if !is_flush && asked.op() != op::READ && (self.mode)() == WriteMode::ReadOnly {
            return Err(Errno::ROFS);
        }
        let kind = match asked.op() {
            op::READ => {
                let len = u32::try_from(len).expect("at most the largest");
                self.begin_read(now, tag, offset, len);
                return Ok(());
            }
            op::WRITE => Kind::Write,
            op::FLUSH => Kind::Flush,
            op::DISCARD => Kind::Discard,
            op::WRITE_ZEROES => Kind::Zero { keep_allocated: asked.has(flag::NOUNMAP) },
            _ => return Err(Errno::OPNOTSUPP),
        };
        let (counter, len) = match kind {
            Kind::Write => (Counter::WriteRequests, len),
            Kind::Flush => (Counter::FlushRequests, 0),
            Kind::Discard => (Counter::DiscardRequests, len),
            Kind::Zero { .. } => (Counter::ZeroRequests, len),
            Kind::Read => unreachable!("it was begun"),
        };
        self.desk.lane.recorder().add(counter, 1);
        let mut request = Request::new(kind, tag.into(), offset, len, now);
        let fua = asked.has(flag::FUA);
        let index = match kind {
            Kind::Write => {
                let bytes = &mut buffer[..usize::try_from(len).expect("at most the largest")];
                if let Err(error) = self.queue.take_data(tag, bytes) {
                    tracing::error!(%error, "the kernel does not hand over what is to be written");
                    return Err(Errno::IO);
                }
                let index = self.desk.open(request);
                self.desk.write_part(&self.cache, now, index, (offset, bytes), fua);
                index
            }
            Kind::Flush => {
                let index = self.desk.open(request);
                self.desk.flush_part(&self.cache, now, index);
                index
            }
            _ => {
                let blocks = offset / BLOCK_BYTES_U64..(offset + len).div_ceil(BLOCK_BYTES_U64);
                request.to_sync = fua.then_some(blocks);
                self.desk.open_exclusion(&self.cache, now, request, self.length)
            }
        };
        self.end_request(now, index);
        Ok(())
    }

    fn begin_read(&mut self, now: Nanos, tag: u16, offset: u64, len: u32) {
        let desk = &mut self.desk;
        desk.lane.recorder().add(Counter::ReadRequests, 1);
        desk.lane.recorder().add(Counter::ReadBytes, u64::from(len));
        let token = desk.next_token();
        let mut read = desk.spare.assembly(token, offset, len);
        let status = read.ask(&self.cache, &mut desk.lane, now);
        let request = Request::new(Kind::Read, tag.into(), offset, len.into(), now);
        let index = desk.open(request);
        match status {
            Status::Pending | Status::Stalled => {
                desk.keep(index, Work::Read(read), status == Status::Stalled);
            }
            status => {
                let over = Over { request: index, work: Work::Read(read), status };
                self.call_over(now, over);
            }
        }
    }

    /// Hands over what a read that is done has found.
    fn give(&mut self, tag: u16, read: &Assembly<crate::frames::ArenaFrames>) -> Result<(), Errno> {
        let frames = self.cache.frames();
        // On the stack, as a hit allocates nothing.
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (pin, range) in read.pieces() {
            slices[count] = IoSlice::new(&frames.arena().bytes(pin)[range]);
            count += 1;
        }
        self.queue.give_data(tag, &mut slices[..count]).map_err(|error| {
            tracing::error!(%error, "the kernel does not take what was read");
            Errno::IO
        })
    }

    /// A call has come to its end.
    fn call_over(&mut self, now: Nanos, over: Over) {
        let Over { request, work, status } = over;
        match work {
            Work::Read(mut read) => {
                self.desk.request(request).classes.add(read.classes());
                if status == Status::Done {
                    let tag = self.tag_of(request);
                    if let Err(errno) = self.give(tag, &read) {
                        self.desk.request(request).failure.get_or_insert(errno);
                    }
                    read.release(self.cache.frames());
                }
                self.desk.spare.recycle(read);
            }
            Work::Write(write) => {
                self.desk.request(request).classes.add(write.task.classes());
            }
            Work::Flush(_) | Work::FlushRange(_) | Work::Exclude(_) => {}
        }
        self.desk.note_status(now, request, &status);
        self.end_request(now, request);
    }

    fn tag_of(&mut self, request: usize) -> u16 {
        u16::try_from(self.desk.request(request).unique).expect("a tag")
    }

    /// Answers a request if nothing of it is left to do.
    fn end_request(&mut self, now: Nanos, index: usize) {
        let tag = self.tag_of(index);
        self.desk.go_on_excluding(&self.cache, now, index);
        self.desk.go_on_syncing(&self.cache, now, index);
        let Some(request) = self.desk.close(index, now) else { return };
        let result = match request.failure {
            Some(errno) => -errno.raw_os_error(),
            // Of what moves no data the kernel only looks whether it failed.
            None => i32::try_from(request.len).unwrap_or(0),
        };
        self.queue.commit(tag, result);
        let latency = match request.kind {
            Kind::Read => Latency::Read,
            Kind::Write => Latency::Write,
            Kind::Flush => Latency::Flush,
            Kind::Zero { .. } | Kind::Discard => return,
        };
        let duration = self.clock.now().saturating_sub(request.started_at);
        self.desk.lane.recorder().record(latency, duration);
    }

    /// Goes on with what has come from the cache, and with what waited for its time.
    fn take_completions(&mut self, now: Nanos) -> bool {
        let (mut any, mut mail) = (false, Vec::new());
        self.desk.lane.collect(&mut mail);
        for completion in mail {
            any = true;
            if matches!(completion, Completion::Unstalled) {
                self.retry_stalled(now);
            } else if let Some(over) = self.desk.tell(&self.cache, now, completion) {
                self.call_over(now, over);
            }
        }
        while let Some(index) = self.desk.take_delayed(now) {
            any = true;
            self.end_request(now, index);
        }
        any
    }

    fn retry_stalled(&mut self, now: Nanos) {
        for index in self.desk.take_stalled() {
            if let Some(over) = self.desk.ask_again(&self.cache, now, index) {
                self.call_over(now, over);
            }
        }
    }

    fn sleep(&mut self, now: Nanos) -> std::io::Result<()> {
        let delayed = self.desk.next_delayed();
        let mut timeout = delayed.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let has_stalled = self.desk.has_stalled();
        if has_stalled {
            timeout = Some(timeout.map_or(STALL_RETRY, |time| time.min(STALL_RETRY)));
        }
        if self.desk.lane.has_mail() {
            return Ok(());
        }
        self.queue.sleep(&self.waker, timeout)?;
        if has_stalled {
            self.retry_stalled(self.clock.now());
        }
        Ok(())
    }
}
