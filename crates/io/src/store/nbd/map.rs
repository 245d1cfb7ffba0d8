//! Holes of an upstream export, for clients that ask.
//!
//! Clients ask in their own threads; the one connection belongs to the thread of the store. So a
//! question is left here, the thread is woken, and the answer is waited for, one question at a
//! time. A server that does not answer one in time gets no further questions for a while. The last
//! answer is kept as long as nothing was changed since it was asked for. Invariant: what is called
//! a hole was one at some time after the call began; everything that is not known is called data.

use crate::front::nbd::wire::{STATE_HOLE, STATE_ZERO};
use crate::nbd_client::Extent;
use crate::store::{AllocationMap, MapExtent};
use crate::waker::Waker;
use larder_core::completion::Notify;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long a client waits before it is told that all is data.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time without questions after one that the server did not answer in time: all is data.
const SILENCE: Duration = Duration::from_secs(30);
/// A question is at least so long, since the next one will be for what follows.
const ASK_BYTES_MIN: u64 = 64 << 20;

#[derive(Clone, Debug)]
struct Answer {
    /// Changes when it was asked for.
    changes: u64,
    /// Ends of runs, and whether each is a hole; the first starts at `start`. The state after the
    /// last one is unknown. The client limits their number.
    start: u64,
    runs: Vec<(u64, bool)>,
}

impl Answer {
    fn at(&self, offset: u64, len: u64) -> Option<MapExtent> {
        let index = self.runs.partition_point(|&(end, _)| end <= offset);
        let &(end, hole) = self.runs.get(index).filter(|_| offset >= self.start)?;
        Some(MapExtent { len: (end - offset).min(len), hole })
    }
}

/// What has become of a question.
#[derive(Debug, Default)]
enum Reply {
    #[default]
    Due,
    /// There is nobody to answer it.
    Never,
    Known(Answer),
}

#[derive(Debug, Default)]
struct Board {
    question: Option<(u64, u64)>,
    reply: Reply,
    kept: Option<Answer>,
    /// A client waits for the answer to its question.
    is_asking: bool,
    silent_until: Option<Instant>,
}

impl Board {
    fn is_silent(&self) -> bool {
        self.silent_until.is_some_and(|until| Instant::now() < until)
    }
}

/// Where questions and answers are left.
#[derive(Debug)]
pub(super) struct Shared {
    length: u64,
    granule: u64,
    board: Mutex<Board>,
    replied: Condvar,
    has_question: AtomicBool,
    /// Whether there is somebody to ask.
    up: AtomicBool,
    changes: AtomicU64,
    waker: OnceLock<Waker>,
}

impl Shared {
    pub(super) fn new(length: u64, granule: u32) -> Self {
        Shared {
            length,
            granule: granule.into(),
            board: Mutex::default(),
            replied: Condvar::new(),
            has_question: AtomicBool::new(false),
            up: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            waker: OnceLock::new(),
        }
    }

    /// Who is to be woken by a question; whether there is one already.
    pub(super) fn set_waker(&self, waker: &Waker) -> bool {
        if self.waker.get().is_none() {
            // Under the lock: who asks finds the waker, or is found.
            let _board = self.board.lock().expect("no holder panics");
            self.waker.get_or_init(|| waker.clone());
        }
        self.has_question.load(Ordering::Acquire)
    }

