//! What ranks and their leader say to each other: one line of JSON each.
//!
//! Invariant: a line has a bound, so that a peer cannot fill the memory; before a peer is known it
//! is small.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};

/// The version of this protocol.
pub(super) const PROTOCOL: u32 = 1;
/// Bytes of the first line of a peer, at the most.
pub(super) const HELLO_BYTES_MAX: u64 = 64 << 10;
/// Bytes of any other line: a whole record is one.
pub(super) const LINE_BYTES_MAX: u64 = 256 << 20;

/// What is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// From a rank: the first thing that it says.
    Hello(Hello),
    /// From the leader: all are there.
    Welcome,
    /// From a rank: it is at a place, and says this.
    At(String, Value),
    /// From the leader: all are at that place, and have said this.
    Go(String, Vec<Value>),
    /// From both: still here.
    Alive,
    /// From both: it ends too early, and why. From a rank it is the last thing.
    Ends(String),
    /// From a rank: it has removed what it made, and goes. The last thing that it says.
    Bye,
}

/// Who comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// Version of Larder.
    pub(super) version: String,
    /// From 0.
    pub(super) rank: usize,
    /// How many there are.
    pub(super) ranks: usize,
    /// What its machine is called.
    pub(super) host: String,
    /// What it is about to measure.
    pub(super) what: String,
    /// The token of the run; empty where the way itself is private.
    pub(super) token: String,
}

/// Both ends of a way.
pub(super) struct Link {
    pub(super) reader: Box<dyn BufRead + Send>,
    pub(super) writer: Box<dyn Write + Send>,
}

impl Link {
    pub(super) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        Link { reader: Box::new(BufReader::new(reader)), writer: Box::new(writer) }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Link")
    }
}

/// The next message; nothing at the end.
pub(super) fn read(reader: &mut dyn BufRead, bytes_max: u64) -> io::Result<Option<Message>> {
    let mut line = Vec::new();
    reader.take(bytes_max).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let short = (line.len() as u64) < bytes_max;
        let kind = if short { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::InvalidData };
        return Err(kind.into());
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
}

/// Says something, at once.
pub(super) fn write(writer: &mut dyn Write, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_bounded() {
        let said = [
            Message::Hello(Hello { rank: 1, ..Hello::default() }),
            Message::At("start".to_owned(), 7.into()),
            Message::Ends("two\nlines".to_owned()),
        ];
        let mut bytes = Vec::new();
        for message in &said {
            write(&mut bytes, message).unwrap();
        }
        let mut reader = &bytes[..];
        for message in said {
            assert_eq!(read(&mut reader, 1000).unwrap(), Some(message));
        }
        assert_eq!(read(&mut reader, 1000).unwrap(), None);
        let error = |bytes: &[u8], most| read(&mut &bytes[..], most).unwrap_err().kind();
        assert_eq!(error(b"\"alive\"", 1000), io::ErrorKind::UnexpectedEof);
        assert_eq!(error(b"\"alive\"\n", 4), io::ErrorKind::InvalidData);
        assert_eq!(error(b"GET / HTTP/1.1\r\n", 1000), io::ErrorKind::InvalidData);
    }
}
