//! Requests of a thread that waits for each reply: those of the embedding API, of control jobs and
//! of blocking workers.
//!
//! A session wakes its thread with a condition variable. It needs no file descriptor, and waiting
//! cannot fail.

use crate::frames::{ArenaCache, ArenaFrames, ArenaSession, ArenaVolume};
use larder_core::clock::{Clock, Nanos};
use larder_core::completion::Wake;
use larder_core::mapping::{Access, Mapping};
use larder_core::request::{
    Event, READ_PIECE_BYTES, ReadRequest, Reply, Request, Session, SessionLimit, Submitted,
    next_write_piece,
};
use larder_core::settings::SettingError;
use larder_core::store::StoreError;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A flag that wakes the thread of a session.
#[derive(Debug, Default)]
struct WakeFlag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl WakeFlag {
    /// Sleeps until the flag is set, at most for `timeout`, and clears it.
    fn wait(&self, timeout: Duration) {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_set, timeout, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// Sets the wake flag of a session.
struct WakeFlagSetter(Arc<WakeFlag>);

impl Wake for WakeFlagSetter {
    fn wake(&self) {
        *self.0.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_one();
    }
}

/// The reply to a request: its blocks or mapping, or an error.
type Outcome = Reply<ArenaFrames, ()>;

/// The requests of one thread to one volume, one at a time.
pub struct BlockingSession {
    cache: Arc<ArenaCache>,
    clock: Arc<dyn Clock>,
    /// Present until the session is dropped.
    session: Option<ArenaSession<()>>,
    wake_flag: Arc<WakeFlag>,
}

impl fmt::Debug for BlockingSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingSession").field("session", &self.session).finish_non_exhaustive()
    }
}

impl BlockingSession {
    /// Opens a session on a volume of a cache.
    pub(crate) fn open(
        cache: Arc<ArenaCache>,
        clock: Arc<dyn Clock>,
        volume: &Arc<ArenaVolume>,
    ) -> Result<Self, SettingError> {
        let wake_flag = Arc::new(WakeFlag::default());
        let setter = Box::new(WakeFlagSetter(Arc::clone(&wake_flag)));
        // The pieces of a read are passed on one by one.
        let limit = SessionLimit::Own(0);
        let session = Some(Session::open(&cache, volume, setter, limit)?);
        Ok(BlockingSession { cache, clock, session, wake_flag })
    }

    fn parts(&mut self) -> (&ArenaCache, Nanos, &mut ArenaSession<()>) {
        let session = self.session.as_mut().expect("open until it is dropped");
        (&self.cache, self.clock.now(), session)
    }

    /// Submits a request and waits for its reply. Passes the pieces of a read to `take`, in order.
    ///
    /// # Errors
    /// If the store fails, or the cache refuses the request.
    pub fn submit(
        &mut self,
        request: Request,
        payload: &[u8],
        mut take: impl FnMut(&ArenaFrames, &ReadRequest<ArenaFrames>),
    ) -> Result<(), StoreError> {
        let read = self.run(request, payload, &mut take)?;
        if let Some(read) = read {
            take(self.cache.frames(), &read);
            self.release(read);
        }
        Ok(())
    }

    /// Reads at most 1 MiB; the caller releases its blocks.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// If the request is not a read, or is longer.
    pub fn pin(&mut self, request: Request) -> Result<Box<ReadRequest<ArenaFrames>>, StoreError> {
        let read = self.run(request, &[], &mut |_, _| panic!("a read of more than one piece"))?;
        let read = read.expect("the blocks of a read");
        let (cache, now, session) = self.parts();
        session.detach(cache, now, &read);
        Ok(read)
    }

    /// Copies the bytes at `offset` to `to` if all of them lie in one cached block; returns whether
    /// they did.
    #[inline]
    pub fn read_hit(&mut self, offset: u64, to: &mut [u8]) -> bool {
        let session = self.session.as_mut().expect("open until it is dropped");
        session.read_hit(&self.cache, offset, to)
    }

