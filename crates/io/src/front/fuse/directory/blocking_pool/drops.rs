//! Writes to ranges of which the kernel has pages: their replies wait until the kernel has dropped
//! these pages.
//!
//! Before the kernel drops a page that a program has modified, it writes the page back. For that it
//! needs one of a limited number of background requests, which asynchronous direct I/O takes too,
//! or a ring entry, which every request takes. If the writes that wait here hold all of them, the
//! page never comes. Then the oldest of these writes are answered early, those that have waited for
//! [`ANSWER_AFTER`].
//!
//! Invariant: the range of a write stays covered until its pages are dropped, even if the write is
//! answered before.

use super::super::Directory;
use crate::engine::Engine;
use crate::fault::{self, Thread};
use crate::front::fuse::handshake::BACKGROUND_MAX;
use crate::front::fuse::link::ReplyPath;
use crate::front::fuse::ring::queue_depth;
use crate::store::files::CoveredRange;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a write is answered if too many wait: the kernel drops pages within
/// microseconds unless it waits for a request, or for a processor.
const ANSWER_AFTER: Duration = Duration::from_millis(50);

/// A completed write to a range of which the kernel has pages.
#[derive(Debug)]
pub(crate) struct CoveredWrite {
    pub(super) node: u64,
    pub(super) covered: CoveredRange,
    pub(super) answer: Vec<u8>,
}

/// A write that is not answered.
struct UnansweredWrite {
    number: u64,
    since: Instant,
    reply_path: ReplyPath,
    unique: u64,
    answer: Vec<u8>,
}

impl UnansweredWrite {
    fn answer(self) {
        self.reply_path.answer(self.unique, Ok(self.answer));
    }

    fn refuse(self) {
        self.reply_path.answer(self.unique, Err(Errno::IO));
    }
}

#[derive(Default)]
struct State {
    /// In the order of their numbers, and so of their times.
    unanswered: VecDeque<UnansweredWrite>,
    next: u64,
    has_ended: bool,
}

struct PendingWrites {
    /// Number of waiting writes at which the kernel may have no request left.
    exhausted_at: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl PendingWrites {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses the writes that wait, and ends both threads.
    fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let unanswered = std::mem::take(&mut state.unanswered);
        drop(state);
        self.changed.notify_all();
        unanswered.into_iter().for_each(UnansweredWrite::refuse);
    }

    /// Answers a write, unless that was done before.
    fn answer(&self, number: u64) {
        let mut state = self.state();
        let found = state.unanswered.iter().position(|write| write.number == number);
        let write = found.and_then(|at| state.unanswered.remove(at));
        drop(state);
        if let Some(write) = write {
            write.answer();
        }
    }

    /// Answers the oldest writes that have waited for too long while too many wait, until the end.
    fn answer_late(&self) {
        let mut state = self.state();
        while !state.has_ended {
            let oldest = state.unanswered.front();
            let is_exhausted = state.unanswered.len() >= self.exhausted_at;
            let waited = oldest.filter(|_| is_exhausted).map(|write| write.since.elapsed());
            state = match waited {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(waited) if waited < ANSWER_AFTER => {
                    let rest = ANSWER_AFTER.saturating_sub(waited);
                    let waited = self.changed.wait_timeout(state, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let oldest = state.unanswered.pop_front();
                    drop(state);
                    tracing::debug!("a write is answered before the kernel has dropped its pages");
                    oldest.into_iter().for_each(UnansweredWrite::answer);
                    self.state()
                }
            };
        }
    }
}

/// Handle to the thread that makes the kernel drop pages; the thread ends when this is dropped.
pub(super) struct PageDropper {
    /// Numbers of writes, their nodes and ranges.
    to_drop: Sender<(u64, u64, CoveredRange)>,
    shared: Arc<PendingWrites>,
}

impl PageDropper {
    pub(super) fn start(
        engine: &Engine,
        directory: &Arc<Directory>,
    ) -> io::Result<(Self, [Thread; 2])> {
        let (to_drop, writes) = channel();
        let background = usize::from(BACKGROUND_MAX);
        let exhausted_at =
            if directory.options.plain { background } else { queue_depth().min(background) };
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(PendingWrites { exhausted_at, state, changed });
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let (failure, shared) = (Arc::clone(&directory.pool.failure), Arc::clone(&shared));
            let failed = move |error: &dyn fmt::Display| {
                failure.fail(error);
                shared.end();
            };
            fault::spawn(name, Some(engine.cache()), work, failed)
        };
        let (of_dropper, late_state) = (Arc::clone(directory), Arc::clone(&shared));
        let (drop_state, name) = (Arc::clone(&shared), directory.pool.failure.name().to_owned());
        let answer_late = move || {
            fault::point("late-answers", &name);
            late_state.answer_late();
        };
        let drop_all = move || drop_pages(&of_dropper, &drop_state, &writes);
        let threads = [
            spawn("page-dropper", Box::new(drop_all))?,
            spawn("late-answers", Box::new(answer_late))?,
        ];
        Ok((PageDropper { to_drop, shared }, threads))
    }

    /// Makes the kernel drop the pages of a write, and answers it.
    pub(super) fn drop_and_answer(&self, reply_path: ReplyPath, unique: u64, write: CoveredWrite) {
        let CoveredWrite { node, covered, answer } = write;
        let mut state = self.shared.state();
        let number = state.next;
        state.next += 1;
        let since = Instant::now();
        let write = UnansweredWrite { number, since, reply_path, unique, answer };
        if state.has_ended {
            return write.refuse();
        }
        state.unanswered.push_back(write);
        if state.unanswered.len() >= self.shared.exhausted_at {
            self.shared.changed.notify_all();
        }
        drop(state);
        // Without the thread, the mount has failed and the write is refused.
        let _is_queued = self.to_drop.send((number, node, covered)).is_ok();
    }
}

/// Makes the kernel drop pages until no more writes can come.
fn drop_pages(
    directory: &Directory,
    shared: &PendingWrites,
    writes: &Receiver<(u64, u64, CoveredRange)>,
) {
    for (number, node, covered) in writes {
        fault::point("page-dropper", directory.pool.failure.name());
        directory.kernel.drop_pages(node, covered.range());
        drop(covered);
        shared.answer(number);
    }
    shared.end();
}
