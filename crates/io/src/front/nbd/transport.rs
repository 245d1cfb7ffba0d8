//! Transport of a connection: the plain socket, or TLS on it.
//!
//! The plain transport adds one branch to a call on the socket; the kernel copies frames directly
//! from the cache. With TLS, encryption copies them once, and their pins are released then.

use super::socket::Socket;
use crate::tls::{Channel, Failure, RawSocket, TlsServer};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io::IoSlice;

/// Maximum number of slices in one call on a plain socket; the kernel's limit is 1,024.
const PLAIN_SLICES_MAX: usize = 512;
/// Maximum number of slices in one call of TLS: not many more than it encrypts at a time.
const TLS_SLICES_MAX: usize = 32;

/// Transport of a connection's bytes.
#[derive(Debug)]
pub(super) struct Transport<'a> {
    socket: &'a Socket,
    channel: Option<Box<Channel>>,
}

impl RawSocket for Socket {
    fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        Socket::receive(self, to)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        Socket::send(self, slices)
    }
}

/// Logs a failure of TLS, which ends the connection, and returns its errno.
fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Socket(error) => error,
        Failure::Tls(error) => {
            tracing::info!(%error, "TLS with a client failed");
            Errno::PROTO
        }
    }
}

impl<'a> Transport<'a> {
    pub(super) fn new(socket: &'a Socket) -> Self {
        Transport { socket, channel: None }
    }

    /// Starts TLS, which carries all further bytes. `received` holds bytes of TLS that have arrived
    /// already.
    pub(super) fn start_tls(&mut self, tls: &TlsServer, received: &[u8]) -> Result<(), Errno> {
        debug_assert!(self.channel.is_none(), "TLS begins once");
        let channel = tls.accept(received).map_err(|error| errno(Failure::Tls(error)))?;
        self.channel = Some(Box::new(channel));
        Ok(())
    }

    /// Receives available bytes without waiting; returns 0 at the end of the stream.
    pub(super) fn receive(&mut self, to: &mut [u8]) -> Result<usize, Errno> {
        match &mut self.channel {
            None => self.socket.receive(to),
            Some(channel) => channel.receive(self.socket, to).map_err(errno),
        }
    }

    /// Accepts as many bytes as it can without waiting; returns their number.
    pub(super) fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match &mut self.channel {
            None => self.socket.send(slices),
            Some(channel) => channel.send(self.socket, slices).map_err(errno),
        }
    }

    /// Sends accepted bytes that are still unsent. Returns true if all were sent.
    pub(super) fn flush(&mut self) -> Result<bool, Errno> {
        let Some(channel) = &mut self.channel else { return Ok(true) };
        match channel.flush(self.socket) {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_wait() => Ok(false),
            Err(failure) => Err(errno(failure)),
        }
    }

    /// Returns true if accepted bytes were not passed to the socket yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.has_unsent())
    }

    /// Returns true if there is memory to release while the client sends nothing.
    pub(super) fn can_shrink(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_whole())
    }

    /// Releases memory for received bytes; it is restored when bytes arrive.
    pub(super) fn shrink(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.shrink();
        }
    }

    /// Returns the maximum number of slices of one call of [`Transport::send`].
    pub(super) fn slices_max(&self) -> usize {
        if self.channel.is_none() { PLAIN_SLICES_MAX } else { TLS_SLICES_MAX }
    }

    /// Returns the bytes passed to the kernel, and how many of them the client has not received.
    pub(super) fn sent_and_queued(&self) -> (u64, u64) {
        self.socket.sent_and_queued()
    }

    /// Shuts down both directions at once.
    pub(super) fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// Closes TLS with a client that has received all its replies.
    pub(super) fn close(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.close(self.socket);
        }
    }
}

impl AsFd for Transport<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
