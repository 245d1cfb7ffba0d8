//! A connected socket, never waited on in a system call.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use std::io::IoSlice;

/// What the kernel may hold of answers that the client has not taken: enough for the largest piece
/// of a read, so that sending one does not go back and forth with the client.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A connected socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

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
        Socket(fd)
    }

    pub(super) fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        rustix::net::recv(&self.0, to, RecvFlags::DONTWAIT).map(|(count, _)| count)
    }

    pub(super) fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, slices, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Ends both directions; the client sees the end, and so does the connection's own thread.
    pub(super) fn shut_down(&self) {
        // ENOTCONN: the client was faster.
        let shut = rustix::net::shutdown(&self.0, Shutdown::Both);
        tracing::trace!(?shut, "shut down");
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
