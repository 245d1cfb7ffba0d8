//! Bytes of the NBD protocol: requests, replies, and the numbers in them.
//!
//! NBD's proto.md, "Transmission phase": request message (28 bytes), simple reply (16), chunk of a
//! structured reply (20, and the fixed part of its type). Headers are built into fixed arrays, so
//! that answering a request allocates nothing. The layouts of the handshake are in `negotiation`.
//! All numbers are big-endian on the wire; offsets and lengths are in bytes.

mod errno;
mod negotiation;
#[cfg(test)]
mod tests;
mod values;

pub use errno::Errno;
pub(crate) use negotiation::{
    BlockSizeReply, ExportInfoReply, ExportReply, OPTION_HEADER_BYTES, OptionHeader,
    OptionReplyHeader, ServerGreeting,
};
pub use negotiation::{GREETING_BYTES, OPTION_REPLY_HEADER_BYTES};
pub use values::*;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Block sizes of an export, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Smallest length and alignment of a request: a power of two, at most 64 KiB.
    pub min: u32,
    /// Length and alignment that the server serves best: a power of two, at least 512 and `min`.
    pub preferred: u32,
    /// Longest read or write: a multiple of `min`, at least `preferred`.
    pub max: u32,
}

impl Default for BlockSizes {
    /// Any byte, best in 4 KiB, at most 32 MiB: a client assumes this if it does not request the
    /// sizes.
    fn default() -> Self {
        Self { min: 1, preferred: 4096, max: DEFAULT_BLOCK_BYTES_MAX }
    }
}

/// Bytes of a request header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply header.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of the header of a chunk.
pub const CHUNK_BYTES: usize = 20;

/// A message without its magic: the client and the server no longer agree on message boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} starts with {found:#x} instead of {expected:#x}")]
pub struct BadMagic {
    message: &'static str,
    expected: u64,
    found: u64,
}

impl BadMagic {
    fn check(message: &'static str, expected: u64, found: u64) -> Result<(), Self> {
        if found == expected { Ok(()) } else { Err(Self { message, expected, found }) }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRequest {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    offset: U64,
    len: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSimpleReply {
    magic: U32,
    error: U32,
    cookie: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChunk {
    magic: U32,
    flags: U16,
    kind: U16,
    cookie: U64,
    len: U32,
}

/// A chunk header and the fixed part `T` of its payload.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChunkWith<T> {
    chunk: RawChunk,
    payload: T,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawError {
    error: U32,
    message_len: U16,
}

/// A request header. `command` and `flags` are as received: an unknown one still has a cookie for
/// the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `CMD_FLAG_*` bits.
    pub flags: u16,
    /// One of `CMD_*`, or unknown.
    pub command: u16,
    /// Chosen by the client; repeated in the reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes; for a write also of the data that follows.
    pub len: u32,
}

impl Request {
    /// Reads a header.
    ///
    /// # Errors
    /// If the magic is wrong.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, BadMagic> {
        let raw: RawRequest = zerocopy::transmute!(*bytes);
        BadMagic::check("request", REQUEST_MAGIC.into(), raw.magic.get().into())?;
        Ok(Self {
            flags: raw.flags.get(),
            command: raw.command.get(),
            cookie: raw.cookie.get(),
            offset: raw.offset.get(),
            len: raw.len.get(),
        })
    }

    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; REQUEST_BYTES] {
        zerocopy::transmute!(RawRequest {
            magic: REQUEST_MAGIC.into(),
            flags: self.flags.into(),
            command: self.command.into(),
            cookie: self.cookie.into(),
            offset: self.offset.into(),
            len: self.len.into(),
        })
    }
}

/// The header of a chunk, as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// `CHUNK_FLAG_*` bits.
    pub(crate) flags: u16,
    /// One of `CHUNK_*`, or unknown.
    pub(crate) kind: u16,
    pub(crate) cookie: u64,
    /// Bytes of payload.
    pub(crate) len: u32,
}