    /// Maps a range for change.
    ///
    /// # Errors
    /// If the volume is read-only, the store fails, or too much is mapped.
    pub fn map(
        &mut self,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Box<Mapping<ArenaFrames>>, StoreError> {
        let (cache, now, session) = self.parts();
        session.map(cache, now, (offset, len), access, ());
        let reply = self.wait(&mut |_, _| {});
        reply.error.map_or_else(|| Ok(reply.mapping.expect("the mapping")), Err)
    }

    /// Ends a mapping.
    ///
    /// # Errors
    /// If the store fails.
    pub fn unpin(&mut self, mapping: Box<Mapping<ArenaFrames>>) -> Result<(), StoreError> {
        let (cache, now, session) = self.parts();
        session.unpin(cache, now, mapping, ());
        self.wait(&mut |_, _| {}).error.map_or(Ok(()), Err)
    }

    /// Submits a flush without waiting; [`BlockingSession::poll`] returns its result.
    pub fn start_flush(&mut self, request: Request) {
        let (cache, now, session) = self.parts();
        let submitted = session.submit(cache, now, request, &[][..], || ());
        debug_assert!(matches!(submitted, Submitted::Queued(_)), "a flush is queued");
    }

    /// Returns the result of the request that was started, if it has ended.
    pub fn poll(&mut self) -> Option<Result<(), StoreError>> {
        self.next_reply(&mut |_, _| {}).map(|reply| reply.error.map_or(Ok(()), Err))
    }

    /// Sleeps until [`BlockingSession::poll`] may return a result, at most for `timeout`.
    pub fn sleep(&self, timeout: Duration) {
        self.wake_flag.wait(timeout);
    }

    fn release(&mut self, read: Box<ReadRequest<ArenaFrames>>) {
        let (cache, now, session) = self.parts();
        session.release(cache, now, read);
    }

    /// Submits a request and waits for its reply. Returns the last piece of a read.
    fn run(
        &mut self,
        request: Request,
        payload: &[u8],
        take: &mut dyn FnMut(&ArenaFrames, &ReadRequest<ArenaFrames>),
    ) -> Result<Option<Box<ReadRequest<ArenaFrames>>>, StoreError> {
        if payload.len() > READ_PIECE_BYTES as usize {
            return self.write_pieces(request, payload);
        }
        let (cache, now, session) = self.parts();
        match session.submit(cache, now, request, payload, || ()) {
            Submitted::Done(done) => Ok(done.data),
            Submitted::Queued(_) => {
                let Reply { data, error, .. } = self.wait(take);
                error.map_or(Ok(data), Err)
            }
        }
    }

    /// Writes one piece at a time, each after the previous one is in the cache.
    fn write_pieces(
        &mut self,
        request: Request,
        payload: &[u8],
    ) -> Result<Option<Box<ReadRequest<ArenaFrames>>>, StoreError> {
        let mut rest = request.offset..request.offset + request.len;
        let (_, now, session) = self.parts();
        let id = session.begin(now, request, ());
        let mut at = 0;
        while !rest.is_empty() {
            let piece = next_write_piece(&rest, READ_PIECE_BYTES);
            let end = at + usize::try_from(piece.end - piece.start).expect("a piece");
            let (cache, now, session) = self.parts();
            session.push(cache, now, id, piece.start, &payload[at..end]);
            (at, rest.start) = (end, piece.end);
            while self.session.as_ref().is_some_and(|session| session.parked_bytes() > 0) {
                self.wait_for_work();
                let none = self.next_reply(&mut |_, _| {});
                debug_assert!(none.is_none(), "the request is open");
            }
            if self.session.as_ref().is_some_and(|session| session.has_failed(id)) {
                break;
            }
        }
        let (cache, now, session) = self.parts();
        session.finish(cache, now, id);
        self.wait(&mut |_, _| {}).error.map_or(Ok(None), Err)
    }

    fn wait(&mut self, take: &mut dyn FnMut(&ArenaFrames, &ReadRequest<ArenaFrames>)) -> Outcome {
        loop {
            if let Some(reply) = self.next_reply(take) {
                return reply;
            }
            self.wait_for_work();
        }
    }

    /// Sleeps until the session has work.
    fn wait_for_work(&mut self) {
        let (_, now, session) = self.parts();
        let due = session.next_deadline();
        let timeout = due.map(|due| Duration::from_nanos(due.saturating_sub(now)));
        self.wake_flag.wait(timeout.unwrap_or(Duration::MAX));
    }

    /// Continues the request in flight. Returns its reply if it has ended.
    fn next_reply(
        &mut self,
        take: &mut dyn FnMut(&ArenaFrames, &ReadRequest<ArenaFrames>),
    ) -> Option<Outcome> {
        let (cache, now, session) = self.parts();
        session.advance(cache, now);
        while let Some(event) = session.poll_event() {
            match event {
                Event::Piece(_, read) => {
                    take(cache.frames(), &read);
                    session.release(cache, now, read);
                }
                Event::End(reply) => return Some(reply),
            }
        }
        None
    }
}

impl Drop for BlockingSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.close(&self.cache);
        }
    }
}
