//! A connected socket that never blocks, in clear or with TLS: the transport of the NBD server and
//! of the NBD client.
//!
//! In clear it adds one branch to a call on the socket, and the kernel copies frames directly from
//! the cache. With TLS, encryption copies them once, and their pins are released then.

use super::{Channel, Failure, RawSocket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use std::io::IoSlice;

impl RawSocket for OwnedFd {
    fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        retry_on_intr(|| recv(self, &mut *to, RecvFlags::DONTWAIT)).map(|(count, _)| count)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        retry_on_intr(|| sendmsg(self, slices, &mut SendAncillaryBuffer::default(), flags))
    }
}

#[derive(Debug)]
pub(crate) struct Transport<S> {
    pub(crate) socket: S,
    /// Carries all bytes from its start on; none in clear.
    pub(crate) channel: Option<Box<Channel>>,
}

impl<S: RawSocket> Transport<S> {
    pub(crate) fn new(socket: S) -> Self {
        Transport { socket, channel: None }
    }

    /// Receives available bytes without waiting; returns 0 at the end of the stream.
    pub(crate) fn receive(&mut self, to: &mut [u8]) -> Result<usize, Failure> {
        match &mut self.channel {
            None => self.socket.receive(to).map_err(Failure::Socket),
            Some(channel) => channel.receive(&self.socket, to),
        }
    }

    /// Returns true if [`Transport::receive`] returns bytes that polling the socket does not
    /// report.
    pub(crate) fn has_input(&mut self) -> bool {
        self.channel.as_mut().is_some_and(|channel| channel.has_input())
    }

    /// Accepts as many bytes as it can without waiting; returns their number.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Failure> {
        match &mut self.channel {
            None => self.socket.send(slices).map_err(Failure::Socket),
            Some(channel) => channel.send(&self.socket, slices),
        }
    }

    /// Sends accepted bytes that are still unsent. Returns true if all were sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Failure> {
        match self.channel.as_mut().map(|channel| channel.flush(&self.socket)) {
            None | Some(Ok(())) => Ok(true),
            Some(Err(failure)) if failure.is_wait() => Ok(false),
            Some(Err(failure)) => Err(failure),
        }
    }

    /// Returns true if accepted bytes were not passed to the socket yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.has_unsent())
    }
}

impl<S: AsFd> AsFd for Transport<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
