//! Answers to requests of a mounted directory, and the names and bytes after their arguments.

use super::CoveredWrite;
use crate::front::fuse::abi::opcode;
use rustix::io::Errno;
use std::ffi::CStr;

/// Result of a request.
#[derive(Debug)]
pub(in crate::front::fuse) enum Answer {
    /// A reply with these bytes.
    Bytes(Vec<u8>),
    /// No reply now: the kernel expects none, or it follows when the request completes.
    None,
    /// A blocking worker has to answer it.
    BlockingWorker,
    /// The thread that writes to files with pages in the kernel's page cache has to answer it.
    PageWriter,
    /// The reply to a write, once the kernel has dropped its pages of the range.
    WhenDropped(CoveredWrite),
}

impl From<Vec<u8>> for Answer {
    fn from(bytes: Vec<u8>) -> Self {
        Answer::Bytes(bytes)
    }
}

/// Result of a request, or the errno of its refusal.
pub(in crate::front::fuse) type AnswerResult = Result<Answer, Errno>;

/// Returns an empty reply.
pub(super) fn empty_reply() -> Answer {
    Answer::Bytes(Vec::new())
}

/// Returns the name at the start of `bytes`.
pub(super) fn parse_name(bytes: &[u8]) -> Result<&CStr, Errno> {
    CStr::from_bytes_until_nul(bytes).map_err(|_unterminated| Errno::INVAL)
}

/// Returns two consecutive names.
pub(super) fn parse_two_names(bytes: &[u8]) -> Result<(&CStr, &CStr), Errno> {
    let first = parse_name(bytes)?;
    let second = parse_name(bytes.get(first.count_bytes() + 1..).unwrap_or_default())?;
    Ok((first, second))
}

/// Returns the bytes after the arguments of a request, which are a `T`.
pub(super) fn bytes_after<T>(body: &[u8]) -> &[u8] {
    body.get(size_of::<T>()..).unwrap_or_default()
}

/// Returns true if a request changes nothing, so that it can be retried.
pub(in crate::front::fuse) fn is_lookup(code: u32) -> bool {
    matches!(code, opcode::LOOKUP | opcode::OPEN | opcode::OPENDIR | opcode::READDIRPLUS)
}

/// Returns true if open(2) with these flags permits writing.
pub(super) fn opens_for_writing(flags: u32) -> bool {
    libc::c_int::try_from(flags).unwrap_or(0) & libc::O_ACCMODE != libc::O_RDONLY
}
