//! A small NBD client: simple replies only, one request at a time. Numbers on the wire are
//! big-endian.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// The timeout of one reply.
const REPLY_TIME_MAX: Duration = Duration::from_mins(1);

const OPTION_GO: u32 = 7;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const OPTION_REPLY_ACK: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Size of the header of a simple reply.
pub(crate) const REPLY_BYTES: usize = 16;

/// A request type of the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
}

/// Returns the header of a request.
pub(crate) fn request(command: Command, handle: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut head = [0; 28];
    head[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    head[6..8].copy_from_slice(&(command as u16).to_be_bytes());
    head[8..16].copy_from_slice(&handle.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&length.to_be_bytes());
    head
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the handle and the error number of a simple reply.
pub(crate) fn reply(head: &[u8]) -> Result<(u64, u32)> {
    ensure!(word(head, 0) == SIMPLE_REPLY_MAGIC, "a reply with an unknown magic number");
    Ok((u64::from_be_bytes(head[8..16].try_into().expect("eight bytes")), word(head, 4)))
}

/// A connection in the transmission phase.
pub(crate) struct Client {
    socket: UnixStream,
    bytes: u64,
    handle: u64,
}

/// The error number of a refused request, as defined by the protocol (5 is EIO, 28 ENOSPC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) u32);

/// The result of a request: the outer error is one of the connection, the inner one is the
/// server's.
pub(crate) type RequestResult = Result<Result<(), Refused>>;

impl Client {
    /// Connects to an export.
    pub(crate) fn connect(path: &Path, name: &str) -> Result<Self> {
        let socket = UnixStream::connect(path).context("connect to the server")?;
        socket.set_read_timeout(Some(REPLY_TIME_MAX)).context("set a timeout")?;
        socket.set_write_timeout(Some(REPLY_TIME_MAX)).context("set a timeout")?;
        let mut client = Self { socket, bytes: 0, handle: 0 };
        let greeting: [u8; 18] = client.receive().context("read the greeting")?;
        ensure!(&greeting[..16] == b"NBDMAGICIHAVEOPT", "no newstyle greeting");
        let length = u32::try_from(name.len()).context("the name of an export is too long")?;
        // Fixed newstyle without zeroes; then GO with a name and no information requests.
        let head = [&[0, 0, 0, 3][..], b"IHAVEOPT", &OPTION_GO.to_be_bytes()].concat();
        let lengths = [(length + 6).to_be_bytes(), length.to_be_bytes()].concat();
        client.send(&[&head[..], &lengths, name.as_bytes(), &[0, 0]].concat())?;
        while let Some((kind, payload)) = client.option_reply()? {
            ensure!(kind & 0x8000_0000 == 0, "export '{name}' refused, option error {kind:#x}");
            if payload.len() == 12 && payload[..2] == [0, 0] {
                let size = payload[2..10].try_into().expect("eight bytes");
                client.bytes = u64::from_be_bytes(size);
            }
        }
        Ok(client)
    }

    /// Returns the next reply to an option; `None` for the last one.
    fn option_reply(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        let head: [u8; 20] = self.receive().context("read an option reply")?;
        let magic = u64::from_be_bytes(head[..8].try_into().expect("eight bytes"));
        ensure!(magic == OPTION_REPLY_MAGIC, "no option reply");
        let mut payload = vec![0; word(&head, 16) as usize];
        self.socket.read_exact(&mut payload).context("read an option reply")?;
        Ok((word(&head, 12) != OPTION_REPLY_ACK).then_some((word(&head, 12), payload)))
    }

    /// Returns the length of the export.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> RequestResult {
        let result = self.transmit(Command::Read, offset, into.len(), &[])?;
        if result.is_ok() {
            self.socket.read_exact(into).context("read the data")?;
        }
        Ok(result)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> RequestResult {
        self.transmit(Command::Write, offset, data.len(), data)
    }

    pub(crate) fn flush(&mut self) -> RequestResult {
        self.transmit(Command::Flush, 0, 0, &[])
    }

    fn transmit(
        &mut self,
        command: Command,
        offset: u64,
        length: usize,
        data: &[u8],
    ) -> RequestResult {
        self.handle += 1;
        let length = u32::try_from(length).context("a request is too long")?;
        let head = request(command, self.handle, offset, length);
        self.send(&[head.as_slice(), data].concat())?;
        let (handle, error) = reply(&self.receive::<REPLY_BYTES>().context("read a reply")?)?;
        ensure!(handle == self.handle, "a reply to another request");
        Ok(if error == 0 { Ok(()) } else { Err(Refused(error)) })
    }

    /// Sends all of `bytes`; the caller tracks the requests in them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).context("write to the server")
    }

    /// Receives the available bytes, at least one.
    pub(crate) fn receive_some(&mut self, into: &mut [u8]) -> Result<usize> {
        let count = self.socket.read(into).context("read from the server")?;
        ensure!(count > 0, "the server closed the connection");
        Ok(count)
    }

    fn receive<const COUNT: usize>(&mut self) -> std::io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server may have closed the connection already.
        drop(self.send(&request(Command::Disconnect, 0, 0, 0)));
    }
}
