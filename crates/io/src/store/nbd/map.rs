//! Holes of an upstream export, for clients that query them.
//!
//! Clients query in their own threads, but only the thread of the store uses the connection. So a
//! client leaves its query here, wakes that thread, and waits for the reply, one query at a time. A
//! server that does not reply to one in time gets no further queries for a while. The last reply is
//! kept as long as the export has not changed since its query. Invariant: a range that is reported
//! as a hole was one at some time after the call began; all unknown ranges are reported as data.

use crate::nbd_client::Extent;
use crate::nbd_wire::{STATE_HOLE, STATE_ZERO};
use crate::store::{AllocationMap, MapExtent};
use crate::waker::Waker;
use larder_core::completion::Wake;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Time that a client waits before everything is reported as data.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without queries after one that the server did not answer in time: everything is data.
const QUERY_PAUSE: Duration = Duration::from_secs(30);
/// Minimum length of a query, since the next one will be for the bytes that follow.
const QUERY_BYTES_MIN: u64 = 64 << 20;

#[derive(Clone, Debug)]
struct QueryAnswer {
    /// Number of changes when the query was sent.
    changes: u64,
    /// Ends of runs, each with true for a hole; the first run starts at `start`. The state after
    /// the last one is unknown. The client limits their number.
    start: u64,
    runs: Vec<(u64, bool)>,
}

impl QueryAnswer {
    fn at(&self, offset: u64, len: u64) -> Option<MapExtent> {
        let index = self.runs.partition_point(|&(end, _)| end <= offset);
        let &(end, hole) = self.runs.get(index).filter(|_| offset >= self.start)?;
        Some(MapExtent { len: (end - offset).min(len), hole })
    }
}

#[derive(Debug, Default)]
enum QueryReply {
    #[default]
    Pending,
    /// No connection can answer the query.
    Unavailable,
    Known(QueryAnswer),
}

#[derive(Debug, Default)]
struct QueryState {
    /// True if there is a connection that supports queries.
    is_up: bool,
    query: Option<(u64, u64)>,
    reply: QueryReply,
    kept: Option<QueryAnswer>,
    /// True while a client waits for the reply to its query.
    is_pending: bool,
    paused_until: Option<Instant>,
}

impl QueryState {
    fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }
}

#[derive(Debug)]
pub(super) struct HoleQueries {
    length: u64,
    granule: u64,
    state: Mutex<QueryState>,
    replied: Condvar,
    has_query: AtomicBool,
    changes: AtomicU64,
    waker: OnceLock<Waker>,
}

impl HoleQueries {
    pub(super) fn new(length: u64, granule: u32) -> Self {
        HoleQueries {
            length,
            granule: granule.into(),
            state: Mutex::default(),
            replied: Condvar::new(),
            has_query: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            waker: OnceLock::new(),
        }
    }

    /// Sets the waker that a query notifies; returns true if there is a query already.
    pub(super) fn set_waker(&self, waker: &Waker) -> bool {
        if self.waker.get().is_none() {
            // Under the lock: a client with a query finds the waker, or its query is found here.
            let _state = self.state.lock().expect("no holder panics");
            self.waker.get_or_init(|| waker.clone());
        }
        self.has_query.load(Ordering::Acquire)
    }

    /// Records that a connection was established or lost. Queries to a lost one get no reply.
    pub(super) fn set_up(&self, up: bool) {
        let mut state = self.state.lock().expect("no holder panics");
        state.is_up = up;
        if !up {
            (state.query, state.kept, state.reply) = (None, None, QueryReply::Unavailable);
            self.has_query.store(false, Ordering::Release);
        }
        self.replied.notify_all();
    }

    /// Records a change of the export, after which the known holes are outdated.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the range of the query, if there is one, in whole granules.
    pub(super) fn take_query(&self) -> Option<(u64, u32)> {
        if !self.has_query.swap(false, Ordering::AcqRel) {
            return None;
        }
        let (offset, len) = self.state.lock().expect("no holder panics").query.take()?;
        let start = offset - offset % self.granule;
        let end = (offset + len.max(QUERY_BYTES_MIN)).min(self.length);
        let most = u64::from(u32::MAX) - u64::from(u32::MAX) % self.granule;
        let len = (end - start).next_multiple_of(self.granule).min(most).min(self.length - start);
        Some((start, u32::try_from(len).expect("at most what a request can say")))
    }

