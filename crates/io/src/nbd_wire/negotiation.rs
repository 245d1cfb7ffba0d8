//! Byte layouts of the handshake: greeting, options, replies to options.
//!
//! NBD's proto.md, "Newstyle negotiation", "Fixed newstyle negotiation", and "Option reply types"
//! for the information replies. All numbers are big-endian, lengths and sizes are in bytes.

use super::BadMagic;
use super::values::{INFO_BLOCK_SIZE, INFO_EXPORT, OPTION_MAGIC, OPTION_REPLY_MAGIC, SERVER_MAGIC};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of [`ServerGreeting`].
pub const GREETING_BYTES: usize = 18;
/// Bytes of [`OptionHeader`].
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of [`OptionReplyHeader`].
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;

/// The first message of a newstyle server.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ServerGreeting {
    magic: U64,
    option_magic: U64,
    flags: U16,
}

/// The header before the data of each option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionHeader {
    magic: U64,
    option: U32,
    len: U32,
}

/// The header before the data of each reply to an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionReplyHeader {
    magic: U64,
    option: U32,
    reply: U32,
    len: U32,
}

/// The answer to `EXPORT_NAME`, without its padding.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExportReply {
    /// Length of the export.
    pub length: U64,
    /// Transmission flags.
    pub flags: U16,
}

/// The data of an information reply of type `INFO_EXPORT`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExportInfoReply {
    kind: U16,
    /// Length and flags.
    pub export: ExportReply,
}

/// The data of an information reply of type `INFO_BLOCK_SIZE`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockSizeReply {
    kind: U16,
    /// Smallest length and alignment of a request.
    pub min: U32,
    /// Length and alignment that the server serves best.
    pub preferred: U32,
    /// Longest read or write.
    pub max: U32,
}

impl ServerGreeting {
    /// Returns a greeting with these handshake flags.
    #[must_use]
    pub fn new(flags: u16) -> Self {
        Self { magic: SERVER_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: flags.into() }
    }

    /// Returns the handshake flags of a received greeting.
    ///
    /// # Errors
    /// If either magic is wrong.
    pub fn parse(bytes: [u8; GREETING_BYTES]) -> Result<u16, BadMagic> {
        let raw: Self = zerocopy::transmute!(bytes);
        BadMagic::check("greeting", SERVER_MAGIC, raw.magic.get())?;
        BadMagic::check("newstyle greeting", OPTION_MAGIC, raw.option_magic.get())?;
        Ok(raw.flags.get())
    }
}

impl OptionHeader {
    /// Returns a header for `len` bytes of data.
    #[must_use]
    pub fn new(option: u32, len: u32) -> Self {
        Self { magic: OPTION_MAGIC.into(), option: option.into(), len: len.into() }
    }

    /// Returns the option and the length of the data of a received header.
    ///
    /// # Errors
    /// If the magic is wrong.
    pub fn parse(bytes: [u8; OPTION_HEADER_BYTES]) -> Result<(u32, u32), BadMagic> {
        let raw: Self = zerocopy::transmute!(bytes);
        BadMagic::check("option", OPTION_MAGIC, raw.magic.get())?;
        Ok((raw.option.get(), raw.len.get()))
    }
}

impl OptionReplyHeader {
    /// Returns a header for `len` bytes of data.
    #[must_use]
    pub fn new(option: u32, reply: u32, len: u32) -> Self {
        Self {
            magic: OPTION_REPLY_MAGIC.into(),
            option: option.into(),
            reply: reply.into(),
            len: len.into(),
        }
    }

    /// Returns the option, the reply type and the length of the data of a received header.
    ///
    /// # Errors
    /// If the magic is wrong.
    pub fn parse(bytes: [u8; OPTION_REPLY_HEADER_BYTES]) -> Result<(u32, u32, u32), BadMagic> {
        let raw: Self = zerocopy::transmute!(bytes);
        BadMagic::check("option reply", OPTION_REPLY_MAGIC, raw.magic.get())?;
        Ok((raw.option.get(), raw.reply.get(), raw.len.get()))
    }
}

impl ExportReply {
    /// Returns the reply for an export of this length and with these transmission flags.
    #[must_use]
    pub fn new(length: u64, flags: u16) -> Self {
        Self { length: length.into(), flags: flags.into() }
    }
}

impl ExportInfoReply {
    /// Returns the length and the transmission flags of an export, with the type before them.
    #[must_use]
    pub fn new(length: u64, flags: u16) -> Self {
        Self { kind: INFO_EXPORT.into(), export: ExportReply::new(length, flags) }
    }
}

impl BlockSizeReply {
    /// Returns the block sizes, with the type before them.
    #[must_use]
    pub fn new(min: u32, preferred: u32, max: u32) -> Self {
        Self {
            kind: INFO_BLOCK_SIZE.into(),
            min: min.into(),
            preferred: preferred.into(),
            max: max.into(),
        }
    }
}
