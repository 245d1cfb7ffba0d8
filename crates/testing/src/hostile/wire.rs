//! NBD protocol messages of hostile clients (proto.md, fixed newstyle).

use super::{BLOCK_BYTES, Stream};
use std::io::{self, Read, Write};

pub(super) const OPT_LIST: u32 = 3;
pub(super) const OPT_STARTTLS: u32 = 5;
pub(super) const OPT_INFO: u32 = 6;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;

pub(super) const CMD_READ: u16 = 0;
pub(super) const CMD_WRITE: u16 = 1;
pub(super) const CMD_DISC: u16 = 2;
pub(super) const CMD_FLUSH: u16 = 3;
pub(super) const CMD_CACHE: u16 = 5;
pub(super) const CMD_BLOCK_STATUS: u16 = 7;

/// The length of the header of a structured reply, with the offset of its data.
pub(super) const DATA_HEADER_BYTES: usize = 28;

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REQUEST_MAGIC: u32 = 0x2560_9513;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
const REPLY_OFFSET_DATA: u16 = 1;
const REPLY_ACK: u32 = 1;
const GREETING_BYTES: usize = 18;
const REPLY_HEADER_BYTES: usize = 20;
/// The client flags: fixed newstyle, no zeroes.
const CLIENT_FLAGS: u32 = 3;
/// The number of options: more than a server answers in one handshake.
const OPTIONS: usize = 256;

/// Reads the greeting and sends the flags.
pub(super) fn begin_handshake(stream: &mut Stream) -> io::Result<()> {
    stream.read_exact(&mut [0; GREETING_BYTES])?;
    stream.write_all(&CLIENT_FLAGS.to_be_bytes())
}

/// Returns an option with its data.
pub(super) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short data");
    [OPTION_MAGIC.as_slice(), &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// Returns the name of an export as option data.
fn name(export: &str) -> Vec<u8> {
    let length = u32::try_from(export.len()).expect("a short name");
    [&length.to_be_bytes(), export.as_bytes()].concat()
}

/// Returns the data of `INFO` and `GO`: the name, and requests for all known information.
fn info(export: &str) -> Vec<u8> {
    [name(export), vec![0, 3, 0, 1, 0, 2, 0, 3]].concat()
}

/// Returns more options than one handshake may have, all with long replies.
pub(super) fn option_list(export: &str) -> Vec<u8> {
    let list = option(OPT_LIST, &[]);
    let info = option(OPT_INFO, &info(export));
    [list, info].concat().repeat(OPTIONS / 2)
}

/// Returns a request without its payload.
pub(super) fn request(command: u16, offset: u64, length: u32) -> Vec<u8> {
    let [flags, cookie] = [0_u16.to_be_bytes().to_vec(), 7_u64.to_be_bytes().to_vec()];
    let head = [REQUEST_MAGIC.to_be_bytes().to_vec(), flags, command.to_be_bytes().to_vec()];
    let rest = [cookie, offset.to_be_bytes().to_vec(), length.to_be_bytes().to_vec()];
    [head.concat(), rest.concat()].concat()
}

/// Returns writes of one block each, to different blocks, with a flush after each.
pub(super) fn writes_and_flushes() -> Vec<u8> {
    let write = |block: u64| request(CMD_WRITE, block * u64::from(BLOCK_BYTES), BLOCK_BYTES);
    let payload = [1; BLOCK_BYTES as usize];
    let pair = |block| [write(block), payload.to_vec(), request(CMD_FLUSH, 0, 0)].concat();
    (0..256).flat_map(pair).collect()
}

/// Returns true if a structured reply contains data.
pub(super) fn is_data(reply: &[u8]) -> bool {
    reply.starts_with(&STRUCTURED_REPLY_MAGIC.to_be_bytes())
        && reply[6..8] == REPLY_OFFSET_DATA.to_be_bytes()
}

/// Sends an option and reads its replies up to the last one.
fn send_option(stream: &mut Stream, kind: u32, data: &[u8]) -> io::Result<()> {
    stream.write_all(&option(kind, data))?;
    loop {
        let mut header = [0; REPLY_HEADER_BYTES];
        stream.read_exact(&mut header)?;
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let mut payload = vec![0; word(16) as usize];
        stream.read_exact(&mut payload)?;
        match word(12) {
            REPLY_ACK => return Ok(()),
            reply if reply & (1 << 31) != 0 => {
                let text = String::from_utf8_lossy(&payload).into_owned();
                return Err(io::Error::other(format!("option {kind} was refused: {text}")));
            }
            _ => {}
        }
    }
}

/// Sends the request for TLS.
pub(super) fn request_tls(stream: &mut Stream) -> io::Result<()> {
    stream.write_all(&option(OPT_STARTTLS, &[]))
}

/// Requests TLS and reads the server's acknowledgement.
pub(super) fn start_tls(stream: &mut Stream) -> io::Result<()> {
    send_option(stream, OPT_STARTTLS, &[])
}

/// Negotiates an export with structured replies and block status.
pub(super) fn negotiate(stream: &mut Stream, export: &str) -> io::Result<()> {
    send_option(stream, OPT_STRUCTURED_REPLY, &[])?;
    let context = b"base:allocation";
    let length = u32::try_from(context.len()).expect("a short name").to_be_bytes();
    let query = [name(export), vec![0, 0, 0, 1], length.to_vec(), context.to_vec()].concat();
    send_option(stream, OPT_SET_META_CONTEXT, &query)?;
    send_option(stream, OPT_GO, &info(export))
}
