//! Hostile clients of an NBD server: each kind tries to make the server hold memory, or to keep
//! other clients from being served.
//!
//! The clients write the bytes of the protocol themselves, because a correct client library refuses
//! such requests. A kind runs many connections until `stop` is set; a connection that the server
//! closes is opened again. Meanwhile the caller observes the memory of the server and another
//! client.

mod stream;
mod wire;

pub use stream::{Endpoint, Target};

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stream::Stream;

/// The pause between two steps of a client that has nothing to send.
const PAUSE: Duration = Duration::from_millis(20);
/// The number of bytes that a slow reader receives at a time.
const SLOW_READ_BYTES: usize = 512;
/// The length of one read of a slow reader, of one write of a half request, and of data to cache.
const REQUEST_BYTES: u32 = 1 << 20;
/// The length of an option: the maximum that a server accepts.
const OPTION_BYTES: usize = 16 << 10;
/// The number of TLS records, of 4 KiB each, of a message that does not end: the maximum that a
/// server accepts.
const TLS_RECORDS: usize = 6;
/// A piece of a payload; nine of them are more than half of a payload.
static PIECE: [u8; 64_001] = [1; 64_001];
/// The minimum length of the export, so that valid requests of the clients succeed.
pub const EXPORT_BYTES_MIN: u64 = 8 << 20;

/// The offset of the block that a well-behaved client reads.
const BLOCK_AT: u64 = 4 << 20;
const BLOCK_BYTES: u32 = 4096;

/// A kind of hostile client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Connects and sends nothing.
    Silent,
    /// Begins an option, or TLS, and never ends it.
    HalfHandshake,
    /// Requests lists and descriptions repeatedly, and reads no reply.
    OptionList,
    /// Sends requests that fail, and reads less than all of the replies: the queue never empties.
    UnreadError,
    /// Requests the extents of the export, and reads less than all of the replies.
    UnreadStatus,
    /// Requests data that it does not receive, and then sends requests to cache data, which have
    /// replies without data.
    UnreadCache,
    /// Requests as much data as the server accepts, and reads a few bytes at a time.
    SlowReader,
    /// Sends a header and half of the payload.
    HalfRequest,
    /// Writes and flushes, and reads no reply.
    UnreadWrite,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 9] = [
        Kind::Silent,
        Kind::HalfHandshake,
        Kind::OptionList,
        Kind::UnreadError,
        Kind::UnreadStatus,
        Kind::UnreadCache,
        Kind::SlowReader,
        Kind::HalfRequest,
        Kind::UnreadWrite,
    ];

    /// Returns the name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Silent => "silent",
            Kind::HalfHandshake => "half-handshake",
            Kind::OptionList => "option-list",
            Kind::UnreadError => "unread-error",
            Kind::UnreadStatus => "unread-status",
            Kind::UnreadCache => "unread-cache",
            Kind::SlowReader => "slow-reader",
            Kind::HalfRequest => "half-request",
            Kind::UnreadWrite => "unread-write",
        }
    }

    /// Returns true if the connections stay in the handshake.
    #[must_use]
    pub fn stays_in_handshake(self) -> bool {
        matches!(self, Kind::Silent | Kind::HalfHandshake | Kind::OptionList)
    }
}

/// Counts of attacks and of transferred bytes.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections that reached the state in which they attack.
    pub attacks: AtomicU64,
    /// Bytes sent in that state.
    pub sent_bytes: AtomicU64,
    /// Bytes received in that state.
    pub received_bytes: AtomicU64,
}

/// Runs `connections` clients of a kind until `stop` is set.
///
/// # Panics
/// A thread of a client panics.
pub fn attack(kind: Kind, target: &Target, connections: usize, stop: &AtomicBool, counts: &Counts) {
    std::thread::scope(|scope| {
        for number in 0..connections {
            let client = Client { kind, target, number, stop, counts };
            scope.spawn(move || client.run());
        }
    });
}

/// Connects as a well-behaved client, reads a block and disconnects.
///
/// # Errors
/// The server does not serve the client within the time limit of a handshake.
pub fn read_a_block(target: &Target) -> io::Result<()> {
    let mut reader = Reader::connect(target)?;
    reader.read_a_block()?;
    reader.0.write_all(&wire::request(wire::CMD_DISC, 0, 0))
}

