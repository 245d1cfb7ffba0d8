//! FUSE over io_uring: one ring for each thread, in which the kernel places the requests of its
//! processors. One system call replies to a request, returns its ring entry and waits for the next
//! request.
//!
//! Forgets, and requests that the kernel sent before the rings were registered, still come through
//! the device. One thread polls it: at once when it is idle, else at intervals. Invariants: a ring
//! entry that the kernel owns outlives the ring; a reply uses the transport of its request.

mod abi;
mod place;

use super::device::{Device, Received};
use super::worker::WRITE_BYTES_MAX;
use crate::frames::ArenaFrames;
use crate::waker::Waker;
use abi::{COMMAND_BYTES, COMMIT_AND_FETCH, Command, REGISTER, SUBMISSION_LEN_AT};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use larder_core::request::ReadRequest;
use place::{Place, RingBuffer};
use rustix::fd::{AsFd as _, AsRawFd as _};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::time::Duration;
use zerocopy::IntoBytes;

pub(super) use place::RingPayload;

/// Maximum payload of a request or reply. Read data is copied twice on the way to the requesting
/// process; this much of it is still in the processor's cache for the second copy.
pub(super) const ROOM_BYTES: u32 = WRITE_BYTES_MAX;
/// Number of entries of all rings together.
const PLACES: usize = 32;
/// Maximum number of processors, each of which needs an entry; with more, requests come through the
/// device.
const QUEUES_MAX: u16 = 64;
/// Interval at which a busy thread polls the device,
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// and number of requests from the ring after which a thread that does not sleep polls it.
const LOOK_AFTER: u32 = 256;

/// User data of completions of the polls for the waker and for the device.
const OF_WAKER: u64 = u64::MAX;
const OF_DEVICE: u64 = u64::MAX - 1;

/// Returns the number of possible processors: each has its own queue in the kernel.
fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other("the processors are not known"))
}

/// A ring that is not enabled yet.
pub(super) struct Prepared {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    places: Vec<Place>,
    /// The processor whose requests it receives, if there is only one.
    processor: Option<u16>,
}

/// Returns the number of entries of each of `queues` queues: the requests that the kernel can have
/// in flight there.
fn places_of(queues: u16) -> usize {
    (PLACES / usize::from(queues)).max(1)
}

/// Returns the number of entries of each queue on this machine.
pub(super) fn places_of_queue() -> usize {
    queues().map_or(1, places_of)
}

/// Prepares a ring for each of `threads` threads; together they receive the requests of all
/// processors. `touch`: their memory is allocated immediately.
///
/// # Errors
/// If io_uring is not available or not permitted, or there are too many processors.
pub(super) fn prepare(threads: usize, touch: bool) -> io::Result<Vec<Prepared>> {
    let queues = queues()?;
    if queues > QUEUES_MAX {
        return Err(io::Error::other("there are too many processors"));
    }
    let depth = places_of(queues);
    let ring = |thread: usize| {
        let own = (0..queues).filter(|queue| usize::from(*queue) % threads == thread);
        let of: Vec<_> = own.flat_map(|queue| std::iter::repeat_n(queue, depth)).collect();
        let rooms = RingBuffer::several(of.len(), ROOM_BYTES as usize);
        let new = |(queue, room)| Place::new(queue, room);
        let mut places: Vec<_> = of.into_iter().zip(rooms).map(new).collect();
        if touch {
            places.iter_mut().for_each(Place::touch);
        }
        // All entries, the waker and the device.
        let entries = u32::try_from(places.len() + 2).expect("few").next_power_of_two();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .build(entries)?;
        let processor = (threads == usize::from(queues)).then(|| places[0].queue);
        Ok(Prepared { ring, places, processor })
    };
    (0..threads).map(ring).collect()
}

/// Binds this thread to the processor whose requests it receives: a requesting process yields the
/// processor to it and gets it back, and no other processor has to be woken.
fn stay_on(processor: u16) {
    let mut processors = CpuSet::new();
    processors.set(processor.into());
    // If the affinity is not permitted, the thread runs on any processor.
    if let Err(error) = sched_setaffinity(None, &processors) {
        tracing::debug!(processor, %error, "a thread is not kept on a processor");
    }
}

