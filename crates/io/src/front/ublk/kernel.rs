//! The real driver: /dev/ublk-control and /dev/ublkcN through io_uring.
//!
//! Invariants: commands are handed to the kernel by the thread that a ring belongs to; what a
//! command points at lives until its completion, since the call waits for it; descriptors are only
//! read, after the kernel has said that they are there.

use super::abi::{
    COMMIT_AND_FETCH, Control, ControlCommand, DeviceInfo, FETCH, IoCommand, IoDescriptor,
    NO_QUEUE, data_at, descriptors_at,
};
use super::driver::{Driver, Queue, UblkError};
use crate::wake::Waker;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Where commands go.
const CONTROL: &str = "/dev/ublk-control";
/// Bytes of the command that go with a submission of the larger kind.
const LARGE_BYTES: usize = 80;
const SMALL_BYTES: usize = 16;
/// How long udev may take to let us at a device that was just made.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The kernel.
pub struct KernelDriver {
    control: OwnedFd,
    ring: Mutex<IoUring<squeue::Entry128, cqueue::Entry>>,
}

impl std::fmt::Debug for KernelDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelDriver").finish_non_exhaustive()
    }
}

impl KernelDriver {
    /// The driver of this kernel.
    ///
    /// # Errors
    /// It has none, or this user may not use it.
    pub fn open() -> Result<Self, UblkError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let control = rustix::fs::open(CONTROL, flags, Mode::empty()).map_err(|error| {
            if matches!(error, Errno::NOENT | Errno::NODEV | Errno::NXIO) {
                UblkError::NotThere
            } else {
                UblkError::Refused { source: error.into() }
            }
        })?;
        let ring = IoUring::builder().build(4);
        let ring = ring.map_err(|source| UblkError::Refused { source })?;
        Ok(KernelDriver { control, ring: Mutex::new(ring) })
    }
}

impl Driver for KernelDriver {
    fn command(
        &self,
        control: Control,
        device: u32,
        data: u64,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        let command = ControlCommand {
            dev_id: device,
            queue_id: NO_QUEUE,
            len: u16::try_from(buffer.len()).expect("a structure is small"),
            addr: if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 },
            data,
            ..ControlCommand::default()
        };
        let mut bytes = [0; LARGE_BYTES];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.control.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, control.code()).cmd(bytes).build();
        let mut ring = self.ring.lock().expect("no holder panics");
        // SAFETY: the command points at `buffer`, which is borrowed until this function is back,
        // and that is after the completion.
        let pushed = unsafe { ring.submission().push(&entry) };
        pushed.expect("one command at a time");
        loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
            let done = ring.completion().next();
            if let Some(done) = done {
                let result = done.result();
                let errno = Errno::from_raw_os_error(-result);
                return if result < 0 { Err(errno) } else { Ok(()) };
            }
        }
    }

    fn queue(&self, device: &DeviceInfo, queue: u16) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(KernelQueue::open(device, queue)?))
    }

    fn is_used(&self, device: u32) -> bool {
        let path = format!("/dev/ublkb{device}");
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).err() == Some(Errno::BUSY)
    }
}

/// Descriptors of requests, as the kernel shows them.
struct Descriptors {
    at: *mut c_void,
    bytes: usize,
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody reads it any more.
        let unmapped = unsafe { munmap(self.at, self.bytes) };
        if let Err(error) = unmapped {
            tracing::error!(%error, "descriptors of a block device stay mapped");
        }
    }
}

/// A queue of a device.
struct KernelQueue {
    queue: u16,
    depth: u16,
    ring: IoUring,
    /// The device of the server; behind the ring, which uses it.
    device: Arc<OwnedFd>,
    descriptors: Descriptors,
    /// What the ring had no room for yet.
    unsent: Vec<squeue::Entry>,
}

impl KernelQueue {
    fn open(device: &DeviceInfo, queue: u16) -> io::Result<Self> {
        let path = format!("/dev/ublkc{}", device.id);
        let begun = Instant::now();
        let opened = loop {
            match rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT | Errno::ACCESS) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(LOOK_EVERY);
                }
                opened => break opened?,
            }
        };
        let page = rustix::param::page_size();
        let bytes = usize::from(device.depth) * size_of::<IoDescriptor>();
        let bytes = bytes.next_multiple_of(page);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let at = descriptors_at(queue);
        // SAFETY: a new mapping at a place that the kernel chooses takes nothing from anybody.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, &opened, at)? };
        let descriptors = Descriptors { at, bytes };
        let ring = IoUring::new(u32::from(device.depth).next_power_of_two())?;
        let device_fd = Arc::new(opened);
        let depth = device.depth;
        Ok(KernelQueue { queue, depth, ring, device: device_fd, descriptors, unsent: Vec::new() })
    }

    fn push(&mut self, operation: u32, tag: u16, result: i32) {
        let command = IoCommand { queue: self.queue, tag, result, addr: 0 };
        let mut bytes = [0; SMALL_BYTES];
        bytes.copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, operation).cmd(bytes).build();
        self.unsent.push(entry.user_data(tag.into()));
    }
}

impl Queue for KernelQueue {
    fn fetch(&mut self, tag: u16) {
        self.push(FETCH, tag, 0);
    }

    fn commit(&mut self, tag: u16, result: i32) {
        self.push(COMMIT_AND_FETCH, tag, result);
    }

    fn exchange(&mut self, came: &mut Vec<(u16, i32)>) -> io::Result<()> {
        let mut submission = self.ring.submission();
        while let Some(entry) = self.unsent.last() {
            // SAFETY: the commands point at nothing; the descriptor outlives the ring.
            let pushed = unsafe { submission.push(entry) };
            if pushed.is_err() {
                break;
            }
            self.unsent.pop();
        }
        drop(submission);
        match self.ring.submit() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        for done in self.ring.completion() {
            let tag = u16::try_from(done.user_data()).expect("a tag was given");
            came.push((tag, done.result()));
        }
        Ok(())
    }

    fn descriptor(&self, tag: u16) -> IoDescriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the map has a descriptor for each tag.
        let at = unsafe { self.descriptors.at.cast::<IoDescriptor>().add(tag.into()) };
        // SAFETY: it is mapped and aligned; volatile, since the kernel writes it.
        unsafe { at.read_volatile() }
    }

    fn take_data(&self, tag: u16, mut to: &mut [u8]) -> io::Result<()> {
        let mut at = data_at(self.queue, tag);
        while !to.is_empty() {
            let count = rustix::io::pread(&*self.device, &mut *to, at)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += count as u64;
            to = &mut to[count..];
        }
        Ok(())
    }

    fn give_data(&self, tag: u16, mut from: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut at = data_at(self.queue, tag);
        while !from.is_empty() {
            let count = rustix::io::pwritev(&*self.device, from, at)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at += count as u64;
            IoSlice::advance_slices(&mut from, count);
        }
        Ok(())
    }

    fn sleep(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        // SAFETY: the ring lives as long as this borrow.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        waker.sleep(Some((ring, PollFlags::IN)), timeout)
    }
}
