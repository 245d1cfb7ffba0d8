//! The connection: a Unix or TCP socket, plain or with TLS.
//!
//! Reading blocks; sending a request does not, so that a client can read while its server is busy
//! sending, and the two do not wait for each other.

use super::deadline::Deadline;
use super::error::ClientError;
use super::uri::NbdAddress;
use crate::tls::{Channel, Failure, RawSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, sendmsg, socket_with, sockopt,
};
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// TCP keep-alive: idle time before the first probe, interval and number of probes; 25 s in all.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_COUNT: u32 = 3;
/// Interval at which a wait checks whether another thread has ended it.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    /// Deadline of the current exchange.
    pub deadline: Deadline,
    /// Set by another thread to end all waits for the server.
    ended: Option<Arc<AtomicBool>>,
    channel: Option<Box<Channel>>,
}

/// Readiness of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    pub input: bool,
    pub output: bool,
}

impl RawSocket for Socket {
    fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match recv(self, &mut *to, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                received => return received.map(|(count, _)| count),
            }
        }
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(self, slices, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => {}
                sent => return sent,
            }
        }
    }
}

/// Connects to the first address of a host that accepts, until the deadline.
fn connect_tcp(host: &str, port: u16, deadline: Deadline) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match deadline.left() {
            None => TcpStream::connect(address),
            Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
            Some(left) => TcpStream::connect_timeout(&address, left),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a unix socket. A server that accepts no connection blocks until the deadline.
fn connect_unix(path: &Path, deadline: Deadline) -> io::Result<UnixStream> {
    let address = match path.as_os_str().as_bytes() {
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, deadline.left())?;
    retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket.into())
}