    /// Returns the number of changes, which the caller passes back with the reply.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Records the reply to a query that was taken when the number of changes was `changes`.
    pub(super) fn reply(&self, start: u64, changes: u64, extents: Option<&[Extent]>) {
        let answer = extents.map_or(QueryReply::Unavailable, |extents| {
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
            QueryReply::Known(QueryAnswer { changes, start, runs })
        });
        self.state.lock().expect("no holder panics").reply = answer;
        self.replied.notify_all();
    }

    /// Returns the extent at `offset`, or none if the server does not report it in time. The time
    /// includes the wait for the queries of other clients.
    fn query(&self, offset: u64, len: u64) -> Option<MapExtent> {
        let deadline = Instant::now() + QUERY_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        let before = self.changes();
        let state = self.state.lock().expect("no holder panics");
        let mut state = self
            .replied
            .wait_timeout_while(state, left(), |state| state.is_pending && !state.is_paused())
            .expect("no holder panics")
            .0;
        if let Some(kept) = &state.kept
            && kept.changes == before
            && let Some(extent) = kept.at(offset, len)
        {
            return Some(extent);
        }
        if state.is_pending || state.is_paused() || !state.is_up {
            return None;
        }
        (state.query, state.reply, state.is_pending) =
            (Some((offset, len)), QueryReply::Pending, true);
        self.has_query.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        let (mut state, _) = self
            .replied
            .wait_timeout_while(state, left(), |state| matches!(state.reply, QueryReply::Pending))
            .expect("no holder panics");
        state.is_pending = false;
        self.replied.notify_all();
        // The reply to a client that has stopped waiting may arrive now; it may be too old.
        let answer = match std::mem::take(&mut state.reply) {
            QueryReply::Known(answer) => answer,
            QueryReply::Unavailable => return None,
            QueryReply::Pending => {
                state.paused_until = Some(Instant::now() + QUERY_PAUSE);
                return None;
            }
        };
        if answer.changes < before {
            return None;
        }
        let extent = answer.at(offset, len);
        state.kept = Some(answer);
        extent
    }
}

#[derive(Debug)]
pub(super) struct NbdMap(pub(super) std::sync::Arc<HoleQueries>);

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
        let shared = HoleQueries::new(1 << 30, 512);
        shared.set_up(true);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..20 {
                let shared = &shared;
                scope.spawn(move || assert_eq!(shared.query(client << 20, 4096), None));
            }
        });
        assert!(begin.elapsed() < 5 * QUERY_TIMEOUT, "20 clients took {:?}", begin.elapsed());
        let begin = Instant::now();
        assert_eq!(shared.query(0, 4096), None);
        assert!(begin.elapsed() < QUERY_TIMEOUT, "the next one took {:?}", begin.elapsed());
    }

    #[test]
    fn neighbors_of_one_kind_are_one_run() {
        let shared = HoleQueries::new(1 << 20, 512);
        let extent = |number: usize| {
            // Of the four states only one is a hole that reads as zeros.
            let state = [0, STATE_HOLE, STATE_ZERO, STATE_HOLE | STATE_ZERO];
            Extent { len: 4096, state: state[number % 4] }
        };
        let extents: Vec<_> = (0..64).map(extent).collect();
        shared.reply(0, 0, Some(&extents));
        let QueryReply::Known(answer) = std::mem::take(&mut shared.state.lock().unwrap().reply)
        else {
            panic!("an answer");
        };
        assert_eq!(answer.runs.len(), 32, "{answer:?}");
        assert_eq!(answer.at(0, 1 << 20), Some(MapExtent { len: 3 * 4096, hole: false }));
        assert_eq!(answer.at(3 * 4096, 1 << 20), Some(MapExtent { len: 4096, hole: true }));
        assert_eq!(answer.at(64 * 4096, 1), None, "it is unknown");
    }
}
