//! A TLS connection over a non-blocking socket.
//!
//! Plaintext goes in and out; records go through the socket. Invariants: buffered data is bounded
//! (the bytes of one receive, a record or at most [`SILENT_BYTES_MAX`] of incomplete messages, and
//! at most [`SEALED_BYTES_MAX`] that the socket has not accepted), and a call receives from the
//! socket at most once, so that a peer that sends records without content cannot keep the caller
//! from checking the time. A caller that waits for the socket has consumed all plaintext that was
//! received.

use super::{Failure, RawSocket};
use rustix::io::Errno;
use rustls::Connection;
use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};

/// Bytes of one receive: a record of the largest size, and bytes behind it.
const RECEIVED_BYTES_MAX: usize = 20 << 10;
/// Bytes in records that the socket has not accepted; no more are encrypted meanwhile.
const SEALED_BYTES_MAX: usize = 16 << 10;
/// Received bytes without content: the messages of a handshake, which consist mostly of the peer's
/// certificates, and at any time an incomplete message or record. The buffer of rustls is larger by
/// one read of 4 KiB, and is allocated in powers of two.
const SILENT_BYTES_MAX: usize = 28 << 10;
/// Bytes of the first receive after the buffer was released.
const FIRST_BYTES: usize = 512;

pub(crate) struct Channel {
    tls: Connection,
    /// The whole buffer, or the bytes that [`Channel::shrink`] has left.
    received: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes that rustls has taken since the last content.
    silent_bytes: usize,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

/// A socket as a writer of records.
struct RecordWriter<'a, S>(&'a S);

