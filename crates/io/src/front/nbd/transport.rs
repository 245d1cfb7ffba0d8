//! What a connection's bytes go through: the socket as it is, or TLS on it.
//!
//! The plain way adds nothing to a call on the socket but one branch; frames go from the cache to
//! the kernel without a copy. With TLS they are copied once, by being sealed, and let go then.

use super::socket::Socket;
use crate::tls::{Channel, Failure, RawSocket, TlsServer};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io::IoSlice;

/// Slices that one call on a plain socket takes: the kernel's limit is 1,024.
const PLAIN_SLICES_MAX: usize = 512;
/// Slices that are offered to TLS at a time: not many more than it seals at a time.
const TLS_SLICES_MAX: usize = 32;

/// The way of a connection's bytes.
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

/// A failure of TLS ends the connection; why is for the log only.
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

    /// From now on all bytes go through TLS; `received` came ahead and belongs to it.
    pub(super) fn start_tls(&mut self, tls: &TlsServer, received: &[u8]) -> Result<(), Errno> {
        debug_assert!(self.channel.is_none(), "TLS begins once");
        let channel = tls.accept(received).map_err(|error| errno(Failure::Tls(error)))?;
        self.channel = Some(Box::new(channel));
        Ok(())
    }

    /// Receives what has come, without waiting; 0 at the end.
    pub(super) fn receive(&mut self, to: &mut [u8]) -> Result<usize, Errno> {
        match &mut self.channel {
            None => self.socket.receive(to),
            Some(channel) => channel.receive(self.socket, to).map_err(errno),
        }
    }

    /// Takes over as much as it can now.
    pub(super) fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match &mut self.channel {
            None => self.socket.send(slices),
            Some(channel) => channel.send(self.socket, slices).map_err(errno),
        }
    }

    /// Sends on what was taken over and not sent; whether that is all of it.
    pub(super) fn flush(&mut self) -> Result<bool, Errno> {
        let Some(channel) = &mut self.channel else { return Ok(true) };
        match channel.flush(self.socket) {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_wait() => Ok(false),
            Err(failure) => Err(errno(failure)),
        }
    }

    /// Whether something was taken over that the socket has not taken.
    pub(super) fn has_unsent(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.has_unsent())
    }

    /// Returns whether there is memory to release while the client sends nothing.
    pub(super) fn is_whole(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_whole())
    }

    /// Releases memory for received bytes; it is restored when bytes arrive.
    pub(super) fn shrink(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.shrink();
        }
    }

    /// How many slices are worth offering at a time.
    pub(super) fn slices_max(&self) -> usize {
        if self.channel.is_none() { PLAIN_SLICES_MAX } else { TLS_SLICES_MAX }
    }

    /// Returns the bytes passed to the kernel, and how many of them the client has not received.
    pub(super) fn sent_and_queued(&self) -> (u64, u64) {
        self.socket.sent_and_queued()
    }

    /// Ends both directions at once.
    pub(super) fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// Says goodbye to a client that has all its answers.
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
