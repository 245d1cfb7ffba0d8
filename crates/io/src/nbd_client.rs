//! An NBD client, for the demonstration, the load generator and the tests of the server.
//!
//! It implements NBD's proto.md, fixed newstyle with simple or structured replies, and uri.md for
//! addresses. One thread uses a connection: it makes calls that wait for their replies, or keeps
//! any number of requests in flight with [`Client::submit`] and [`Client::wait`]. Both can be
//! mixed. The client retries nothing: an error of the connection ends it, since after kill -9 the
//! caller must know which requests were completed. Offsets and lengths are in bytes.

mod deadline;
mod error;
mod handshake;
mod pipeline;
mod receive;
mod stream;
#[cfg(test)]
mod tests;
mod uri;

pub use crate::nbd_wire::BlockSizes;
pub use crate::nbd_wire::Errno;
pub use error::{ClientError, RequestError};
pub use pipeline::{Completion, Extent, Request};
pub use uri::{NbdAddress, NbdUri, UriError, UriTls};

use crate::nbd_wire as wire;
use crate::tls::{Channel, TlsClient};
use deadline::Deadline;
use handshake::OptionNegotiation;
use pipeline::Slot;
use std::collections::VecDeque;
use std::io::{BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stream::Stream;

/// Features and limits that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Structured replies, if the server supports them.
    pub structured: bool,
    /// The context `base:allocation`, if the server supports it; needs structured replies.
    pub base_allocation: bool,
    /// Time limit of the connection with its handshake; then of each wait for the next reply, of
    /// the rest of a reply that has begun, and of sending a request while no reply arrives. Long
    /// data has more time. `None` waits forever.
    pub timeout: Option<Duration>,
}

impl Default for ConnectOptions {
    /// All features, a time limit of one minute.
    fn default() -> Self {
        let timeout = Some(Duration::from_mins(1));
        Self { structured: true, base_allocation: true, timeout }
    }
}

/// Returns the deadline of a handshake with the default options.
fn default_deadline() -> Deadline {
    Deadline::after(ConnectOptions::default().timeout, 0)
}

/// Properties of an export that the server reported, and the negotiated features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportDetails {
    /// The server's name of the export, or else the requested name.
    pub name: String,
    /// Description for users; empty if the server sent none.
    pub description: String,
    /// Length in bytes.
    pub length: u64,
    /// Transmission flags, `FLAG_*` bits.
    pub flags: u16,
    /// Block sizes, or the protocol's defaults if the server sent none.
    pub block_sizes: BlockSizes,
    /// True if the server replies to reads with chunks.
    pub structured: bool,
    /// ID of `base:allocation`, if it was selected.
    pub base_allocation: Option<u32>,
}

impl ExportDetails {
    /// Returns true if all these `FLAG_*` bits are set.
    #[must_use]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

/// One export of a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    /// Name.
    pub name: String,
    /// Description for users; often empty.
    pub description: String,
}

/// Options of a write zeroes request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroFlags {
    /// The zeros are stable before the reply.
    pub fua: bool,
    /// The space stays allocated.
    pub no_hole: bool,
    /// The request fails instead of writing zeros slowly.
    pub fast: bool,
}

/// A connection to one export.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Stream>,
    details: ExportDetails,
    timeout: Option<Duration>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: VecDeque<Completion>,
    /// Buffer of the blocking calls.
    scratch: Vec<u8>,
    failed: bool,
}

/// Returns the names of all exports of the server of `uri`; the export named in `uri` is ignored.
///
/// # Errors
/// If there is no connection, or the server refuses or violates the protocol.
pub fn list_exports(uri: &NbdUri) -> Result<Vec<ListedExport>, ClientError> {
    let channel = tls_channel(uri)?;
    let mut stream = Stream::connect(&uri.address, default_deadline())?.buffered();
    begin(&mut stream, channel)?.list()
}

/// Returns the names of all exports of the server at the other end of a connected socket.
///
/// # Errors
/// If the server refuses or violates the protocol.
pub fn list_exports_of(socket: OwnedFd) -> Result<Vec<ListedExport>, ClientError> {
    begin(&mut Stream::new(socket, default_deadline()).buffered(), None)?.list()
}

