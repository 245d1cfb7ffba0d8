//! Replies of a worker thread to requests of a mounted directory.

use super::BlockingPool;
use super::answer::{Answer, AnswerResult};
use crate::front::fuse::link::{FuseRequest, Link};

/// Sends an answer to the kernel, or passes the request on to the thread that has to answer it.
pub(in crate::front::fuse) fn reply(
    link: &mut Link,
    pool: &BlockingPool,
    request: FuseRequest<'_>,
    result: AnswerResult,
) {
    let unique = request.header.unique;
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
