//! Messages between ranks and their leader: one line of JSON each.
//!
//! Invariant: the length of a line is limited, so that a peer cannot exhaust memory; the limit is
//! small until a peer has introduced itself.

use super::RankId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};

/// The version of this protocol.
const PROTOCOL: u32 = 1;
/// The version of Larder.
const VERSION: &str = env!("CARGO_PKG_VERSION");
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
pub struct Hello {
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

impl Hello {
    /// Returns the message of a rank; `what` describes its benchmark.
    #[must_use]
    pub fn new(rank_id: &RankId, what: String) -> Self {
        let RankId { rank, ranks, host } = rank_id.clone();
        let (version, token) = (VERSION.to_owned(), String::new());
        Hello { protocol: PROTOCOL, version, rank, ranks, host, what, token }
    }

    /// Returns the name of the rank for messages.
    pub(super) fn name(&self) -> String {
        format!("rank {} on {}", self.rank, self.host)
    }

    /// Checks that an authenticated peer matches the ranks that have joined.
    ///
    /// # Errors
    /// The reason for which it does not.
    pub(super) fn check(&self, joined: &[Option<RankLink>]) -> Result<(), String> {
        let (peer, ranks) = (self.name(), joined.len());
        if (self.protocol, self.version.as_str()) != (PROTOCOL, VERSION) {
            let theirs = &self.version;
            return Err(format!(
                "{peer} is larder {theirs}, and this is {VERSION}: all must be the same"
            ));
        }
        if self.ranks != ranks || self.rank >= ranks {
            return Err(format!("{peer} is one of {}, and here are {ranks}", self.ranks));
        }
        if let Some(other) = &joined[self.rank] {
            return Err(format!("{peer} and {} are both this rank", other.hello.name()));
        }
        let differs = |other: &&RankLink| other.hello.what != self.what;
        joined.iter().flatten().find(differs).map_or(Ok(()), |other| {
            let (new, old, name) = (&self.what, &other.hello.what, other.hello.name());
            Err(format!("{peer} measures \"{new}\", and {name} \"{old}\""))
        })
    }
}

/// A rank that has introduced itself.
#[derive(Debug)]
pub(super) struct RankLink {
    pub(super) hello: Hello,
    pub(super) link: Link,
}

/// Both directions of a connection.
pub struct Link {
    pub(super) reader: Box<dyn BufRead + Send>,
    pub(super) writer: Box<dyn Write + Send>,
}

impl Link {
    /// Returns the connection with these two ends.
    pub fn new(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> Self {
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
    #[test]
    fn who_does_not_fit_is_refused_with_a_sentence() {
        let hello = |rank: usize, what: &str| {
            let rank_id = RankId { rank, ranks: 2, host: format!("h{rank}") };
            Hello::new(&rank_id, what.to_owned())
        };
        let link = Link::new(io::empty(), io::sink());
        let joined = [Some(RankLink { hello: hello(0, "x"), link }), None];
        assert_eq!(hello(1, "x").check(&joined), Ok(()));
        let error = |hello: &Hello| hello.check(&joined).unwrap_err();
        let old = Hello { version: "0.0.1".to_owned(), ..hello(1, "x") };
        assert!(error(&old).starts_with("rank 1 on h1 is larder 0.0.1, and this is "));
        assert!(error(&hello(0, "x")).contains("are both this rank"));
        assert_eq!(error(&hello(1, "y")), "rank 1 on h1 measures \"y\", and rank 0 on h0 \"x\"");
        let three = Hello { ranks: 3, ..hello(1, "x") };
        assert_eq!(error(&three), "rank 1 on h1 is one of 3, and here are 2");
    }
}
