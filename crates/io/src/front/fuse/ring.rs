//! FUSE over io_uring: one ring for each thread, in which the kernel puts requests of its
//! processors, and one system call that answers a request, hands its place back and waits for the
//! next one.
//!
//! Forgets and whatever came before the rings are there still come through the device, which one
//! thread looks at: at once when nothing else is to be done, else now and then. Invariants: a place
//! that is with the kernel outlives the ring; an answer goes where its request came from.

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

/// What a request or an answer carries at most. What was read is copied twice on the way to whoever
/// asked; so much of it the processor still has at hand the second time.
pub(super) const ROOM_BYTES: u32 = WRITE_BYTES_MAX;
/// Places of all rings together.
const PLACES: usize = 32;
/// With more processors than this, which need a place each, requests come through the device.
const QUEUES_MAX: u16 = 64;
/// How long a thread that does not sleep for longer leaves the device alone,
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// and how many requests it takes by the ring meanwhile, if it does not sleep at all.
const LOOK_AFTER: u32 = 256;

/// What completions are of that are not of a place.
const OF_WAKER: u64 = u64::MAX;
const OF_DEVICE: u64 = u64::MAX - 1;

/// How many processors there can be: each has a queue of its own with the kernel.
fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other("the processors are not known"))
}

/// A ring that nobody uses yet.
pub(super) struct Prepared {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    places: Vec<Place>,
    /// The processor whose requests it takes, if those of one alone.
    processor: Option<u16>,
}

/// Returns the number of requests that the kernel can have under way in each of `queues` queues.
fn places_of(queues: u16) -> usize {
    (PLACES / usize::from(queues)).max(1)
}

/// Returns the same for the queues of this machine.
pub(super) fn places_of_queue() -> usize {
    queues().map_or(1, places_of)
}

/// A ring for each of so many threads, which together take the requests of all processors. `touch`:
/// their memory is to be there from the beginning.
///
/// # Errors
/// There is no io_uring, or it may not be used; or there are too many processors.
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
        // All places, the waker and the device.
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

/// Has this thread run where those run whose requests it takes: who asks makes room for it and gets
/// the processor back, and no other one has to be woken.
fn stay_on(processor: u16) {
    let mut processors = CpuSet::new();
    processors.set(processor.into());
    // Where it may not run there it runs where it may.
    if let Err(error) = sched_setaffinity(None, &processors) {
        tracing::debug!(processor, %error, "a thread is not kept on a processor");
    }
}

/// One thread's ring.
pub(super) struct Ring {
    kernel: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Behind the ring, which uses them.
    places: Vec<Place>,
    device: Device,
    /// Whether this thread looks at the device.
    looks: bool,
    /// Places that the kernel has not given back for good.
    alive: usize,
    /// Whether the ring waits for the waker, and for the device.
    waits: [bool; 2],
    /// Whether the device is to be looked at now.
    look: bool,
    /// Whether a request has come since the device was last looked at in vain.
    is_busy: bool,
    /// Requests since the device was last looked at for their sake.
    taken: u32,
    /// Answers that somebody waits for and that were not handed over.
    awaited: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Begins to take requests, in the thread that is to answer them. `looks`: those that come
    /// through the device too.
    ///
    /// # Errors
    /// The kernel refuses the ring.
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

    /// Whether no place is left, and all that comes does so through the device.
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
        // The library has no way to say how many parts the address is of.
        let start = std::ptr::from_mut(&mut entry).cast::<u8>();
        // SAFETY: a submission is 128 bytes long, of which these four are the length.
        let len = unsafe { start.add(SUBMISSION_LEN_AT) };
        // SAFETY: as above, and the submission is ours.
        unsafe { len.cast::<u32>().write_unaligned(2) };
        self.add(&entry);
    }

    fn add(&mut self, entry: &squeue::Entry128) {
        // SAFETY: what it points at belongs to a place, or is a descriptor of ours; all live longer
        // than the ring, and a place that is pushed is left to the kernel.
        let pushed = unsafe { self.kernel.submission().push(entry) };
        pushed.expect("there is room for all places, the waker and the device");
    }

    /// Hands over what was answered, and takes in what has come.
    ///
    /// # Errors
    /// The kernel takes nothing any more.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.awaited = 0;
        match self.kernel.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes a request, if one has come: into `buffer`, but for the data of a write.
    ///
    /// # Errors
    /// If the kernel takes nothing any more.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut has_run = false;
        loop {
            if let Some(received) = self.taken(buffer) {
                // Whoever waits for the answer before this one is not to wait for it too.
                if self.awaited > 0 {
                    self.submit()?;
                }
                return Ok(received);
            }
            if self.is_over() {
                return self.device.receive(buffer);
            }
            // The kernel may say that something is to be run when it has just been, and take that
            // back only when more comes.
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
        // Where something came more will come.
        self.is_busy |= self.look;
        Ok(received)
    }

    /// The next request of those that the kernel has put there.
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

    /// The kernel is through with a place.
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

    /// What was lent is not needed any more.
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

    /// Answers with `body`.
    pub(super) fn reply(&mut self, unique: u64, body: &[u8]) {
        match self.place_of(unique) {
            Some(index) => self.answer(index, 0, std::iter::once(body)),
            None => self.device.reply(unique, body),
        }
    }

    /// Answers with an errno.
    pub(super) fn refuse(&mut self, unique: u64, errno: Errno) {
        match self.place_of(unique) {
            Some(index) => self.answer(index, errno.raw_os_error(), std::iter::empty()),
            None => self.device.refuse(unique, errno),
        }
    }

    /// Answers with what a read that is done has found.
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
        // Each forget would wake us; many of them are looked at together.
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

/// Whether the kernel only has to be asked again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}
