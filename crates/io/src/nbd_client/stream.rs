//! The connection: a unix or TCP socket.
//!
//! Reading blocks; sending a request does not, so that a client whose server is busy sending can
//! read in between instead of both waiting for the other.

use super::error::ClientError;
use super::uri::NbdAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// What a socket is ready for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub input: bool,
    pub output: bool,
}

impl Stream {
    pub(super) fn connect(
        address: &NbdAddress,
        timeout: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let stream = match address {
            NbdAddress::Unix(path) => match path.as_os_str().as_bytes() {
                [0, name @ ..] => SocketAddr::from_abstract_name(name)
                    .and_then(|address| UnixStream::connect_addr(&address)),
                _ => UnixStream::connect(path),
            }
            .map(Self::Unix),
            NbdAddress::Tcp { host, port } => {
                TcpStream::connect((host.as_str(), *port)).map(Self::Tcp)
            }
        };
        let stream = stream.map_err(|error| {
            let address = match address {
                NbdAddress::Unix(path) => path.display().to_string(),
                NbdAddress::Tcp { host, port } => format!("{host} port {port}"),
            };
            ClientError::Connect { address, error }
        })?;
        match &stream {
            Self::Unix(socket) => {
                socket.set_read_timeout(timeout)?;
                socket.set_write_timeout(timeout)?;
            }
            Self::Tcp(socket) => {
                // Requests are sent whole; waiting for more would only delay them.
                socket.set_nodelay(true)?;
                socket.set_read_timeout(timeout)?;
                socket.set_write_timeout(timeout)?;
            }
        }
        Ok(stream)
    }

    /// Sends what the socket takes now; `None` when it takes nothing.
    pub(super) fn send_now(&self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, ClientError> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(self, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until one of the connections has input, or time is up.
    pub(super) fn wait_any(
        streams: &[&Self],
        timeout: Option<Duration>,
    ) -> Result<(), ClientError> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds: Vec<_> =
            streams.iter().map(|stream| PollFd::new(*stream, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until there is input, or room for output if that is asked for, or time is up.
    pub(super) fn wait_ready(
        &self,
        output: bool,
        timeout: Option<Duration>,
    ) -> Result<Option<Ready>, ClientError> {
        let wanted = if output { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        // A time that does not fit is longer than anyone waits.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [PollFd::new(self, wanted)];
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A closed or failed connection is reported by the read that follows.
        let ready = fds[0].revents();
        let input = ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        Ok(Some(Ready { input, output: ready.contains(PollFlags::OUT) }))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buffer),
            Self::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(buffer),
            Self::Tcp(socket) => socket.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