    /// The connection came or went. What was asked of a lost one is not answered.
    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Release);
        let mut board = self.board.lock().expect("no holder panics");
        if !up {
            (board.question, board.kept, board.reply) = (None, None, Reply::Never);
            self.has_question.store(false, Ordering::Release);
        }
        self.replied.notify_all();
    }

    /// Something was or is being changed: what was known of holes is not, any more.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The range that is asked for, if one is, in whole granules.
    pub(super) fn take_question(&self) -> Option<(u64, u32)> {
        if !self.has_question.swap(false, Ordering::AcqRel) {
            return None;
        }
        let (offset, len) = self.board.lock().expect("no holder panics").question.take()?;
        let start = offset - offset % self.granule;
        let end = (offset + len.max(ASK_BYTES_MIN)).min(self.length);
        let most = u64::from(u32::MAX) - u64::from(u32::MAX) % self.granule;
        let len = (end - start).next_multiple_of(self.granule).min(most).min(self.length - start);
        Some((start, u32::try_from(len).expect("at most what a request can say")))
    }

    /// How many changes there were; to be given back with the answer.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The answer to a question that was taken when there had been so many changes.
    pub(super) fn reply(&self, start: u64, changes: u64, extents: Option<&[Extent]>) {
        let answer = extents.map_or(Reply::Never, |extents| {
            let mut end = start;
            let mut runs: Vec<(u64, bool)> = Vec::new();
            for extent in extents {
                end = (end + u64::from(extent.len)).min(self.length);
                let hole = extent.state & (STATE_HOLE | STATE_ZERO) == STATE_HOLE | STATE_ZERO;
                match runs.last_mut() {
                    Some(last) if last.1 == hole => last.0 = end,
                    _ => runs.push((end, hole)),
                }
            }
            Reply::Known(Answer { changes, start, runs })
        });
        self.board.lock().expect("no holder panics").reply = answer;
        self.replied.notify_all();
    }

    /// Returns the extent at `offset`, or none if the server does not tell it in time. The time
    /// includes the wait for the questions of other clients.
    fn query(&self, offset: u64, len: u64) -> Option<MapExtent> {
        let deadline = Instant::now() + PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        let before = self.changes();
        let board = self.board.lock().expect("no holder panics");
        let mut board = self
            .replied
            .wait_timeout_while(board, left(), |board| board.is_asking && !board.is_silent())
            .expect("no holder panics")
            .0;
        if let Some(kept) = &board.kept
            && kept.changes == before
            && let Some(extent) = kept.at(offset, len)
        {
            return Some(extent);
        }
        if board.is_asking || board.is_silent() || !self.up.load(Ordering::Acquire) {
            return None;
        }
        (board.question, board.reply, board.is_asking) = (Some((offset, len)), Reply::Due, true);
        self.has_question.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.notify();
        }
        let (mut board, _) = self
            .replied
            .wait_timeout_while(board, left(), |board| matches!(board.reply, Reply::Due))
            .expect("no holder panics");
        board.is_asking = false;
        self.replied.notify_all();
        // The answer to one who did not wait for it may come now; it may be too old.
        let answer = match std::mem::take(&mut board.reply) {
            Reply::Known(answer) => answer,
            Reply::Never => return None,
            Reply::Due => {
                board.silent_until = Some(Instant::now() + SILENCE);
                return None;
            }
        };
        if answer.changes < before {
            return None;
        }
        let extent = answer.at(offset, len);
        board.kept = Some(answer);
        extent
    }
}

/// The map of an export.
#[derive(Debug)]
pub(super) struct NbdMap(pub(super) std::sync::Arc<Shared>);

impl AllocationMap for NbdMap {
    fn extent(&self, offset: u64, len: u64) -> MapExtent {
        self.0.query(offset, len).unwrap_or(MapExtent { len, hole: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_wait_one_after_another_for_a_server_that_does_not_answer() {
        let shared = Shared::new(1 << 30, 512);
        shared.set_up(true);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..20 {
                let shared = &shared;
                scope.spawn(move || assert_eq!(shared.query(client << 20, 4096), None));
            }
        });
        assert!(begin.elapsed() < 5 * PATIENCE, "20 clients took {:?}", begin.elapsed());
        let begin = Instant::now();
        assert_eq!(shared.query(0, 4096), None);
        assert!(begin.elapsed() < PATIENCE, "the next one took {:?}", begin.elapsed());
    }

    #[test]
    fn neighbours_of_one_kind_are_one_run() {
        let shared = Shared::new(1 << 20, 512);
        let extent = |number: usize| {
            // Of the four states only one is a hole that reads as zeros.
            let state = [0, STATE_HOLE, STATE_ZERO, STATE_HOLE | STATE_ZERO];
            Extent { len: 4096, state: state[number % 4] }
        };
        let extents: Vec<_> = (0..64).map(extent).collect();
        shared.reply(0, 0, Some(&extents));
        let Reply::Known(answer) = std::mem::take(&mut shared.board.lock().unwrap().reply) else {
            panic!("an answer");
        };
        assert_eq!(answer.runs.len(), 32, "{answer:?}");
        assert_eq!(answer.at(0, 1 << 20), Some(MapExtent { len: 3 * 4096, hole: false }));
        assert_eq!(answer.at(3 * 4096, 1 << 20), Some(MapExtent { len: 4096, hole: true }));
        assert_eq!(answer.at(64 * 4096, 1), None, "it is unknown");
    }
}