/// A well-behaved client.
#[derive(Debug)]
pub struct Reader(Stream);

impl Reader {
    /// Connects to the export.
    ///
    /// # Errors
    /// The server does not serve the client within the time limit of a handshake.
    pub fn connect(target: &Target) -> io::Result<Self> {
        let mut stream = target.connect()?;
        wire::begin_handshake(&mut stream)?;
        if let Some(tls) = &target.tls {
            wire::start_tls(&mut stream)?;
            stream.start_tls(tls)?;
        }
        wire::negotiate(&mut stream, &target.export)?;
        Ok(Reader(stream))
    }

    /// Reads a fixed block.
    ///
    /// # Errors
    /// The server disconnects, or replies with anything other than data.
    pub fn read_a_block(&mut self) -> io::Result<()> {
        self.read_block_at(BLOCK_AT)
    }

    /// Reads all blocks of the first `bytes`, so that they fill the cache.
    ///
    /// # Errors
    /// The server disconnects, or replies with anything other than data.
    pub fn read_all(&mut self, bytes: u64) -> io::Result<()> {
        (0..bytes / u64::from(BLOCK_BYTES))
            .try_for_each(|block| self.read_block_at(block * u64::from(BLOCK_BYTES)))
    }

    fn read_block_at(&mut self, offset: u64) -> io::Result<()> {
        self.0.write_all(&wire::request(wire::CMD_READ, offset, BLOCK_BYTES))?;
        let mut reply = [0; wire::DATA_HEADER_BYTES + BLOCK_BYTES as usize];
        self.0.read_exact(&mut reply)?;
        if wire::is_data(&reply) {
            return Ok(());
        }
        Err(io::Error::other("the server answers with something else than data"))
    }
}

/// A hostile client, which connects again when the server disconnects it.
struct Client<'a> {
    kind: Kind,
    target: &'a Target,
    number: usize,
    stop: &'a AtomicBool,
    counts: &'a Counts,
}

