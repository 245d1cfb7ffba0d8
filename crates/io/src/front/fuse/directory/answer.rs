//! Answers to requests of a mounted directory, and their way to the kernel.

use super::super::abi::opcode;
use super::super::link::{FuseRequest, Link};
use super::{CoveredWrite, Directory};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) enum Answer {
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

pub(crate) type AnswerResult = Result<Answer, Errno>;

pub(super) fn empty_reply() -> Answer {
    Answer::Bytes(Vec::new())
}

/// Returns true if a request changes nothing, so that it can be retried.
pub(crate) fn is_lookup(code: u32) -> bool {
    matches!(code, opcode::LOOKUP | opcode::OPEN | opcode::OPENDIR | opcode::READDIRPLUS)
}

/// Returns true if open(2) with these flags permits writing.
pub(super) fn opens_for_writing(flags: u32) -> bool {
    libc::c_int::try_from(flags).unwrap_or(0) & libc::O_ACCMODE != libc::O_RDONLY
}

/// Sends an answer to the kernel, or passes the request on to the thread that has to answer it.
pub(crate) fn reply(
    link: &mut Link,
    directory: &Directory,
    request: FuseRequest<'_>,
    result: AnswerResult,
) {
    let unique = request.header.unique;
    let pool = &directory.pool;
    let job =
        |link: &Link| pool.request(link.reply_path(), request.header, request.whole_payload());
    match result {
        Ok(Answer::Bytes(bytes)) => link.reply(unique, &bytes),
        Ok(Answer::None) => {}
        Ok(Answer::BlockingWorker) => pool.send(job(link)),
        Ok(Answer::PageWriter) => pool.queue_page_write(job(link)),
        Ok(Answer::WhenDropped(_)) => unreachable!("the page writer alone has such an answer"),
        Err(errno) => link.refuse(unique, errno),
    }
}
