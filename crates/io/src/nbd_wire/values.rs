//! The numbers of the NBD protocol: magics, flags, commands, options, replies.
//!
//! NBD's proto.md, "Values": handshake, client, transmission and command flags, option and reply
//! types, request types. Names follow the document without its `NBD_` prefix.

/// First eight bytes from a server: `NBDMAGIC`.
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle server, and the start of each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The port that IANA gave to NBD.
pub const DEFAULT_PORT: u16 = 10_809;
/// The longest string the protocol allows (names, descriptions, messages), in bytes.
pub const STRING_BYTES_MAX: u32 = 4096;
/// Zeros after the reply to `EXPORT_NAME`, unless both sides agreed to leave them out.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;
/// The largest read or write a server takes if no block sizes were negotiated: 32 MiB.
pub const DEFAULT_BLOCK_BYTES_MAX: u32 = 32 << 20;

/// Handshake flag: the server speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: the server can leave out the zeros after `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Client flag: the client speaks fixed newstyle.
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag: the zeros after `EXPORT_NAME` shall be left out.
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Transmission flag: the field is valid; always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: writes fail.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: `FLUSH` is understood.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: the command flag `FUA` is understood.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: seeking costs time.
pub const FLAG_ROTATIONAL: u16 = 1 << 4;
/// Transmission flag: `TRIM` is understood.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: `WRITE_ZEROES` and the command flag `NO_HOLE` are understood.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: the command flag `DF` is understood; only with structured replies.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush on one connection covers all connections.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: the experimental resize; Larder never offers it.
pub const FLAG_SEND_RESIZE: u16 = 1 << 9;
/// Transmission flag: `CACHE` is understood.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: the command flag `FAST_ZERO` is understood.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

/// Option: choose an export and start transmission, without a way to report an error.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end the session.
pub const OPT_ABORT: u32 = 2;
/// Option: name all exports.
pub const OPT_LIST: u32 = 3;
/// Option: withdrawn from the protocol.
pub const OPT_PEEK_EXPORT: u32 = 4;
/// Option: start TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: describe an export.
pub const OPT_INFO: u32 = 6;
/// Option: describe an export and start transmission with it.
pub const OPT_GO: u32 = 7;
/// Option: use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: name metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: select metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Option: 64-bit headers; Larder does not support them.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// Option reply: accepted, or the end of a list.
pub const REP_ACK: u32 = 1;
/// Option reply: one export of a list.
pub const REP_SERVER: u32 = 2;
/// Option reply: one piece of information about an export.
pub const REP_INFO: u32 = 3;
/// Option reply: one metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that all option error replies have.
pub const REP_ERR_BIT: u32 = 1 << 31;
/// Option error: the server does not know the option.
pub const REP_ERR_UNSUP: u32 = REP_ERR_BIT + 1;
/// Option error: known, but forbidden by the server's configuration.
pub const REP_ERR_POLICY: u32 = REP_ERR_BIT + 2;
/// Option error: malformed, or not valid at this time.
pub const REP_ERR_INVALID: u32 = REP_ERR_BIT + 3;
/// Option error: not possible on this platform.
pub const REP_ERR_PLATFORM: u32 = REP_ERR_BIT + 4;
/// Option error: TLS must come first.
pub const REP_ERR_TLS_REQD: u32 = REP_ERR_BIT + 5;
/// Option error: no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERR_BIT + 6;
/// Option error: the server is stopping.
pub const REP_ERR_SHUTDOWN: u32 = REP_ERR_BIT + 7;
/// Option error: the client must ask for the block sizes first.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERR_BIT + 8;
/// Option error: the request or its answer is too large.
pub const REP_ERR_TOO_BIG: u32 = REP_ERR_BIT + 9;

/// Information: length and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Information: the canonical name.
pub const INFO_NAME: u16 = 1;
/// Information: a human-readable description.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: minimum, preferred and maximum block size.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write; the data follows the header.
pub const CMD_WRITE: u16 = 1;
/// Command: end of the session; not answered.
pub const CMD_DISC: u16 = 2;
/// Command: all writes answered so far are on stable storage before the reply.
pub const CMD_FLUSH: u16 = 3;
/// Command: the range's content is no longer needed.
pub const CMD_TRIM: u16 = 4;
/// Command: the range will be read soon.
pub const CMD_CACHE: u16 = 5;
/// Command: the range reads as zeros afterwards.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: the state of a range in the selected metadata contexts.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: the data is on stable storage before the reply (forced unit access).
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag: zeros stay allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag: one content chunk at most.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag: one extent per context.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag: fail rather than write zeros slowly.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// Chunk flag: the last chunk of a reply.
pub const CHUNK_FLAG_DONE: u16 = 1 << 0;
/// Chunk: end of the reply without data.
pub const CHUNK_NONE: u16 = 0;
/// Chunk: offset and data.
pub const CHUNK_OFFSET_DATA: u16 = 1;
/// Chunk: offset and length of zeros.
pub const CHUNK_OFFSET_HOLE: u16 = 2;
/// Chunk: extents of one metadata context.
pub const CHUNK_BLOCK_STATUS: u16 = 5;
/// The bit that all error chunks have.
pub const CHUNK_ERROR_BIT: u16 = 1 << 15;
/// Chunk: an error of the whole request.
pub const CHUNK_ERROR: u16 = CHUNK_ERROR_BIT + 1;
/// Chunk: an error at an offset.
pub const CHUNK_ERROR_OFFSET: u16 = CHUNK_ERROR_BIT + 2;

/// The metadata context that reports the allocation.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The id that Larder's server gives to `base:allocation`.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// `base:allocation`: the extent is not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `base:allocation`: the extent reads as zeros.
pub const STATE_ZERO: u32 = 1 << 1;
