//! The connection: a Unix or TCP socket, plain or with TLS.
//!
//! Reading blocks; sending a request does not, so that a client can read while its server is busy
//! sending, and the two do not wait for each other.

use super::deadline::Deadline;
use super::error::ClientError;
use super::uri::NbdAddress;
use crate::tls::{Channel, Failure, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, socket_with,
    sockopt,
};
use std::ffi::OsStr;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// TCP keep-alive: idle time before the first probe, interval and number of probes; 25 s in all.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_COUNT: u32 = 3;
/// Bytes read ahead from the socket: many headers and small replies in one call. Longer data goes
/// directly to the request's buffer.
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Interval at which a wait checks whether another thread has ended it.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Stream {
    transport: Transport<OwnedFd>,
    /// Deadline of the current exchange.
    pub deadline: Deadline,
    /// Set by another thread to end all waits for the server.
    pub ended: Option<Arc<AtomicBool>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SocketReadiness {
    pub input: bool,
    pub output: bool,
}

/// Connects to the first address of a host that accepts, until the deadline.
fn connect_tcp(host: &str, port: u16, deadline: Deadline) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match deadline.left() {
            None => TcpStream::connect(address),
            Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
            Some(left) => TcpStream::connect_timeout(&address, left),
        };
        match connected {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a unix socket. A server that accepts no connection blocks until the deadline.
fn connect_unix(path: &Path, deadline: Deadline) -> io::Result<OwnedFd> {
    let address = match path.as_os_str().as_bytes() {
        [0, name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, deadline.left())?;
    retry_on_intr(|| connect(&socket, &address))?;
    Ok(socket)
}

impl Stream {
    pub(super) fn connect(address: &NbdAddress, deadline: Deadline) -> Result<Self, ClientError> {
        let (socket, peer) = match address {
            NbdAddress::Unix(path) => (connect_unix(path, deadline), path.display().to_string()),
            NbdAddress::Tcp { host, port } => {
                (connect_tcp(host, *port, deadline), format!("{host} port {port}"))
            }
        };
        let socket = socket.map_err(|error| ClientError::Connect { address: peer, error })?;
        if let NbdAddress::Tcp { .. } = address {
            // Requests are sent whole; waiting for more data would only delay them.
            sockopt::set_tcp_nodelay(&socket, true)?;
            // The kernel also detects an unreachable host while the client waits for a reply.
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_INTERVAL)?;
            sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_COUNT)?;
        }
        Ok(Stream::new(socket, deadline))
    }

    /// Returns the stream of a connected socket.
    pub(super) fn new(socket: OwnedFd, deadline: Deadline) -> Self {
        Stream { transport: Transport::new(socket), deadline, ended: None }
    }

    pub(super) fn buffered(self) -> BufReader<Self> {
        BufReader::with_capacity(READ_BUFFER_BYTES, self)
    }

    pub(super) fn peer(&self) -> String {
        let address = match getpeername(self).and_then(|named| named.ok_or(Errno::NOTCONN)) {
            Ok(address) => address,
            Err(error) => return error.to_string(),
        };
        if let Ok(address) = SocketAddr::try_from(address.clone()) {
            return address.to_string();
        }
        let address = SocketAddrUnix::try_from(address).ok();
        let path = address.as_ref().and_then(SocketAddrUnix::path);
        path.map_or_else(
            || format!("{address:?}"),
            |path| {
                let path = Path::new(OsStr::from_bytes(path.to_bytes()));
                path.canonicalize().as_deref().unwrap_or(path).display().to_string()
            },
        )
    }

    /// Starts TLS for all later bytes; returns when the handshake is complete.
    pub(super) fn start_tls(&mut self, mut channel: Channel) -> Result<(), ClientError> {
        while channel.is_handshaking() {
            match channel.handshake(&self.transport.socket) {
                Ok(true) => {}
                Ok(false) => return Err(ClientError::Closed),
                Err(failure) => self.wait_after(failure, channel.has_unsent())?,
            }
        }
        self.transport.channel = Some(Box::new(channel));
        // The last message of a handshake may be the client's.
        Ok(self.flush()?)
    }

    /// Sends as much as the socket accepts now; `None` if it accepts nothing.
    pub(super) fn send_now(&mut self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, ClientError> {
        match self.transport.send(parts) {
            Ok(sent) => Ok(Some(sent)),
            Err(failure) if failure.is_wait() => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Sends bytes that are buffered; returns true if none are left.
    pub(super) fn flush_now(&mut self) -> Result<bool, ClientError> {
        Ok(self.transport.flush()?)
    }

    /// Returns true if a read returns data that polling the socket does not report.
    pub(super) fn has_input(&mut self) -> bool {
        self.transport.has_input()
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
    ) -> io::Result<Option<SocketReadiness>> {
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
        Ok(Some(SocketReadiness { input, output: ready.contains(PollFlags::OUT) }))
    }

    /// Waits for the socket until the deadline, or until another thread ends the wait.
    pub(super) fn wait_blocking(&self, output: bool) -> io::Result<SocketReadiness> {
        loop {
            if self.ended.as_ref().is_some_and(|ended| ended.load(Ordering::Acquire)) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let left = self.deadline.left();
            let check = self.ended.as_ref().map(|_| END_CHECK_INTERVAL);
            match self.wait_ready(output, left.into_iter().chain(check).min())? {
                Some(ready) => return Ok(ready),
                None if left == Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
                None => {}
            }
        }
    }

    /// Waits after a call that the socket did not accept yet.
    fn wait_after(&self, failure: Failure, output: bool) -> io::Result<()> {
        if failure.is_wait() { self.wait_blocking(output).map(drop) } else { Err(failure.into()) }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.transport.receive(buffer) {
                Ok(count) => return Ok(count),
                Err(failure) => self.wait_after(failure, self.transport.has_unsent())?,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            match self.transport.send(&[IoSlice::new(buffer)]) {
                Ok(count) => {
                    self.flush()?;
                    return Ok(count);
                }
                Err(failure) => self.wait_after(failure, true)?,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.transport.flush()? {
            self.wait_blocking(true)?;
        }
        Ok(())
    }
}
