//! Byte layouts of the handshake: greeting, options, replies to options.
//!
//! NBD's proto.md, "Newstyle negotiation", "Fixed newstyle negotiation", and "Option reply types"
//! for the information replies. All numbers are big-endian, lengths and sizes are in bytes.

use super::BadMagic;
use super::values::{INFO_BLOCK_SIZE, INFO_EXPORT, OPTION_MAGIC, OPTION_REPLY_MAGIC, SERVER_MAGIC};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the greeting of a server.
pub const GREETING_BYTES: usize = 18;
pub(crate) const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of the header of a reply to an option.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;

/// The first message of a newstyle server.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ServerGreeting {
    magic: U64,
    option_magic: U64,
    flags: U16,
}

/// The header before the data of each option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct OptionHeader {
    magic: U64,
    option: U32,
    len: U32,
}

/// The header before the data of each reply to an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct OptionReplyHeader {
    magic: U64,
    option: U32,
    reply: U32,
    len: U32,
}

/// The answer to `EXPORT_NAME`, without its padding.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ExportReply {
    pub(crate) length: U64,
    /// Transmission flags.
    pub(crate) flags: U16,
}

/// The data of an information reply of type `INFO_EXPORT`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ExportInfoReply {
    kind: U16,
    pub(crate) export: ExportReply,
}

/// The data of an information reply of type `INFO_BLOCK_SIZE`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct BlockSizeReply {
    kind: U16,
    pub(crate) min: U32,
    pub(crate) preferred: U32,
    pub(crate) max: U32,
}

impl ServerGreeting {
    pub(crate) fn new(flags: u16) -> Self {
        Self { magic: SERVER_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: flags.into() }
    }

    /// Returns the handshake flags of a received greeting.
    pub(crate) fn parse(bytes: [u8; GREETING_BYTES]) -> Result<u16, BadMagic> {
        let raw: Self = zerocopy::transmute!(bytes);
        BadMagic::check("greeting", SERVER_MAGIC, raw.magic.get())?;
        BadMagic::check("newstyle greeting", OPTION_MAGIC, raw.option_magic.get())?;
        Ok(raw.flags.get())
    }
}

impl OptionHeader {
    pub(crate) fn new(option: u32, len: u32) -> Self {
        Self { magic: OPTION_MAGIC.into(), option: option.into(), len: len.into() }
    }

    /// Returns the option and the length of the data of a received header.
    pub(crate) fn parse(bytes: [u8; OPTION_HEADER_BYTES]) -> Result<(u32, u32), BadMagic> {
        let raw: Self = zerocopy::transmute!(bytes);
        BadMagic::check("option", OPTION_MAGIC, raw.magic.get())?;
        Ok((raw.option.get(), raw.len.get()))
    }
}

impl OptionReplyHeader {
    pub(crate) fn new(option: u32, reply: u32, len: u32) -> Self {
        let (magic, option) = (OPTION_REPLY_MAGIC.into(), option.into());
        Self { magic, option, reply: reply.into(), len: len.into() }
    }

    /// Returns the option, the reply type and the length of the data of a received header.
    pub(crate) fn parse(
        bytes: [u8; OPTION_REPLY_HEADER_BYTES],
    ) -> Result<(u32, u32, u32), BadMagic> {
        let raw: Self = zerocopy::transmute!(bytes);
        BadMagic::check("option reply", OPTION_REPLY_MAGIC, raw.magic.get())?;
        Ok((raw.option.get(), raw.reply.get(), raw.len.get()))
    }
}

impl ExportReply {
    pub(crate) fn new(length: u64, flags: u16) -> Self {
        Self { length: length.into(), flags: flags.into() }
    }
}

impl ExportInfoReply {
    pub(crate) fn new(length: u64, flags: u16) -> Self {
        Self { kind: INFO_EXPORT.into(), export: ExportReply::new(length, flags) }
    }
}

impl BlockSizeReply {
    pub(crate) fn new(min: u32, preferred: u32, max: u32) -> Self {
        let (kind, min) = (INFO_BLOCK_SIZE.into(), min.into());
        Self { kind, min, preferred: preferred.into(), max: max.into() }
    }
}