impl<S: RawSocket> Write for RecordWriter<'_, S> {
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
    /// Creates a channel whose first records may have been received already.
    pub(super) fn new(mut tls: Connection, received: &[u8]) -> Self {
        tls.set_buffer_limit(Some(SEALED_BYTES_MAX));
        // The buffer is whole until the handshake ends: a socket that is closed with unread bytes
        // discards the alert that names the error.
        let mut buffer = vec![0; RECEIVED_BYTES_MAX.max(received.len())].into_boxed_slice();
        buffer[..received.len()].copy_from_slice(received);
        Channel { tls, received: buffer, start: 0, end: received.len(), silent_bytes: 0 }
    }

    /// Returns true if there is memory to release.
    pub(crate) fn is_whole(&self) -> bool {
        self.received.len() >= RECEIVED_BYTES_MAX
    }

    /// Releases the receive buffer, except for bytes that rustls has not taken.
    pub(crate) fn shrink(&mut self) {
        self.received = self.received[self.start..self.end].into();
        (self.start, self.end) = (0, self.received.len());
    }

    /// Receives into the empty buffer, which is restored when bytes arrive. Returns the number of
    /// bytes.
    fn fill(&mut self, socket: &impl RawSocket) -> Result<usize, Failure> {
        debug_assert_eq!(self.start, self.end, "rustls has taken all that had come");
        if self.is_whole() {
            self.end = socket.receive(&mut self.received).map_err(Failure::Socket)?;
        } else {
            let mut first = [0; FIRST_BYTES];
            let count = socket.receive(&mut first).map_err(Failure::Socket)?;
            let mut buffer = vec![0; RECEIVED_BYTES_MAX].into_boxed_slice();
            buffer[..count].copy_from_slice(&first[..count]);
            (self.received, self.end) = (buffer, count);
        }
        self.start = 0;
        Ok(self.end)
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    /// Makes one step of the handshake; returns false if the peer is gone.
    pub(crate) fn handshake(&mut self, socket: &impl RawSocket) -> Result<bool, Failure> {
        self.flush(socket)?;
        if !self.is_handshaking() {
            return Ok(true);
        }
        if self.start == self.end {
            self.fill(socket)?;
        }
        let is_connected = self.start < self.end;
        self.decrypt(socket)?;
        Ok(is_connected)
    }

    /// Returns true if [`Channel::receive`] returns bytes without the socket.
    pub(crate) fn has_input(&mut self) -> bool {
        self.start < self.end || self.tls.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Receives plaintext: 0 at the end, also if the peer did not announce it; the caller's
    /// protocol distinguishes that from the end of a request.
    pub(crate) fn receive(
        &mut self,
        socket: &impl RawSocket,
        to: &mut [u8],
    ) -> Result<usize, Failure> {
        let mut filled = 0;
        let mut has_received = false;
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
                if has_received {
                    return Err(Failure::Socket(Errno::AGAIN));
                }
                has_received = true;
                if self.fill(socket)? == 0 {
                    return Ok(0);
                }
            }
            self.decrypt(socket)?;
        }
    }

    /// Decrypts records of the received bytes.
    fn decrypt(&mut self, socket: &impl RawSocket) -> Result<(), Failure> {
        let mut rest = &self.received[self.start..self.end];
        match self.tls.read_tls(&mut rest) {
            // Bytes after the peer's close_notify are ignored.
            Ok(0) => self.start = self.end,
            Ok(count) => {
                self.start += count;
                self.silent_bytes += count;
            }
            Err(error) => return Err(Failure::Tls(error.to_string())),
        }
        let processed = self.tls.process_new_packets();
        // This sends a reply of the handshake, or the alert that names the error.
        let flushed = self.flush(socket);
        let state = processed.map_err(|error| Failure::Tls(error.to_string()))?;
        if state.plaintext_bytes_to_read() > 0 {
            self.silent_bytes = 0;
        } else if self.silent_bytes > SILENT_BYTES_MAX {
            let limit = SILENT_BYTES_MAX >> 10;
            let subject = if self.is_handshaking() {
                "a handshake, with all certificates of the peer,"
            } else {
                "messages without content"
            };
            return Err(Failure::Tls(format!("{subject} of more than {limit} KiB")));
        }
        match flushed {
            Err(failure) if !failure.is_wait() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Encrypts plaintext and sends what the socket accepts; returns the number of encrypted bytes.
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

    /// Sends records that the socket has not accepted yet.
    pub(crate) fn flush(&mut self, socket: &impl RawSocket) -> Result<(), Failure> {
        while self.tls.wants_write() {
            if let Err(error) = self.tls.write_tls(&mut RecordWriter(socket)) {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                return Err(Failure::Socket(errno));
            }
        }
        Ok(())
    }

    /// Sends `close_notify`, if the socket accepts it immediately.
    pub(crate) fn close(&mut self, socket: &impl RawSocket) {
        self.tls.send_close_notify();
        let flushed = self.flush(socket);
        tracing::trace!(?flushed, "closed a TLS connection");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::cell::RefCell;
    use std::sync::Arc;

    /// A socket that accepts everything, and receives bytes that a test has put there.
    #[derive(Default)]
    struct Script(RefCell<Vec<u8>>);

    impl RawSocket for Script {
        fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
            let mut bytes = self.0.borrow_mut();
            let count = bytes.len().min(to.len());
            to[..count].copy_from_slice(&bytes[..count]);
            bytes.drain(..count);
            if count == 0 { Err(Errno::AGAIN) } else { Ok(count) }
        }

        fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
            Ok(slices.iter().map(|slice| slice.len()).sum())
        }
    }

    fn channel(received: &[u8]) -> Channel {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("nothing fails here")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("nothing fails here");
        let client = ClientConnection::new(Arc::new(config), name).expect("nothing fails here");
        Channel::new(client.into(), received)
    }

    /// Returns the beginning of a server's first message, in records of 1,000 bytes.
    fn long_hello(records: usize) -> Vec<u8> {
        let mut message = vec![2, 0, 0xea, 0x60];
        message.resize(records * 1000, 0);
        let record = |part: &[u8]| [&[22, 3, 3, 0x03, 0xe8][..], part].concat();
        message.chunks(1000).flat_map(record).collect()
    }

    #[test]
    fn a_released_receive_buffer_is_restored_when_bytes_come() {
        let socket = Script::default();
        let mut channel = channel(&[]);
        let receive = |channel: &mut Channel| channel.receive(&socket, &mut [0; 100]);
        for _ in 0..3 {
            socket.0.borrow_mut().extend(long_hello(1));
            while channel.start < channel.end || !socket.0.borrow().is_empty() {
                assert!(receive(&mut channel).unwrap_err().is_wait());
            }
            assert!(channel.is_whole());
            channel.shrink();
            assert!(receive(&mut channel).unwrap_err().is_wait());
            assert!(!channel.is_whole() && channel.received.is_empty());
        }
    }

    #[test]
    fn bytes_that_were_not_taken_stay_in_a_released_buffer() {
        let mut channel = channel(&long_hello(2)[..1500]);
        channel.shrink();
        assert_eq!(channel.received[..], long_hello(2)[..1500]);
        assert!(channel.has_input());
    }

    #[test]
    fn a_handshake_has_a_maximum_of_bytes() {
        let socket = Script::default();
        let mut channel = channel(&[]);
        socket.0.borrow_mut().extend(long_hello(60));
        let failure = loop {
            match channel.receive(&socket, &mut [0; 100]) {
                Err(failure) if failure.is_wait() => {
                    assert!(!socket.0.borrow().is_empty(), "all was taken");
                }
                Err(Failure::Tls(text)) => break text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(failure, "a handshake, with all certificates of the peer, of more than 28 KiB");
        assert!(socket.0.borrow().len() > 1000, "the rest was not received");
    }
}
