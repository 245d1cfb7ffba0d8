//! Sessions as files: one message a line in hex, `#` begins a comment.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::nbd::{self, command, option};

/// A larger session is not kept in the tree.
const KEPT_BYTES_MAX: usize = 1024;

/// What a client sends on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// Written one after the other.
    pub(super) messages: Vec<Vec<u8>>,
    /// Whether to say that nothing follows.
    pub(super) half_close: bool,
}

impl Session {
    fn of(messages: Vec<Vec<u8>>) -> Self {
        Self { messages, half_close: true }
    }

    /// As a file of the corpus.
    pub(super) fn to_hex(&self) -> String {
        let mut text = String::new();
        for message in &self.messages {
            for byte in message {
                write!(text, "{byte:02x}").expect("a string takes everything");
            }
            text.push('\n');
        }
        text
    }

    /// From a file of the corpus.
    fn from_hex(text: &str) -> Result<Self> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let messages: Result<Vec<_>> = lines.filter(|line| !line.is_empty()).map(bytes).collect();
        Ok(Self::of(messages?))
    }
}

fn bytes(line: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        line.chars().map(|c| c.to_digit(16).and_then(|digit| digit.try_into().ok())).collect();
    let digits = digits.with_context(|| format!("not hex: '{line}'"))?;
    if digits.len() % 2 == 1 {
        bail!("half a byte in '{line}'");
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The sessions of the tree and those that are valid by construction.
pub(super) fn load(root: &Path) -> Result<Vec<Session>> {
    let dir = root.join("xtask/corpus");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&dir).context("list xtask/corpus")? {
        let path = entry.context("list xtask/corpus")?.path();
        if path.extension().is_some_and(|extension| extension == "hex") {
            paths.push(path);
        }
    }
    // The order decides what a seed means.
    paths.sort();
    let mut sessions = valid();
    for path in paths {
        let name = path.display();
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {name}"))?;
        sessions.push(Session::from_hex(&text).with_context(|| format!("parse {name}"))?);
    }
    Ok(sessions)
}

/// Keeps a session in the tree, under a name made of its bytes.
pub(super) fn keep(root: &Path, session: &Session) -> Result<()> {
    let text = session.to_hex();
    if text.len() > 2 * KEPT_BYTES_MAX {
        return Ok(());
    }
    // FNV-1a: the same session gets the same name.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let path = root.join("xtask/corpus").join(format!("found-{hash:016x}.hex"));
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// One session for each thing a client may do.
pub(super) fn valid() -> Vec<Session> {
    let go = || nbd::option(option::GO, &nbd::export("fuzz"));
    let structured = || nbd::option(option::STRUCTURED_REPLY, &[]);
    let context =
        || nbd::option(option::SET_META_CONTEXT, &nbd::contexts("fuzz", "base:allocation"));
    let ask = |command, flags, offset, length| nbd::request(command, flags, 7, offset, length);
    let data = |length: usize| vec![0x5a; length];
    let disc = || ask(command::DISC, 0, 0, 0);
    let start = nbd::client_flags;
    vec![
        Session::of(vec![start(), nbd::option(option::LIST, &[]), nbd::option(option::ABORT, &[])]),
        Session::of(vec![start(), nbd::option(option::INFO, &nbd::export("fuzz")), go(), disc()]),
        Session::of(vec![start(), nbd::option(option::STARTTLS, &[]), go(), disc()]),
        Session::of(vec![
            start(),
            nbd::option(option::EXPORT_NAME, b"fuzz"),
            ask(command::READ, 0, 0, 512),
            disc(),
        ]),
        Session::of(vec![
            start(),
            structured(),
            nbd::option(option::LIST_META_CONTEXT, &nbd::contexts("fuzz", "base:")),
            context(),
            go(),
            ask(command::BLOCK_STATUS, 0, 0, 1 << 20),
            ask(command::READ, 0, 4096, 4096),
            disc(),
        ]),
        Session::of(vec![
            start(),
            go(),
            ask(command::WRITE, 0, 8192, 4096),
            data(4096),
            ask(command::FLUSH, 0, 0, 0),
            ask(command::READ, 0, 8192, 4096),
            disc(),
        ]),
        Session::of(vec![
            start(),
            go(),
            // FUA.
            ask(command::WRITE, 1, 512, 512),
            data(512),
            ask(command::TRIM, 0, 0, 65536),
            ask(command::WRITE_ZEROES, 0, 4096, 12288),
            // No hole, and only if fast.
            ask(command::WRITE_ZEROES, 2, 0, 4096),
            ask(command::WRITE_ZEROES, 16, 0, 4096),
            ask(command::CACHE, 0, 0, 1 << 20),
            disc(),
        ]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_survives_its_file() {
        for session in valid() {
            assert_eq!(Session::from_hex(&session.to_hex()).unwrap(), session);
        }
        let text = "# what\n00ff # why\n\n";
        assert_eq!(Session::from_hex(text).unwrap().messages, [[0, 255]]);
        assert!(Session::from_hex("0").is_err() && Session::from_hex("xy").is_err());
    }
}