/// Returns the client's TLS channel, if the address requires TLS.
fn tls_channel(uri: &NbdUri) -> Result<Option<Channel>, ClientError> {
    let Some(UriTls { certificates, hostname }) = &uri.tls else { return Ok(None) };
    let directory = certificates.as_ref().ok_or_else(|| {
        ClientError::Tls(
            "its address has no certificates to verify the server; add tls-certificates=DIR to it"
                .to_owned(),
        )
    })?;
    let host = match &uri.address {
        NbdAddress::Tcp { host, .. } => host,
        NbdAddress::Unix(_) => "localhost",
    };
    let name = hostname.as_deref().unwrap_or(host);
    Ok(Some(TlsClient::from_directory(directory)?.connect(name)?))
}

fn begin(
    stream: &mut BufReader<Stream>,
    channel: Option<Channel>,
) -> Result<OptionNegotiation<'_>, ClientError> {
    let negotiation = OptionNegotiation::begin(stream)?;
    match channel {
        Some(channel) => negotiation.start_tls(channel),
        None => Ok(negotiation),
    }
}

impl Client {
    /// Connects with the default options.
    ///
    /// # Errors
    /// If there is no connection, or the server refuses or violates the protocol.
    pub fn connect(uri: &NbdUri) -> Result<Self, ClientError> {
        Self::connect_with(uri, ConnectOptions::default())
    }

