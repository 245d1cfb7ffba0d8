//! FUSE over io_uring: one ring for each thread, in which the kernel places the requests of its
//! processors. One system call replies to a request, returns its ring entry and waits for the next
//! request.
//!
//! Forgets, and requests that the kernel sent before the rings were registered, still come through
//! the device. One thread polls it: at once when it is idle, else at intervals. Invariants: a ring
//! entry that the kernel owns outlives the ring; a reply uses the transport of its request.

mod place;

use super::abi::{self, RingCommand};
use super::device::{Device, Received};
use crate::waker::Waker;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use larder_core::completion::Wake as _;
use place::{RingBuffer, RingEntry};
use rustix::fd::{AsFd as _, AsRawFd as _};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use zerocopy::IntoBytes;

pub(super) use place::RingPayload;

/// Registers a ring entry, into which the kernel can put a request (`linux/fuse.h` 7.42).
const REGISTER: u32 = 1;
/// Commits the reply of a ring entry, and returns the entry to the kernel.
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes of a command in a 128-byte submission.
const COMMAND_BYTES: usize = 80;
/// Offset of the length in a submission (`linux/io_uring.h`).
const SUBMISSION_LEN_AT: usize = 24;
/// Maximum payload of a request or reply. Read data is copied twice on the way to the requesting
/// process; this much of it is still in the processor's cache for the second copy.
pub(super) const PAYLOAD_BYTES_MAX: u32 = abi::WRITE_BYTES_MAX;
/// Number of entries of all rings together.
const ENTRIES_TOTAL: usize = 32;
/// Maximum number of processors, each of which needs an entry; with more, requests come through the
/// device.
const QUEUES_MAX: u16 = 64;
/// Interval at which a busy thread polls the device,
const DEVICE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// and number of requests from the ring after which a thread that does not sleep polls it.
const DEVICE_POLL_REQUESTS: u32 = 256;

/// User data of completions of the polls for the waker and for the device.
const WAKER_TAG: u64 = u64::MAX;
const DEVICE_TAG: u64 = u64::MAX - 1;

/// Returns the number of possible processors: each has its own queue in the kernel.
fn queue_count() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other("the processors are not known"))
}

pub(super) struct PreparedRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<RingEntry>,
    /// The processor whose requests it receives, if there is only one.
    processor: Option<u16>,
}

/// Returns the number of entries of each of `queue_count` queues: the requests that the kernel can
/// have in flight there.
fn entries_per_queue(queue_count: u16) -> usize {
    (ENTRIES_TOTAL / usize::from(queue_count)).max(1)
}

/// Returns the number of entries of each queue on this machine.
pub(super) fn queue_depth() -> usize {
    static DEPTH: LazyLock<usize> = LazyLock::new(|| queue_count().map_or(1, entries_per_queue));
    *DEPTH
}

/// Prepares a ring for each of `threads` threads; together they receive the requests of all
/// processors. `prefault`: their memory is allocated immediately.
///
/// # Errors
/// If io_uring is not available or not permitted, or there are too many processors.
pub(super) fn prepare(threads: usize, prefault: bool) -> io::Result<Vec<PreparedRing>> {
    let queue_count = queue_count()?;
    if queue_count > QUEUES_MAX {
        return Err(io::Error::other("there are too many processors"));
    }
    let depth = entries_per_queue(queue_count);
    let ring = |thread: usize| {
        let own_queues = (0..queue_count).filter(|queue| usize::from(*queue) % threads == thread);
        let queue_of_entry: Vec<_> =
            own_queues.flat_map(|queue| std::iter::repeat_n(queue, depth)).collect();
        let buffers = RingBuffer::allocate(queue_of_entry.len(), PAYLOAD_BYTES_MAX as usize);
        let new = |(queue, buffer)| RingEntry::new(queue, buffer);
        let mut entries: Vec<_> = queue_of_entry.into_iter().zip(buffers).map(new).collect();
        if prefault {
            entries.iter_mut().for_each(RingEntry::prefault);
        }
        // All entries, the waker and the device.
        let ring_size = u32::try_from(entries.len() + 2).expect("few").next_power_of_two();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .build(ring_size)?;
        let processor = (threads == usize::from(queue_count)).then(|| entries[0].queue);
        Ok(PreparedRing { ring, entries, processor })
    };
    (0..threads).map(ring).collect()
}

/// Binds this thread to the processor whose requests it receives: a requesting process yields the
/// processor to it and gets it back, and no other processor has to be woken.
fn pin_to_processor(processor: u16) {
    let mut processors = CpuSet::new();
    processors.set(processor.into());
    // If the affinity is not permitted, the thread runs on any processor.
    if let Err(error) = sched_setaffinity(None, &processors) {
        tracing::debug!(processor, %error, "a thread is not kept on a processor");
    }
}

