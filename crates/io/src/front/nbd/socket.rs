//! A connected socket. Its system calls never block.

use crate::tls::RawSocket;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::net::{Shutdown, sockopt};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Size of the kernel's send buffer: enough for the largest piece of a read, so that sending one
/// does not take several rounds with the client.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// The ioctl that returns the bytes that the peer has not acknowledged; the same number as
/// `TIOCOUTQ` (tcp(7)).
#[expect(clippy::cast_possible_truncation, reason = "a number of two bytes")]
const SIOCOUTQ: ioctl::Opcode = libc::TIOCOUTQ as ioctl::Opcode;

#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// Bytes passed to the kernel; written only by the connection's thread.
    sent_bytes: AtomicU64,
    /// True after the first received byte.
    has_received: AtomicBool,
}

impl Socket {
    /// Wraps an accepted socket and sets its options.
    pub(super) fn new(fd: OwnedFd) -> Self {
        // These options only improve performance; the last one fails on unix sockets.
        if sockopt::set_socket_send_buffer_size_force(&fd, SEND_BUFFER_BYTES).is_err() {
            let plain = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER_BYTES);
            tracing::debug!(?plain, "the send buffer keeps its size limit");
        }
        let nodelay = sockopt::set_tcp_nodelay(&fd, true);
        tracing::trace!(?nodelay, "connected");
        Socket { fd, sent_bytes: AtomicU64::new(0), has_received: AtomicBool::new(false) }
    }

    pub(super) fn has_received(&self) -> bool {
        self.has_received.load(Ordering::Relaxed)
    }

    /// Returns the address of a TCP client.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        let address = rustix::net::getpeername(&self.fd).ok()??;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }

    /// Returns the bytes passed to the kernel since the connection began, and how many of them the
    /// peer has not received (tcp(7), unix(7): `SIOCOUTQ`).
    pub(super) fn sent_and_queued(&self) -> (u64, u64) {
        // SAFETY: `SIOCOUTQ` writes one int.
        let request = unsafe { ioctl::Getter::<SIOCOUTQ, libc::c_int>::new() };
        // SAFETY: the descriptor is a socket.
        let queued = unsafe { ioctl::ioctl(&self.fd, request) };
        let queued = queued.ok().and_then(|bytes| u64::try_from(bytes).ok());
        (self.sent_bytes.load(Ordering::Relaxed), queued.unwrap_or(0))
    }

    /// Shuts down both directions. The client and the connection's thread see the end of the
    /// stream.
    pub(super) fn shut_down(&self) {
        // ENOTCONN: the client has disconnected before.
        let shut = rustix::net::shutdown(&self.fd, Shutdown::Both);
        tracing::trace!(?shut, "shut down");
    }
}

impl RawSocket for &Socket {
    fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let count = self.fd.receive(to)?;
        if count > 0 && !self.has_received() {
            self.has_received.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let sent = self.fd.send(slices)?;
        self.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(sent)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
