//! The FUSE device: one descriptor for each thread, requests read from it without blocking, replies
//! written directly from cache memory.
//!
//! Invariant: a reply is sent in one system call and through the descriptor from which its request
//! was read, as the kernel demands.

use super::abi::OutHeader;
use crate::frames::ArenaFrames;
use crate::waker::Waker;
use larder_core::request::{READ_PIECE_BYTES, ReadRequest};
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io::{self, IoSlice};
use std::time::Duration;
use zerocopy::IntoBytes;

pub(super) const PATH: &str = "/dev/fuse";

/// Number of the ioctl that clones a connection: `_IOR(229, 0, u32)`.
const IOC_CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// Slices of the longest reply: the header, and the blocks of the longest read at any offset.
const SLICES_MAX: usize = 1 + READ_PIECE_BYTES as usize / BLOCK_BYTES + 1;

/// Slices of a reply to a read of few blocks. Filling the long table takes more instructions than
/// the rest of a 4 KiB hit, and 4 KiB of stack.
const FEW_SLICES: usize = 4;

/// Result of receiving a request; `P` is the payload of a write that lies outside the buffer.
#[derive(Debug)]
pub(super) enum Received<P> {
    /// A request of this many bytes, and its payload if that lies outside the buffer.
    Request(usize, Option<P>),
    Nothing,
    Unmounted,
}

/// Opens the device without a connection.
pub(super) fn open() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(PATH, flags, Mode::empty())
}

#[derive(Debug)]
pub(super) struct Device {
    descriptor: OwnedFd,
    epoll: OwnedFd,
}

impl Device {
    /// Wraps the connection of `descriptor`, for the thread that `waker` wakes.
    pub(super) fn new(descriptor: OwnedFd, waker: &Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = |number| epoll::EventData::new_u64(number);
        epoll::add(&epoll, waker.event(), data(0), epoll::EventFlags::IN)?;
        // A request wakes only one of the threads.
        let exclusive = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&epoll, &descriptor, data(1), exclusive)?;
        Ok(Device { descriptor, epoll })
    }

    /// Returns another descriptor of the same connection, for another thread.
    pub(super) fn clone_descriptor(&self) -> io::Result<OwnedFd> {
        let new = open()?;
        let fd = u32::try_from(self.descriptor.as_raw_fd()).expect("descriptors are positive");
        // SAFETY: this call of /dev/fuse reads one u32, which the setter points to.
        let cloned = unsafe { rustix::ioctl::Setter::<IOC_CLONE, u32>::new(fd) };
        // SAFETY: both are descriptors of /dev/fuse, and the call changes only the new one.
        unsafe { rustix::ioctl::ioctl(&new, cloned)? };
        Ok(new)
    }

    /// Receives a request, if one is available.
    pub(super) fn receive<P>(&self, buffer: &mut [u8]) -> io::Result<Received<P>> {
        match rustix::io::read(&self.descriptor, buffer) {
            Ok(bytes) => Ok(Received::Request(bytes, None)),
            // ENOENT: the requesting process was killed before the request was read; others may
            // follow.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(Received::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Unmounted),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until a request comes, the waker is notified, or `timeout` has passed.
    pub(super) fn sleep(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        if !waker.prepare_sleep() {
            return Ok(());
        }
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let empty =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let waited = epoll::wait(&self.epoll, &mut [empty; 2], timeout.as_ref());
        waker.awake();
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn answer(&self, unique: u64, answer: Result<&[u8], Errno>) {
        let (error, body) = error_and_body(answer);
        let header = OutHeader::new(unique, error, body.len());
        self.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(body)]);
    }

    /// Replies with the data of a completed read, directly from its frames.
    pub(super) fn reply_read(
        &self,
        unique: u64,
        frames: &ArenaFrames,
        read: &ReadRequest<ArenaFrames>,
    ) {
        let bytes = read.offset % BLOCK_BYTES_U64 + u64::from(read.len);
        if bytes.div_ceil(BLOCK_BYTES_U64) < FEW_SLICES as u64 {
            self.send_read::<FEW_SLICES>(unique, frames, read);
        } else {
            self.send_read::<SLICES_MAX>(unique, frames, read);
        }
    }

    /// Sends a read of fewer than `SLICES` blocks. Never inlined, to keep the long table off the
    /// stack of other replies.
    #[inline(never)]
    fn send_read<const SLICES: usize>(
        &self,
        unique: u64,
        frames: &ArenaFrames,
        read: &ReadRequest<ArenaFrames>,
    ) {
        let header = OutHeader::new(unique, 0, read.len as usize);
        // On the stack, as a hit allocates nothing.
        let mut slices = [IoSlice::new(&[]); SLICES];
        slices[0] = IoSlice::new(header.as_bytes());
        let mut count = 1;
        for (pin, range) in read.pieces() {
            slices[count] = IoSlice::new(&frames.arena().bytes(pin)[range]);
            count += 1;
        }
        self.send(&slices[..count]);
    }

    fn send(&self, slices: &[IoSlice<'_>]) {
        loop {
            match rustix::io::writev(&self.descriptor, slices) {
                Err(Errno::INTR) => {}
                // The requesting process was killed, or the file system is unmounted.
                Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => return,
                Err(error) => {
                    tracing::error!(%error, "the kernel refused an answer");
                    return;
                }
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Returns the error and the body of a reply.
pub(super) fn error_and_body(answer: Result<&[u8], Errno>) -> (i32, &[u8]) {
    match answer {
        Ok(body) => (0, body),
        Err(errno) => (-errno.raw_os_error(), &[]),
    }
}