type QueuedAnswer = (u64, Result<Vec<u8>, Errno>);

/// Replies from other threads, until the thread of the ring submits them.
#[derive(Debug)]
pub(super) struct ReplyQueue {
    answers: Mutex<Vec<QueuedAnswer>>,
    is_nonempty: AtomicBool,
    waker: Waker,
}

impl ReplyQueue {
    pub(super) fn add(&self, unique: u64, answer: Result<Vec<u8>, Errno>) {
        let mut answers = self.answers.lock().expect("no holder panics");
        answers.push((unique, answer));
        self.is_nonempty.store(true, Ordering::Release);
        drop(answers);
        self.waker.wake();
    }

    pub(super) fn take(&self) -> Vec<QueuedAnswer> {
        if !self.is_nonempty.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut answers = self.answers.lock().expect("no holder panics");
        self.is_nonempty.store(false, Ordering::Release);
        std::mem::take(&mut *answers)
    }
}

pub(super) struct Ring {
    kernel: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Declared after the ring, which uses them, so that they are dropped later.
    entries: Vec<RingEntry>,
    device: Arc<Device>,
    pub(super) queue: Arc<ReplyQueue>,
    /// True if this thread polls the device.
    polls_device: bool,
    /// Number of entries that the kernel has not given up.
    live_entries: usize,
    /// True if the ring polls for the waker, and for the device.
    is_polling: [bool; 2],
    /// True if the device has to be polled now.
    device_due: bool,
    /// True if a request has come since the last unsuccessful poll of the device.
    is_busy: bool,
    /// Number of requests since their number last caused a poll of the device.
    requests_since_poll: u32,
    /// Number of replies that processes wait for and that are not submitted yet.
    awaited_replies: usize,
}

impl Ring {
    /// Enables the ring, in the thread that answers its requests and that `waker` wakes.
    /// `polls_device`: the thread also answers the requests from the device.
    pub(super) fn begin(
        prepared: PreparedRing,
        device: Arc<Device>,
        waker: Waker,
        polls_device: bool,
    ) -> io::Result<Self> {
        let PreparedRing { ring, entries, processor } = prepared;
        if let Some(processor) = processor {
            pin_to_processor(processor);
        }
        ring.submitter().register_enable_rings()?;
        let live_entries = entries.len();
        let (answers, is_nonempty) = (Mutex::default(), AtomicBool::new(false));
        let mut new = Ring {
            kernel: ring,
            entries,
            device,
            queue: Arc::new(ReplyQueue { answers, is_nonempty, waker }),
            polls_device,
            live_entries,
            is_polling: [false; 2],
            device_due: polls_device,
            is_busy: false,
            requests_since_poll: 0,
            awaited_replies: 0,
        };
        for index in 0..live_entries {
            new.push(index, REGISTER);
        }
        new.submit()?;
        Ok(new)
    }

    /// Returns true if no entry is left: all requests come through the device.
    pub(super) fn is_closed(&self) -> bool {
        self.live_entries == 0
    }

