//! The process that inspects the processes of others for this program, see
//! `crate::inspector_client`: the same program, started again with an argument of its own.
//!
//! It reads requests from standard input, a `Query` and the number of a process each, and writes
//! the replies to standard output in pieces: their length in 4 bytes, then their bytes. The last
//! piece is `END`, or `FAILED`. It ends with its input.

use crate::process_links;
use crate::syscall;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// The argument, in tests the variable of the environment, that starts an inspector.
pub(crate) const ARGUMENT: &str = "--inspect-processes";
/// Name of the process.
pub(crate) const NAME: &str = "larder-inspect";
/// The test that serves requests if a test needs an inspector.
pub(crate) const SERVING_TEST: &str = "inspector::tests::serve_requests_of_tests";
/// First bytes of the output.
pub(crate) const GREETING: [u8; 8] = *b"\0inspect";
/// Bytes of a request.
pub(crate) const REQUEST_BYTES: usize = 5;
/// Length that ends a complete reply.
pub(crate) const END: u32 = 0;
/// Length that ends the reply about a process that has ended or may not be inspected.
pub(crate) const FAILED: u32 = u32::MAX;
/// Maximum length of a piece.
const PIECE_BYTES_MAX: usize = 4096;

/// A question about a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Query {
    /// The text of /proc/PID/status.
    Status,
    /// The text of /proc/PID/stat.
    Stat,
    /// The text of /proc/PID/maps.
    Maps,
    /// The steps of [`process_links::of`].
    Links,
}

/// Returns the path of a file that a query reads.
pub(crate) fn path(query: Query, task: u32) -> String {
    let name = match query {
        Query::Status => "status",
        Query::Stat => "stat",
        Query::Maps => "maps",
        Query::Links => "fd",
    };
    format!("/proc/{task}/{name}")
}

static IS_AVAILABLE: AtomicBool = AtomicBool::new(cfg!(test));

/// Returns true if this program serves inspections when it is started for them.
pub(crate) fn is_available() -> bool {
    IS_AVAILABLE.load(Ordering::Relaxed)
}

/// Serves the inspections of another process of this program until that process ends, and returns
/// true, if it started this one. A program calls this before it opens a file, starts a thread or
/// reads its arguments, and ends if it returns true; otherwise no memory maps and open files of
/// other processes are inspected for it.
#[must_use]
pub fn serve_if_requested() -> bool {
    let is_requested = std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT);
    IS_AVAILABLE.store(true, Ordering::Relaxed);
    if is_requested {
        run();
    }
    is_requested
}

fn run() {
    syscall::close_inherited();
    // The name of the program would be `exe`.
    drop(std::fs::write("/proc/self/comm", NAME));
    // The other process has ended, or does not wait for the reply.
    drop(serve(&mut io::stdin().lock(), &mut io::stdout().lock()));
}

fn serve(requests: &mut impl Read, replies: &mut impl Write) -> io::Result<()> {
    replies.write_all(&GREETING)?;
    replies.flush()?;
    loop {
        let mut request = [0; REQUEST_BYTES];
        requests.read_exact(&mut request)?;
        let [query, number @ ..] = request;
        let task = u32::from_le_bytes(number);
        let all = [Query::Status, Query::Stat, Query::Maps, Query::Links];
        let query = all.into_iter().find(|known| *known as u8 == query);
        let end = match query.ok_or(io::ErrorKind::InvalidData)? {
            Query::Links => links(task, replies)?,
            query => file(&path(query, task), replies)?,
        };
        replies.write_all(&end.to_le_bytes())?;
        replies.flush()?;
    }
}

/// Writes the pieces of a file; returns the last one.
fn file(path: &str, replies: &mut impl Write) -> io::Result<u32> {
    let Ok(mut file) = std::fs::File::open(path) else { return Ok(FAILED) };
    let mut buffer = [0; PIECE_BYTES_MAX];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(END),
            Ok(count) => piece(&buffer[..count], replies)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(FAILED),
        }
    }
}

/// Writes the pieces of a list of links; returns the last one.
fn links(pid: u32, replies: &mut impl Write) -> io::Result<u32> {
    let mut buffer = Vec::new();
    for step in process_links::of(pid) {
        step.encode(&mut buffer);
        if buffer.len() >= PIECE_BYTES_MAX {
            piece(&buffer, replies)?;
            buffer.clear();
        }
    }
    if !buffer.is_empty() {
        piece(&buffer, replies)?;
    }
    Ok(END)
}

fn piece(bytes: &[u8], replies: &mut impl Write) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    replies.write_all(&length.to_le_bytes())?;
    replies.write_all(bytes)?;
    replies.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_requests_of_tests() {
        if std::env::var_os(ARGUMENT).is_some() {
            run();
        }
    }

    #[test]
    fn a_reply_is_pieces_and_an_end() {
        let request = |query: Query, task: u32| {
            let mut request = vec![query as u8];
            request.extend(task.to_le_bytes());
            let mut replies = Vec::new();
            serve(&mut &request[..], &mut replies).unwrap_err();
            replies.split_off(GREETING.len())
        };
        let own_pid = std::process::id();
        for query in [Query::Status, Query::Stat, Query::Maps, Query::Links] {
            let replies = request(query, own_pid);
            let (mut rest, mut bytes) = (&replies[..], 0);
            let end = loop {
                let (length, after) = rest.split_first_chunk().unwrap();
                let length = u32::from_le_bytes(*length);
                if length == END || length == FAILED {
                    break length;
                }
                bytes += length;
                rest = &after[length as usize..];
            };
            assert!(end == END && bytes > 0, "{query:?}");
        }
        assert_eq!(request(Query::Maps, u32::MAX), FAILED.to_le_bytes());
        assert_eq!(request(Query::Links, u32::MAX), END.to_le_bytes());
        let wrong = [9, 0, 0, 0, 0];
        let error = serve(&mut &wrong[..], &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
