//! A connected socket, never waited on in a system call.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the kernel may hold of answers that the client has not taken: enough for the largest piece
/// of a read, so that sending one does not go back and forth with the client.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// The ioctl for bytes that the peer has not acknowledged; same number as `TIOCOUTQ` (tcp(7)).
#[expect(clippy::cast_possible_truncation, reason = "a number of two bytes")]
const SIOCOUTQ: ioctl::Opcode = libc::TIOCOUTQ as ioctl::Opcode;

/// A connected socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// Bytes passed to the kernel; written only by the connection's thread.
    sent_bytes: AtomicU64,
    /// True after the first received byte.
    has_received: AtomicBool,
}

impl Socket {
    /// Takes a socket that was accepted.
    pub(super) fn new(fd: OwnedFd) -> Self {
        // Each of these only makes things faster; the last one fails on unix sockets.
        if sockopt::set_socket_send_buffer_size_force(&fd, SEND_BUFFER_BYTES).is_err() {
            let plain = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER_BYTES);
            tracing::debug!(?plain, "the send buffer keeps its size limit");
        }
        let nodelay = sockopt::set_tcp_nodelay(&fd, true);
        tracing::trace!(?nodelay, "connected");
        Socket { fd, sent_bytes: AtomicU64::new(0), has_received: AtomicBool::new(false) }
    }

    /// Returns whether the client has sent anything.
    pub(super) fn has_received(&self) -> bool {
        self.has_received.load(Ordering::Relaxed)
    }

    /// Returns the address of a TCP client.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        let address = rustix::net::getpeername(&self.fd).ok()??;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }

    pub(super) fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let (count, _) = rustix::net::recv(&self.fd, to, RecvFlags::DONTWAIT)?;
        if count > 0 && !self.has_received() {
            self.has_received.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }

    pub(super) fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::default();
        let sent = rustix::net::sendmsg(&self.fd, slices, &mut control, flags)?;
        self.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(sent)
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

    /// Ends both directions; the client sees the end, and so does the connection's own thread.
    pub(super) fn shut_down(&self) {
        // ENOTCONN: the client was faster.
        let shut = rustix::net::shutdown(&self.fd, Shutdown::Both);
        tracing::trace!(?shut, "shut down");
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
