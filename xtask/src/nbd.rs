//! A small NBD client, and the bytes of the protocol for the fuzzer.
//!
//! Simple replies only, one request at a time: clear rather than fast. All numbers on the wire are
//! big-endian.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// How long a healthy server may take for one answer.
const ANSWER_MAX: Duration = Duration::from_mins(1);

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const OPTION_REPLY_ACK: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Commands of the transmission.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// What the client says first: fixed newstyle, no zeroes.
pub(crate) fn client_flags() -> Vec<u8> {
    3_u32.to_be_bytes().to_vec()
}

/// One option of the handshake.
pub(crate) fn option(id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("an option is short");
    [OPTION_MAGIC.as_slice(), &id.to_be_bytes(), &length.to_be_bytes(), payload].concat()
}

/// The payload of INFO and GO: a name, and nothing asked in particular.
pub(crate) fn export(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("a name is short");
    [length.to_be_bytes().as_slice(), name.as_bytes(), &[0, 0]].concat()
}

/// The payload of `LIST_META_CONTEXT` and `SET_META_CONTEXT` with one query.
pub(crate) fn contexts(name: &str, query: &str) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).expect("a name is short").to_be_bytes();
    [&length(name), name.as_bytes(), &[0, 0, 0, 1], &length(query), query.as_bytes()].concat()
}

/// The head of one request.
pub(crate) fn request(command: u16, flags: u16, handle: u64, offset: u64, length: u32) -> Vec<u8> {
    request_head(command, flags, handle, offset, length).to_vec()
}

/// The same without an allocation.
pub(crate) fn request_head(
    command: u16,
    flags: u16,
    handle: u64,
    offset: u64,
    length: u32,
) -> [u8; 28] {
    let mut head = [0; 28];
    head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&command.to_be_bytes());
    head[8..16].copy_from_slice(&handle.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&length.to_be_bytes());
    head
}

/// A connection in transmission.
#[derive(Debug)]
pub(crate) struct Client {
    socket: UnixStream,
    bytes: u64,
    handle: u64,
}

/// The error number of a refused request, as the protocol has it (5 is EIO, 28 ENOSPC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) u32);

impl Client {
    /// Connects to an export.
    pub(crate) fn connect(path: &Path, name: &str) -> Result<Self> {
        let socket = UnixStream::connect(path).context("connect to the server")?;
        socket.set_read_timeout(Some(ANSWER_MAX)).context("set a timeout")?;
        socket.set_write_timeout(Some(ANSWER_MAX)).context("set a timeout")?;
        let mut client = Self { socket, bytes: 0, handle: 0 };
        let greeting: [u8; 18] = client.take().context("read the greeting")?;
        ensure!(&greeting[..16] == b"NBDMAGICIHAVEOPT", "no newstyle greeting");
        client.put(&[client_flags(), option(option::GO, &export(name))].concat())?;
        while let Some((kind, payload)) = client.option_reply()? {
            ensure!(kind & 0x8000_0000 == 0, "export '{name}' refused, option error {kind:#x}");
            if payload.len() == 12 && payload[..2] == [0, 0] {
                let size = payload[2..10].try_into().expect("eight bytes");
                client.bytes = u64::from_be_bytes(size);
            }
        }
        Ok(client)
    }

    /// The next answer to an option; none for the last one.
    fn option_reply(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        let head: [u8; 20] = self.take().context("read an option reply")?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
        let magic = u64::from_be_bytes(head[..8].try_into().expect("eight"));
        ensure!(magic == OPTION_REPLY_MAGIC, "no option reply");
        let mut payload = vec![0; word(16) as usize];
        self.socket.read_exact(&mut payload).context("read an option reply")?;
        Ok((word(12) != OPTION_REPLY_ACK).then_some((word(12), payload)))
    }

    /// The length of the export.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads; the inner result is the server's answer, the outer one the connection's.
    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<Result<(), Refused>> {
        let length = u32::try_from(into.len()).context("a request too long")?;
        if let Err(refused) = self.ask(command::READ, offset, length, &[])? {
            return Ok(Err(refused));
        }
        self.socket.read_exact(into).context("read the data")?;
        Ok(Ok(()))
    }

    /// Writes.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<Result<(), Refused>> {
        let length = u32::try_from(data.len()).context("a request too long")?;
        self.ask(command::WRITE, offset, length, data)
    }

    /// Flushes.
    pub(crate) fn flush(&mut self) -> Result<Result<(), Refused>> {
        self.ask(command::FLUSH, 0, 0, &[])
    }

    fn ask(
        &mut self,
        command: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Result<Result<(), Refused>> {
        self.handle += 1;
        let head = request(command, 0, self.handle, offset, length);
        self.put(&[head.as_slice(), data].concat())?;
        let reply: [u8; 16] = self.take().context("read a reply")?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four"));
        ensure!(word(0) == SIMPLE_REPLY_MAGIC, "a reply of an unknown form");
        if reply[8..] != self.handle.to_be_bytes() {
            bail!("a reply to another request");
        }
        Ok(if word(4) == 0 { Ok(()) } else { Err(Refused(word(4))) })
    }

    /// Sends all of `bytes`, as requests that the caller keeps count of.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).context("write to the server")
    }

    /// Receives what has come, at least a byte.
    pub(crate) fn take_some(&mut self, into: &mut [u8]) -> Result<usize> {
        let count = self.socket.read(into).context("read from the server")?;
        ensure!(count > 0, "the server closed the connection");
        Ok(count)
    }

    fn take<const COUNT: usize>(&mut self) -> std::io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A server that is gone needs no farewell.
        drop(self.put(&request(command::DISC, 0, 0, 0, 0)));
    }
}