/// One thread's ring.
pub(super) struct Ring {
    kernel: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Declared after the ring, which uses them, so that they are dropped later.
    places: Vec<Place>,
    device: Device,
    /// True if this thread polls the device.
    looks: bool,
    /// Number of entries that the kernel has not given up.
    alive: usize,
    /// True if the ring polls for the waker, and for the device.
    waits: [bool; 2],
    /// True if the device has to be polled now.
    look: bool,
    /// True if a request has come since the last unsuccessful poll of the device.
    is_busy: bool,
    /// Number of requests since their number last caused a poll of the device.
    taken: u32,
    /// Number of replies that processes wait for and that are not submitted yet.
    awaited: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Enables the ring, in the thread that answers its requests. `looks`: the thread also answers
    /// the requests from the device.
    ///
    /// # Errors
    /// If the kernel refuses the ring.
    pub(super) fn begin(prepared: Prepared, device: Device, looks: bool) -> io::Result<Self> {
        let Prepared { ring, places, processor } = prepared;
        if let Some(processor) = processor {
            stay_on(processor);
        }
        ring.submitter().register_enable_rings()?;
        let alive = places.len();
        let mut new = Ring {
            kernel: ring,
            places,
            device,
            looks,
            alive,
            waits: [false; 2],
            look: looks,
            is_busy: false,
            taken: 0,
            awaited: 0,
        };
        for index in 0..alive {
            new.push(index, REGISTER);
        }
        new.submit()?;
        Ok(new)
    }

    /// Returns true if no entry is left: all requests come through the device.
    pub(super) fn is_over(&self) -> bool {
        self.alive == 0
    }