    /// Connects with these options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(uri: &NbdUri, options: ConnectOptions) -> Result<Self, ClientError> {
        let channel = tls_channel(uri)?;
        let stream = Stream::connect(&uri.address, Deadline::after(options.timeout, 0))?;
        Self::begin(stream.buffered(), channel, &uri.export, options)
    }

    /// Connects to the server at the other end of a connected socket, without TLS.
    ///
    /// # Errors
    /// If the server refuses or violates the protocol.
    pub fn over(
        socket: OwnedFd,
        export: &str,
        options: ConnectOptions,
    ) -> Result<Self, ClientError> {
        let stream = Stream::new(socket, Deadline::after(options.timeout, 0));
        Self::begin(stream.buffered(), None, export, options)
    }

    fn begin(
        mut stream: BufReader<Stream>,
        channel: Option<Channel>,
        export: &str,
        options: ConnectOptions,
    ) -> Result<Self, ClientError> {
        let details = begin(&mut stream, channel)?.negotiate(export, options)?;
        Ok(Self {
            stream,
            details,
            timeout: options.timeout,
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            scratch: Vec::new(),
            failed: false,
        })
    }

    /// Lets another thread end all waits for the server by setting this flag; the connection is
    /// then unusable.
    pub(crate) fn end_with(&mut self, ended: Arc<AtomicBool>) {
        self.stream.get_mut().ended = Some(ended);
    }

    /// Returns the details of the export.
    #[must_use]
    pub fn info(&self) -> &ExportDetails {
        &self.details
    }

    /// Returns the peer: an address with a port, or the path of a socket.
    #[must_use]
    pub fn peer(&self) -> String {
        self.stream.get_ref().peer()
    }

    /// Returns the socket to poll while replies are due and [`Client::has_answer`] returns false.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }

    /// Returns true if input has been received that polling the socket does not report.
    pub fn has_answer(&mut self) -> bool {
        !self.ready.is_empty() || self.has_input()
    }

    /// Waits until one of these connections has input, or `time` has passed. Input that was
    /// received earlier does not count: call [`Client::wait_for`] with a zero time first.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait_any(clients: &[&Client], time: Option<Duration>) -> Result<(), ClientError> {
        let streams: Vec<_> = clients.iter().map(|client| client.stream.get_ref()).collect();
        Stream::wait_any(&streams, time)
    }

    /// Reads the whole buffer, in pieces that the server accepts.
    ///
    /// # Errors
    /// If the server fails a piece, or the connection has failed.
    pub fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ClientError> {
        let mut at = offset;
        for piece in buffer.chunks_mut(self.piece_bytes()) {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.resize(piece.len(), 0);
            let result = self.call(Request::read(at, scratch));
            if result.is_ok() {
                piece.copy_from_slice(&self.scratch);
            }
            result?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes all data, in pieces that the server accepts. With `fua` the data is stable
    /// afterwards.
    ///
    /// # Errors
    /// As [`Client::read_at`], or if the server does not offer FUA.
    pub fn write_at(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<(), ClientError> {
        let flags = self.fua_flag(fua)?;
        let mut at = offset;
        for piece in data.chunks(self.piece_bytes()) {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            scratch.extend_from_slice(piece);
            self.call(Request::write(at, scratch).with_flags(flags))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes all completed writes stable.
    ///
    /// # Errors
    /// If the server does not offer or fails it, or the connection has failed.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.require(wire::FLAG_SEND_FLUSH, "flush")?;
        self.call(Request::flush()).map(drop)
    }

    /// Discards a range. With `fua` the discard is stable afterwards.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn trim(&mut self, offset: u64, len: u32, fua: bool) -> Result<(), ClientError> {
        self.require(wire::FLAG_SEND_TRIM, "trim")?;
        let flags = self.fua_flag(fua)?;
        self.call(Request::trim(offset, len).with_flags(flags)).map(drop)
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn write_zeroes(
        &mut self,
        offset: u64,
        len: u32,
        zero: ZeroFlags,
    ) -> Result<(), ClientError> {
        self.require(wire::FLAG_SEND_WRITE_ZEROES, "write zeroes")?;
        let mut flags = self.fua_flag(zero.fua)?;
        if zero.no_hole {
            flags |= wire::CMD_FLAG_NO_HOLE;
        }
        if zero.fast {
            self.require(wire::FLAG_SEND_FAST_ZERO, "fast zero")?;
            flags |= wire::CMD_FLAG_FAST_ZERO;
        }
        self.call(Request::write_zeroes(offset, len).with_flags(flags)).map(drop)
    }

    /// Announces reads of a range.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn cache(&mut self, offset: u64, len: u32) -> Result<(), ClientError> {
        self.require(wire::FLAG_SEND_CACHE, "cache")?;
        self.call(Request::cache(offset, len)).map(drop)
    }

    /// Returns the allocation from `offset` on: at least one extent. The extents may end before or
    /// after the end of the range.
    ///
    /// # Errors
    /// If `base:allocation` was not selected, or as [`Client::flush`].
    pub fn block_status(&mut self, offset: u64, len: u32) -> Result<Vec<Extent>, ClientError> {
        if self.details.base_allocation.is_none() {
            return Err(ClientError::NotOffered("base:allocation"));
        }
        self.call(Request::block_status(offset, len))
    }

    /// Waits for all replies, sends a disconnect request, and waits until the server has closed.
    ///
    /// # Errors
    /// If the connection has failed.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        while self.in_flight() > 0 {
            self.wait()?;
        }
        // A disconnect request has no reply, so its slot stays active.
        self.submit(Request::disconnect())?;
        self.set_deadline(0);
        match self.stream.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ClientError::Protocol("it answered a disconnect".to_owned())),
            Err(error) => match ClientError::from(error) {
                // The server closed without reading the last bytes.
                ClientError::Closed => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Sends one request and waits for its reply; its buffer becomes the scratch buffer again.
    fn call(&mut self, request: Request) -> Result<Vec<Extent>, ClientError> {
        let cookie = self.submit(request)?;
        let completion = self.wait_where(|completion| completion.cookie == cookie)?;
        self.scratch = completion.data;
        completion.result.map_err(ClientError::Request)?;
        Ok(completion.extents)
    }

    /// Sets the deadline of an exchange that begins now and transfers `bytes` of data.
    fn set_deadline(&mut self, bytes: usize) {
        self.stream.get_mut().deadline = Deadline::after(self.timeout, bytes);
    }

    /// Returns the maximum length of a read or write of one call, a multiple of the minimum block
    /// size.
    fn piece_bytes(&self) -> usize {
        let BlockSizes { min, max, .. } = self.details.block_sizes;
        let bytes = max.min(wire::DEFAULT_BLOCK_BYTES_MAX);
        (bytes - bytes % min).max(min) as usize
    }

    fn require(&self, flag: u16, feature: &'static str) -> Result<(), ClientError> {
        if self.details.has(flag) { Ok(()) } else { Err(ClientError::NotOffered(feature)) }
    }

    fn fua_flag(&self, fua: bool) -> Result<u16, ClientError> {
        if !fua {
            return Ok(0);
        }
        self.require(wire::FLAG_SEND_FUA, "FUA")?;
        Ok(wire::CMD_FLAG_FUA)
    }
}