    fn push(&mut self, index: usize, code: u32) {
        let ring_entry = &mut self.entries[index];
        ring_entry.give_to_kernel();
        let (queue, commit_id) = (ring_entry.queue, ring_entry.commit_id);
        let command = RingCommand { flags: 0, commit_id, queue, padding: [0; 6] };
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.device.as_fd().as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, code).cmd(bytes);
        let mut entry =
            entry.addr(Some(ring_entry.iovec_address())).build().user_data(index as u64);
        // The library cannot set the number of iovecs at the address.
        let start = std::ptr::from_mut(&mut entry).cast::<u8>();
        // SAFETY: a submission is 128 bytes long, of which these four are the length.
        let len = unsafe { start.add(SUBMISSION_LEN_AT) };
        // SAFETY: as above, and this function owns the submission.
        unsafe { len.cast::<u32>().write_unaligned(2) };
        self.add(&entry);
    }

    fn add(&mut self, entry: &squeue::Entry128) {
        // SAFETY: the submission points to memory of a ring entry, or holds a descriptor of this
        // process; all of these outlive the ring, and this process does not access a pushed entry.
        let pushed = unsafe { self.kernel.submission().push(entry) };
        pushed.expect("there is room for all places, the waker and the device");
    }

    /// Submits the replies, and lets the kernel post completions.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.awaited_replies = 0;
        match self.kernel.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Receives a request, if one is available: into `buffer`, except for the data of a write.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received<RingPayload>> {
        let mut has_run = false;
        loop {
            if let Some(received) = self.next_request(buffer) {
                // The process that waits for the previous reply must not wait for this request,
                // too.
                if self.awaited_replies > 0 {
                    self.submit()?;
                }
                return Ok(received);
            }
            if self.is_closed() {
                return self.device.receive(buffer);
            }
            // The kernel may still report task work that has just run, and clears that flag only
            // when more work arrives.
            if std::mem::replace(&mut has_run, true) || !self.kernel.submission().taskrun() {
                break;
            }
            self.submit()?;
        }
        if !self.device_due {
            return Ok(Received::Nothing);
        }
        let received = self.device.receive(buffer)?;
        self.device_due = !matches!(received, Received::Nothing);
        // More requests may follow.
        self.is_busy |= self.device_due;
        Ok(received)
    }

    fn next_request(&mut self, buffer: &mut [u8]) -> Option<Received<RingPayload>> {
        loop {
            let done = self.kernel.completion().next()?;
            match done.user_data() {
                WAKER_TAG => self.is_polling[0] = false,
                DEVICE_TAG => (self.is_polling[1], self.device_due) = (false, true),
                index => {
                    let index = usize::try_from(index).expect("an index");
                    if let Some(received) = self.complete_entry(index, done.result(), buffer) {
                        return Some(received);
                    }
                }
            }
        }
    }

    /// Handles the completion of a ring entry. Returns its request, if it has a valid one.
    fn complete_entry(
        &mut self,
        index: usize,
        result: i32,
        buffer: &mut [u8],
    ) -> Option<Received<RingPayload>> {
        if result < 0 {
            self.live_entries -= 1;
            let error = io::Error::from_raw_os_error(-result);
            if !matches!(Errno::from_raw_os_error(-result), Errno::NOTCONN | Errno::CONNABORTED) {
                tracing::info!(%error, "the kernel does not ask by a ring");
            }
            return None;
        }
        self.is_busy = true;
        self.requests_since_poll += 1;
        if self.requests_since_poll >= DEVICE_POLL_REQUESTS {
            (self.requests_since_poll, self.device_due) = (0, self.polls_device);
        }
        let taken = self.entries[index].take(index, buffer);
        if let Some((len, payload)) = taken {
            return Some(Received::Request(len, payload));
        }
        tracing::error!("the kernel put a torn request");
        self.answer(index, -Errno::IO.raw_os_error(), std::iter::empty());
        None
    }

    /// Returns a payload to its ring entry, and commits the entry if it is answered.
    pub(super) fn return_payload(&mut self, payload: RingPayload) {
        let index = payload.entry_index;
        if self.entries[index].return_payload(payload) {
            self.commit(index);
        }
    }

    /// Replies to the request of an entry. `error`: 0, or a negative errno.
    pub(super) fn answer<'a>(
        &mut self,
        index: usize,
        error: i32,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        if self.entries[index].answer(error, parts) {
            self.commit(index);
        }
    }

    fn commit(&mut self, index: usize) {
        self.awaited_replies += usize::from(self.entries[index].is_awaited);
        self.push(index, COMMIT_AND_FETCH);
    }

    /// Returns the index of the entry that holds a request and awaits its reply.
    pub(super) fn entry_of(&self, unique: u64) -> Option<usize> {
        self.entries.iter().position(|ring_entry| ring_entry.awaits_reply_to(unique))
    }

    /// Sleeps until a request comes, the waker is notified, or `timeout` has passed.
    pub(super) fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        if self.is_closed() {
            return self.device.sleep(waker, timeout);
        }
        if !waker.prepare_sleep() {
            return Ok(());
        }
        let waited = self.wait(waker, timeout);
        waker.awake();
        waited
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        self.awaited_replies = 0;
        let poll = |fd: std::os::fd::RawFd, of| {
            let flags = u32::try_from(libc::POLLIN).expect("a flag");
            let entry = opcode::PollAdd::new(types::Fd(fd), flags).build();
            squeue::Entry128::from(entry.user_data(of))
        };
        if !self.is_polling[0] {
            self.is_polling[0] = true;
            self.add(&poll(waker.event().as_raw_fd(), WAKER_TAG));
        }
        // A poll would wake this thread for each forget; a busy thread polls later for many of
        // them.
        let is_later = self.polls_device && self.is_busy;
        if self.polls_device && !self.is_busy && !self.is_polling[1] {
            self.is_polling[1] = true;
            self.add(&poll(self.device.as_fd().as_raw_fd(), DEVICE_TAG));
        }
        let poll_delay = is_later.then_some(DEVICE_POLL_INTERVAL);
        let wait_max = poll_delay.into_iter().chain(timeout).min();
        let waited = match wait_max {
            None => self.kernel.submit_and_wait(1).map(drop),
            Some(time) => {
                let time = types::Timespec::from(time);
                let args = types::SubmitArgs::new().timespec(&time);
                self.kernel.submitter().submit_with_args(1, &args).map(drop)
            }
        };
        let is_time = matches!(&waited, Err(error) if error.raw_os_error() == Some(libc::ETIME));
        if is_later && is_time {
            (self.device_due, self.is_busy) = (true, false);
        }
        match waited {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}