impl Chunk {
    pub(crate) fn parse(bytes: &[u8; CHUNK_BYTES]) -> Result<Self, BadMagic> {
        let raw: RawChunk = zerocopy::transmute!(*bytes);
        BadMagic::check("chunk", STRUCTURED_REPLY_MAGIC.into(), raw.magic.get().into())?;
        let (flags, kind) = (raw.flags.get(), raw.kind.get());
        Ok(Self { flags, kind, cookie: raw.cookie.get(), len: raw.len.get() })
    }
}

/// Cookie and error value of a simple reply, as a client reads it; zero is success.
///
/// # Errors
/// If the magic is wrong.
pub fn parse_simple_reply(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Result<(u64, u32), BadMagic> {
    let raw: RawSimpleReply = zerocopy::transmute!(*bytes);
    BadMagic::check("simple reply", SIMPLE_REPLY_MAGIC.into(), raw.magic.get().into())?;
    Ok((raw.cookie.get(), raw.error.get()))
}

/// A simple reply; if it reports success, the data of a read follows.
#[must_use]
pub fn simple_reply(cookie: u64, result: Result<(), Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
    zerocopy::transmute!(RawSimpleReply {
        magic: SIMPLE_REPLY_MAGIC.into(),
        error: result.map_or_else(Errno::code, |()| 0).into(),
        cookie: cookie.into(),
    })
}

fn raw_chunk(cookie: u64, done: bool, kind: u16, len: u32) -> RawChunk {
    RawChunk {
        magic: STRUCTURED_REPLY_MAGIC.into(),
        flags: if done { CHUNK_FLAG_DONE } else { 0 }.into(),
        kind: kind.into(),
        cookie: cookie.into(),
        len: len.into(),
    }
}

/// The chunk `NONE`: the successful end of any reply, or the end after other chunks.
pub(crate) fn chunk_none(cookie: u64) -> [u8; CHUNK_BYTES] {
    zerocopy::transmute!(raw_chunk(cookie, true, CHUNK_NONE, 0))
}

/// The chunk `OFFSET_DATA`; `len` bytes of data follow. One chunk holds at most 2^32 - 9 bytes.
#[must_use]
pub fn chunk_data(cookie: u64, done: bool, offset: u64, len: u32) -> [u8; CHUNK_BYTES + 8] {
    debug_assert!(len > 0 && len <= u32::MAX - 8, "a data chunk holds 1 to 2^32 - 9 bytes");
    zerocopy::transmute!(RawChunkWith {
        chunk: raw_chunk(cookie, done, CHUNK_OFFSET_DATA, len.saturating_add(8)),
        payload: U64::new(offset),
    })
}

/// The chunk `BLOCK_STATUS` of one context; `extents` times [`extent`] follow.
#[must_use]
pub fn chunk_block_status(
    cookie: u64,
    done: bool,
    context_id: u32,
    extents: u16,
) -> [u8; CHUNK_BYTES + 4] {
    debug_assert!(extents > 0, "a status has at least one extent");
    let len = 4 + 8 * u32::from(extents);
    zerocopy::transmute!(RawChunkWith {
        chunk: raw_chunk(cookie, done, CHUNK_BLOCK_STATUS, len),
        payload: U32::new(context_id),
    })
}

/// One extent of a block status: bytes and `STATE_*` bits.
#[must_use]
pub fn extent(len: u32, state: u32) -> [u8; 8] {
    debug_assert!(len > 0, "an extent has a length");
    zerocopy::transmute!([U32::new(len), U32::new(state)])
}

/// The chunk `ERROR`; `message_len` bytes of text follow, at most [`STRING_BYTES_MAX`].
#[must_use]
pub fn chunk_error(
    cookie: u64,
    done: bool,
    error: Errno,
    message_len: u16,
) -> [u8; CHUNK_BYTES + 6] {
    debug_assert!(u32::from(message_len) <= STRING_BYTES_MAX, "a message is a string");
    zerocopy::transmute!(RawChunkWith {
        chunk: raw_chunk(cookie, done, CHUNK_ERROR, 6 + u32::from(message_len)),
        payload: RawError { error: error.code().into(), message_len: message_len.into() },
    })
}
