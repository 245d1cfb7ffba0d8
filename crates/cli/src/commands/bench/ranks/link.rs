//! Messages between ranks and their leader: one line of JSON each.
//!
//! Invariant: the length of a line is limited, so that a peer cannot exhaust memory; the limit is
//! small until a peer has introduced itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};

/// The version of this protocol.
pub(super) const PROTOCOL: u32 = 1;
/// Maximum length of the first line of a peer.
pub(super) const HELLO_BYTES_MAX: u64 = 64 << 10;
/// Maximum length of other lines, which may contain a whole record.
pub(super) const LINE_BYTES_MAX: u64 = 256 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// From a rank: its first message.
    Hello(Hello),
    /// From the leader: all ranks have joined.
    Welcome,
    /// From a rank: it has reached a barrier, with this value.
    At(String, Value),
    /// From the leader: all ranks have reached the barrier, with these values.
    Go(String, Vec<Value>),
    /// From both: keep-alive.
    Alive,
    /// From both: a premature end, with the reason. The last message of a rank.
    Ends(String),
    /// From a rank: it has cleaned up and ends. Its last message.
    Bye,
}

/// The first message of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// Version of Larder.
    pub(super) version: String,
    /// Number of the rank, from 0.
    pub(super) rank: usize,
    /// Number of ranks.
    pub(super) ranks: usize,
    /// Name of its machine.
    pub(super) host: String,
    /// Description of its benchmark.
    pub(super) what: String,
    /// The token of the run; empty on a private channel.
    pub(super) token: String,
}

/// Both directions of a connection.
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

/// Reads the next message; returns `None` at the end.
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

/// Writes a message and flushes it.
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
        let messages = [
            Message::Hello(Hello { rank: 1, ..Hello::default() }),
            Message::At("start".to_owned(), 7.into()),
            Message::Ends("two\nlines".to_owned()),
        ];
        let mut bytes = Vec::new();
        for message in &messages {
            write(&mut bytes, message).unwrap();
        }
        let mut reader = &bytes[..];
        for message in messages {
            assert_eq!(read(&mut reader, 1000).unwrap(), Some(message));
        }
        assert_eq!(read(&mut reader, 1000).unwrap(), None);
        let error = |bytes: &[u8], bytes_max| read(&mut &bytes[..], bytes_max).unwrap_err().kind();
        assert_eq!(error(b"\"alive\"", 1000), io::ErrorKind::UnexpectedEof);
        assert_eq!(error(b"\"alive\"\n", 4), io::ErrorKind::InvalidData);
        assert_eq!(error(b"GET / HTTP/1.1\r\n", 1000), io::ErrorKind::InvalidData);
    }
}