impl Stream {
    pub(super) fn connect(address: &NbdAddress, deadline: Deadline) -> Result<Self, ClientError> {
        let socket = match address {
            NbdAddress::Unix(path) => connect_unix(path, deadline).map(Socket::Unix),
            NbdAddress::Tcp { host, port } => connect_tcp(host, *port, deadline).map(Socket::Tcp),
        };
        let socket = socket.map_err(|error| {
            let address = match address {
                NbdAddress::Unix(path) => path.display().to_string(),
                NbdAddress::Tcp { host, port } => format!("{host} port {port}"),
            };
            ClientError::Connect { address, error }
        })?;
        if let Socket::Tcp(socket) = &socket {
            // Requests are sent whole; waiting for more data would only delay them.
            socket.set_nodelay(true)?;
            // The kernel also detects an unreachable host while the client waits for a reply.
            sockopt::set_socket_keepalive(socket, true)?;
            sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_INTERVAL)?;
            sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_COUNT)?;
        }
        Ok(Stream { socket, deadline, ended: None, channel: None })
    }

    /// Lets another thread end all waits for the server by setting this flag.
    pub(super) fn end_with(&mut self, ended: Arc<AtomicBool>) {
        self.ended = Some(ended);
    }

    /// Returns a description of the peer.
    pub(super) fn peer(&self) -> String {
        match &self.socket {
            Socket::Unix(socket) => socket.peer_addr().map(|address| {
                let path = address.as_pathname();
                path.map_or_else(
                    || format!("{address:?}"),
                    |path| path.canonicalize().unwrap_or(path.to_owned()).display().to_string(),
                )
            }),
            Socket::Tcp(socket) => socket.peer_addr().map(|address| address.to_string()),
        }
        .unwrap_or_else(|error| error.to_string())
    }

    /// Starts TLS for all later bytes; returns when the handshake is complete.
    pub(super) fn start_tls(&mut self, mut channel: Channel) -> Result<(), ClientError> {
        while channel.is_handshaking() {
            match channel.handshake(&self.socket) {
                Ok(true) => {}
                Ok(false) => return Err(ClientError::Closed),
                Err(failure) if failure.is_wait() => {
                    self.wait_blocking(channel.has_unsent())?;
                }
                Err(failure) => return Err(to_io(failure).into()),
            }
        }
        self.channel = Some(Box::new(channel));
        // The last message of a handshake may be the client's.
        Ok(self.flush()?)
    }

    /// Sends as much as the socket accepts now; `None` if it accepts nothing.
    pub(super) fn send_now(&mut self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, ClientError> {
        let sent = match &mut self.channel {
            None => self.socket.send(parts).map_err(Failure::Socket),
            Some(channel) => channel.send(&self.socket, parts),
        };
        match sent {
            Ok(sent) => Ok(Some(sent)),
            Err(failure) if failure.is_wait() => Ok(None),
            Err(failure) => Err(to_io(failure).into()),
        }
    }

    /// Sends bytes that are buffered; returns true if none are left.
    pub(super) fn flush_now(&mut self) -> Result<bool, ClientError> {
        let Some(channel) = &mut self.channel else { return Ok(true) };
        match channel.flush(&self.socket) {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_wait() => Ok(false),
            Err(failure) => Err(to_io(failure).into()),
        }
    }

    /// Returns true if a read returns data that polling the socket does not report.
    pub(super) fn has_input(&mut self) -> bool {
        self.channel.as_mut().is_some_and(|channel| channel.has_input())
    }

    /// Waits until one of the connections has input, or the timeout has passed.
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

    /// Waits until there is input, or with `output` room for output, or the timeout has passed.
    pub(super) fn wait_ready(
        &self,
        output: bool,
        timeout: Option<Duration>,
    ) -> Result<Option<Readiness>, ClientError> {
        let events = if output { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        // A timeout that does not fit is longer than any wait.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [PollFd::new(self, events)];
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The next read reports a closed or failed connection.
        let ready = fds[0].revents();
        let input = ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        Ok(Some(Readiness { input, output: ready.contains(PollFlags::OUT) }))
    }

    /// Waits for the socket until the deadline, or until another thread ends the wait.
    pub(super) fn wait_blocking(&self, output: bool) -> io::Result<Readiness> {
        loop {
            if self.ended.as_ref().is_some_and(|ended| ended.load(Ordering::Acquire)) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let left = self.deadline.left();
            let check = self.ended.as_ref().map(|_| END_CHECK_INTERVAL);
            let timeout = left.map_or(check, |left| Some(check.map_or(left, |at| at.min(left))));
            match self.wait_ready(output, timeout) {
                Ok(Some(ready)) => return Ok(ready),
                Ok(None) if left == Some(Duration::ZERO) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(None) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Converts a failure; an error of TLS is invalid data.
fn to_io(failure: Failure) -> io::Error {
    match failure {
        Failure::Socket(error) => error.into(),
        Failure::Tls(error) => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match &mut self.channel {
                None => self.socket.receive(buffer).map_err(Failure::Socket),
                Some(channel) => channel.receive(&self.socket, buffer),
            };
            match received {
                Ok(count) => return Ok(count),
                Err(failure) if failure.is_wait() => {
                    let output = self.channel.as_ref().is_some_and(|channel| channel.has_unsent());
                    self.wait_blocking(output)?;
                }
                Err(failure) => return Err(to_io(failure)),
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            let parts = [IoSlice::new(buffer)];
            let sent = match &mut self.channel {
                None => self.socket.send(&parts).map_err(Failure::Socket),
                Some(channel) => channel.send(&self.socket, &parts),
            };
            match sent {
                Ok(count) => {
                    self.flush()?;
                    return Ok(count);
                }
                Err(failure) if failure.is_wait() => drop(self.wait_blocking(true)?),
                Err(failure) => return Err(to_io(failure)),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(channel) = &mut self.channel {
            match channel.flush(&self.socket) {
                Ok(()) => break,
                Err(failure) if failure.is_wait() => drop(self.wait_blocking(true)?),
                Err(failure) => return Err(to_io(failure)),
            }
        }
        Ok(())
    }
}
