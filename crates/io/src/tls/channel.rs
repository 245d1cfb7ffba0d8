//! A TLS connection over a socket that does not wait.
//!
//! Bytes in clear go in and out; records go through the socket. Invariants: what is kept is
//! bounded (what one receive brought, one record that is not whole, and at most
//! [`SEALED_BYTES_MAX`] that the socket has not taken), and a call receives from the socket at
//! most once, so that a peer that sends records without content cannot keep its caller from
//! looking at the time. Whoever is told to wait for the socket has taken out all that had come.

use super::{Failure, RawSocket};
use rustix::io::Errno;
use rustls::Connection;
use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};

/// Bytes of one receive: a record of the largest size, and what comes behind it.
const RECEIVED_BYTES_MAX: usize = 20 << 10;
/// Bytes in records that the socket has not taken; nothing more is sealed meanwhile.
const SEALED_BYTES_MAX: usize = 16 << 10;

/// One side of a TLS connection.
pub(crate) struct Channel {
    tls: Connection,
    received: Box<[u8]>,
    start: usize,
    end: usize,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

/// A socket as a writer of records.
struct Records<'a, S>(&'a S);

impl<S: RawSocket> Write for Records<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.0.send(slices)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel {
    /// A channel whose first records may have been received already.
    pub(super) fn new(mut tls: Connection, received: &[u8]) -> Self {
        tls.set_buffer_limit(Some(SEALED_BYTES_MAX));
        let mut buffer = vec![0; RECEIVED_BYTES_MAX.max(received.len())].into_boxed_slice();
        buffer[..received.len()].copy_from_slice(received);
        Channel { tls, received: buffer, start: 0, end: received.len() }
    }

    /// Whether the two sides have not agreed yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether records wait for the socket to take them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    /// Makes one step of the handshake; false if the peer is gone.
    pub(crate) fn handshake(&mut self, socket: &impl RawSocket) -> Result<bool, Failure> {
        self.flush(socket)?;
        if !self.is_handshaking() {
            return Ok(true);
        }
        if self.start == self.end {
            self.end = socket.receive(&mut self.received).map_err(Failure::Socket)?;
            self.start = 0;
        }
        let came = self.start < self.end;
        self.open(socket)?;
        Ok(came)
    }

    /// Whether [`Channel::receive`] has something without the socket.
    pub(crate) fn has_input(&mut self) -> bool {
        self.start < self.end || self.tls.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Receives bytes in clear: 0 at the end, also where the peer did not announce it, which the
    /// caller's protocol tells from the end of a request.
    pub(crate) fn receive(
        &mut self,
        socket: &impl RawSocket,
        to: &mut [u8],
    ) -> Result<usize, Failure> {
        let mut filled = 0;
        let mut asked = false;
        loop {
            match self.tls.reader().read(&mut to[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Ok(filled),
            }
            if filled == to.len() {
                // Decrypted bytes have to be consumed before more records are decrypted.
                return Ok(filled);
            }
            if self.start == self.end {
                if filled > 0 {
                    return Ok(filled);
                }
                if asked {
                    return Err(Failure::Socket(Errno::AGAIN));
                }
                asked = true;
                self.end = socket.receive(&mut self.received).map_err(Failure::Socket)?;
                self.start = 0;
                if self.end == 0 {
                    return Ok(0);
                }
            }
            self.open(socket)?;
        }
    }

    /// Opens records of what was received.
    fn open(&mut self, socket: &impl RawSocket) -> Result<(), Failure> {
        let mut rest = &self.received[self.start..self.end];
        match self.tls.read_tls(&mut rest) {
            // What comes after the peer's goodbye is nobody's.
            Ok(0) => self.start = self.end,
            Ok(count) => self.start += count,
            Err(error) => return Err(Failure::Tls(error.to_string())),
        }
        let processed = self.tls.process_new_packets();
        // An answer of the handshake, or the alert that says what is wrong.
        let flushed = self.flush(socket);
        processed.map_err(|error| Failure::Tls(error.to_string()))?;
        match flushed {
            Err(failure) if !failure.is_wait() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Seals bytes in clear and sends what the socket takes; how many were taken over.
    pub(crate) fn send(
        &mut self,
        socket: &impl RawSocket,
        slices: &[IoSlice<'_>],
    ) -> Result<usize, Failure> {
        let sealed = self.tls.writer().write_vectored(slices);
        let sealed = sealed.map_err(|error| Failure::Tls(error.to_string()))?;
        match self.flush(socket) {
            Err(failure) if !failure.is_wait() || sealed == 0 => Err(failure),
            _ => Ok(sealed),
        }
    }

    /// Sends records that the socket has not taken yet.
    pub(crate) fn flush(&mut self, socket: &impl RawSocket) -> Result<(), Failure> {
        while self.tls.wants_write() {
            if let Err(error) = self.tls.write_tls(&mut Records(socket)) {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                return Err(Failure::Socket(errno));
            }
        }
        Ok(())
    }

    /// Says goodbye, if the socket takes it at once.
    pub(crate) fn close(&mut self, socket: &impl RawSocket) {
        self.tls.send_close_notify();
        let flushed = self.flush(socket);
        tracing::trace!(?flushed, "closed a TLS connection");
    }
}