    fn push(&mut self, index: usize, code: u32) {
        let place = &mut self.places[index];
        place.hand_over();
        let (queue, commit_id) = (place.queue, place.commit_id);
        let command = Command { flags: 0, commit_id, queue, padding: [0; 6] };
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.device.as_fd().as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, code).cmd(bytes);
        let mut entry = entry.addr(Some(place.address())).build().user_data(index as u64);
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
    ///
    /// # Errors
    /// If the kernel accepts nothing any more.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.awaited = 0;
        match self.kernel.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Receives a request, if one is available: into `buffer`, except for the data of a write.
    ///
    /// # Errors
    /// If the kernel accepts nothing any more.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut has_run = false;
        loop {
            if let Some(received) = self.taken(buffer) {
                // The process that waits for the previous reply must not wait for this request,
                // too.
                if self.awaited > 0 {
                    self.submit()?;
                }
                return Ok(received);
            }
            if self.is_over() {
                return self.device.receive(buffer);
            }
            // The kernel may still report task work that has just run, and clears that flag only
            // when more work arrives.
            if std::mem::replace(&mut has_run, true) || !self.kernel.submission().taskrun() {
                break;
            }
            self.submit()?;
        }
        if !self.look {
            return Ok(Received::Nothing);
        }
        let received = self.device.receive(buffer)?;
        self.look = !matches!(received, Received::Nothing);
        // More requests may follow.
        self.is_busy |= self.look;
        Ok(received)
    }

    /// Returns the next request of the completion queue.
    fn taken(&mut self, buffer: &mut [u8]) -> Option<Received> {
        loop {
            let done = self.kernel.completion().next()?;
            match done.user_data() {
                OF_WAKER => self.waits[0] = false,
                OF_DEVICE => (self.waits[1], self.look) = (false, true),
                index => {
                    let index = usize::try_from(index).expect("an index");
                    if let Some(received) = self.came(index, done.result(), buffer) {
                        return Some(received);
                    }
                }
            }
        }
    }

    /// Handles the completion of a ring entry. Returns its request, if it has a valid one.
    fn came(&mut self, index: usize, result: i32, buffer: &mut [u8]) -> Option<Received> {
        if result < 0 {
            self.alive -= 1;
            let error = io::Error::from_raw_os_error(-result);
            if !matches!(Errno::from_raw_os_error(-result), Errno::NOTCONN | Errno::CONNABORTED) {
                tracing::info!(%error, "the kernel does not ask by a ring");
            }
            return None;
        }
        self.is_busy = true;
        self.taken += 1;
        if self.taken >= LOOK_AFTER {
            (self.taken, self.look) = (0, self.looks);
        }
        let taken = self.places[index].take(index, buffer);
        if let Some((len, lent)) = taken {
            return Some(Received::Request(len, lent));
        }
        tracing::error!("the kernel put a torn request");
        self.answer(index, Errno::IO.raw_os_error(), std::iter::empty());
        None
    }

    /// Returns a payload to its ring entry, and commits the entry if it is answered.
    pub(super) fn give_back(&mut self, lent: RingPayload) {
        let index = lent.place;
        if self.places[index].give_back(lent) {
            self.commit(index);
        }
    }

    fn answer<'a>(&mut self, index: usize, error: i32, parts: impl Iterator<Item = &'a [u8]>) {
        if self.places[index].answer(error, parts) {
            self.commit(index);
        }
    }

    fn commit(&mut self, index: usize) {
        self.awaited += usize::from(self.places[index].is_awaited);
        self.push(index, COMMIT_AND_FETCH);
    }

    fn place_of(&self, unique: u64) -> Option<usize> {
        self.places.iter().position(|place| place.is_asked(unique))
    }

    /// Replies with `body`.
    pub(super) fn reply(&mut self, unique: u64, body: &[u8]) {
        match self.place_of(unique) {
            Some(index) => self.answer(index, 0, std::iter::once(body)),
            None => self.device.reply(unique, body),
        }
    }

    /// Replies with an errno.
    pub(super) fn refuse(&mut self, unique: u64, errno: Errno) {
        match self.place_of(unique) {
            Some(index) => self.answer(index, errno.raw_os_error(), std::iter::empty()),
            None => self.device.refuse(unique, errno),
        }
    }

    /// Replies with the data of a completed read.
    pub(super) fn reply_read(
        &mut self,
        unique: u64,
        frames: &ArenaFrames,
        read: &ReadRequest<ArenaFrames>,
    ) {
        let Some(index) = self.place_of(unique) else {
            return self.device.reply_read(unique, frames, read);
        };
        let pieces = read.pieces().map(|(pin, range)| &frames.arena().bytes(pin)[range]);
        self.answer(index, 0, pieces);
    }

    /// Sleeps until a request comes, the waker is notified, or `timeout` has passed.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub(super) fn sleep(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        if self.is_over() {
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
        self.awaited = 0;
        let poll = |fd: std::os::fd::RawFd, of| {
            let flags = u32::try_from(libc::POLLIN).expect("a flag");
            let entry = opcode::PollAdd::new(types::Fd(fd), flags).build();
            squeue::Entry128::from(entry.user_data(of))
        };
        if !self.waits[0] {
            self.waits[0] = true;
            self.add(&poll(waker.event().as_raw_fd(), OF_WAKER));
        }
        // A poll would wake this thread for each forget; a busy thread polls later for many of
        // them.
        let is_later = self.looks && self.is_busy;
        if self.looks && !self.is_busy && !self.waits[1] {
            self.waits[1] = true;
            self.add(&poll(self.device.as_fd().as_raw_fd(), OF_DEVICE));
        }
        let least = is_later.then_some(LOOK_EVERY);
        let least = least.into_iter().chain(timeout).min();
        let waited = match least {
            None => self.kernel.submit_and_wait(1).map(drop),
            Some(time) => {
                let time = types::Timespec::from(time);
                let how = types::SubmitArgs::new().timespec(&time);
                self.kernel.submitter().submit_with_args(1, &how).map(drop)
            }
        };
        let is_time = matches!(&waited, Err(error) if error.raw_os_error() == Some(libc::ETIME));
        if is_later && is_time {
            (self.look, self.is_busy) = (true, false);
        }
        match waited {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns true if the call can be repeated.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}