impl Client<'_> {
    fn run(&self) {
        while !self.is_stopped() {
            // An error is expected: the server disconnects hostile clients.
            drop(self.connect_and_attack());
            std::thread::sleep(PAUSE);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn connect_and_attack(&self) -> io::Result<()> {
        let mut stream = self.target.connect()?;
        if self.kind == Kind::Silent {
            self.begin_attack(&stream)?;
            return self.wait_until_closed(&mut stream);
        }
        wire::begin_handshake(&mut stream)?;
        if self.kind == Kind::HalfHandshake && self.number.is_multiple_of(2) {
            return self.request_tls_and_stall(&mut stream);
        }
        if let Some(tls) = &self.target.tls {
            wire::start_tls(&mut stream)?;
            stream.start_tls(tls)?;
        }
        match self.kind {
            Kind::Silent => Ok(()),
            Kind::HalfHandshake => {
                self.begin_attack(&stream)?;
                let option = wire::option(wire::OPT_INFO, &PIECE[..OPTION_BYTES]);
                self.send(&mut stream, &option[..option.len() - 1])?;
                self.wait_until_closed(&mut stream)
            }
            Kind::OptionList => {
                self.send_forever(&mut stream, &wire::option_list(&self.target.export), false)
            }
            Kind::UnreadError => {
                wire::negotiate(&mut stream, &self.target.export)?;
                let beyond = wire::request(wire::CMD_READ, u64::MAX / 2, 4096);
                self.send_forever(&mut stream, &beyond.repeat(512), true)
            }
            Kind::UnreadStatus => {
                wire::negotiate(&mut stream, &self.target.export)?;
                let status = wire::request(wire::CMD_BLOCK_STATUS, 0, 1 << 20);
                self.send_forever(&mut stream, &status.repeat(64), true)
            }
            Kind::UnreadCache => {
                wire::negotiate(&mut stream, &self.target.export)?;
                let read = wire::request(wire::CMD_READ, 0, 8 * REQUEST_BYTES);
                self.send(&mut stream, &read)?;
                let cache = wire::request(wire::CMD_CACHE, 0, REQUEST_BYTES);
                self.send_forever(&mut stream, &cache.repeat(512), false)
            }
            Kind::SlowReader => {
                wire::negotiate(&mut stream, &self.target.export)?;
                let read = wire::request(wire::CMD_READ, 0, REQUEST_BYTES);
                self.read_slowly(&mut stream, &read)
            }
            Kind::HalfRequest => {
                wire::negotiate(&mut stream, &self.target.export)?;
                self.begin_attack(&stream)?;
                self.send(&mut stream, &wire::request(wire::CMD_WRITE, 0, REQUEST_BYTES))?;
                for _ in 0..9 {
                    self.send(&mut stream, &PIECE)?;
                }
                self.wait_until_closed(&mut stream)
            }
            Kind::UnreadWrite => {
                wire::negotiate(&mut stream, &self.target.export)?;
                self.send_forever(&mut stream, &wire::writes_and_flushes(), false)
            }
        }
    }

    /// Requests TLS and sends less than half of a message.
    fn request_tls_and_stall(&self, stream: &mut Stream) -> io::Result<()> {
        wire::request_tls(stream)?;
        // A hello that announces 60,000 bytes, in records of 4,096 bytes.
        let mut message = vec![1, 0, 0xea, 0x60];
        message.resize(TLS_RECORDS << 12, 1);
        self.begin_attack(stream)?;
        for part in message.chunks(1 << 12) {
            self.send(stream, &[&[22, 3, 1, 0x10, 0], part].concat())?;
        }
        self.wait_until_closed(stream)
    }

    /// Counts an attack, and sets short timeouts.
    fn begin_attack(&self, stream: &Stream) -> io::Result<()> {
        self.counts.attacks.fetch_add(1, Ordering::Relaxed);
        stream.set_short_timeouts()
    }

    /// Sends all of `bytes`, even if the server accepts them slowly.
    fn send(&self, stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() && !self.is_stopped() {
            sent += self.send_some(stream, &bytes[sent..])?.unwrap_or(0);
        }
        Ok(())
    }

    /// Sends some bytes; returns `None` if the server accepts nothing within the timeout.
    fn send_some(&self, stream: &mut Stream, bytes: &[u8]) -> io::Result<Option<usize>> {
        match stream.write(bytes) {
            // The buffer of a TLS connection is full.
            Ok(0) => Ok(None),
            Ok(count) => {
                self.counts.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
                Ok(Some(count))
            }
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Receives some bytes; returns `None` if nothing arrives within the timeout.
    fn receive_some(&self, stream: &mut Stream, into: &mut [u8]) -> io::Result<Option<usize>> {
        match stream.read(into) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.counts.received_bytes.fetch_add(count as u64, Ordering::Relaxed);
                Ok(Some(count))
            }
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn wait_until_closed(&self, stream: &mut Stream) -> io::Result<()> {
        let mut bytes = [0; 4096];
        while !self.is_stopped() {
            if self.receive_some(stream, &mut bytes)?.is_none() {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Sends the same bytes repeatedly. When the server accepts no more, a client that `reads`
    /// receives some of the replies, but never all of them.
    fn send_forever(&self, stream: &mut Stream, bytes: &[u8], reads: bool) -> io::Result<()> {
        self.begin_attack(stream)?;
        let (mut sent, mut replies) = (0, vec![0; 32 << 10]);
        while !self.is_stopped() {
            match self.send_some(stream, &bytes[sent..])? {
                Some(count) => sent = (sent + count) % bytes.len(),
                None if reads => {
                    self.receive_some(stream, &mut replies)?;
                }
                None => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Sends requests as long as the server accepts them, and reads a few bytes at a time.
    fn read_slowly(&self, stream: &mut Stream, request: &[u8]) -> io::Result<()> {
        self.begin_attack(stream)?;
        let (mut sent, mut some) = (0, [0; SLOW_READ_BYTES]);
        while !self.is_stopped() {
            if let Some(count) = self.send_some(stream, &request[sent..])? {
                sent = (sent + count) % request.len();
            } else {
                self.receive_some(stream, &mut some)?;
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
