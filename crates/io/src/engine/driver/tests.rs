//! Tests of the thread that drives a store.

use super::*;
use crate::engine::ArenaSession;
use larder_core::cache::Cache;
use larder_core::clock::VirtualClock;
use larder_core::completion::NoWaker;
use larder_core::request::{Request, RequestOp, Session, SessionLimit};
use larder_core::store::{Geometry, Store};
use larder_core::volume::VolumeOptions;
use larder_mem::{Arena, ArenaOptions};
use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const GEOMETRY: Geometry = Geometry { length: 1 << 20, granule: 512, read_only: false };

/// Log lines about a volume.
struct Log(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A store that completes an operation at the second poll. While it is idle, the clock advances by
/// a long time.
struct DelayedStore {
    clock: Arc<VirtualClock>,
    polls: u32,
    op: Option<StoreOp<ArenaFrames>>,
}

impl Store<ArenaFrames> for DelayedStore {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn submit(&mut self, _: Nanos, _: &ArenaFrames, op: StoreOp<ArenaFrames>) {
        (self.polls, self.op) = (0, Some(op));
    }

    fn reap(&mut self, now: Nanos, _: &ArenaFrames, done: &mut Vec<StoreCompletion<ArenaFrames>>) {
        self.polls += 1;
        if let Some(op) = self.op.take_if(|_| self.polls > 1) {
            done.push(StoreCompletion { op, result: Ok(()), started_at: now, finished_at: now });
        }
    }

    fn in_flight(&self) -> usize {
        usize::from(self.op.is_some())
    }
}

impl EngineStore for DelayedStore {
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        if self.op.is_none() {
            waker.sleep(None, timeout)?;
            self.clock.advance_to(self.clock.now() + 1000 * SECOND);
        }
        Ok(())
    }
}

#[test]
fn a_store_that_was_idle_is_not_said_to_be_silent() {
    let log = Arc::new(Mutex::new(String::new()));
    tracing::subscriber::set_global_default(Log(Arc::clone(&log))).unwrap();
    let arena = Arena::new(ArenaOptions { frames: 1024, huge_pages: false, lock: false }).unwrap();
    let cache = Arc::new(Cache::new(ArenaFrames::new(arena), 1));
    let clock = Arc::new(VirtualClock::at(0));
    let waker = Waker::new().unwrap();
    let options = VolumeOptions::new("idle", GEOMETRY);
    let volume = cache.add_volume(options, Box::new(waker.clone()));
    let store = Box::new(DelayedStore { clock: Arc::clone(&clock), polls: 0, op: None });
    let at: Arc<dyn Clock> = clock;
    let mut driver =
        Driver::start(Arc::clone(&cache), Arc::clone(&volume), Arc::clone(&at), waker, store)
            .unwrap();
    let limit = SessionLimit::Own(0);
    let mut session: ArenaSession<()> =
        Session::open(&cache, &volume, Box::new(NoWaker), limit).unwrap();
    for _ in 0..3 {
        let flush = Request::new(RequestOp::Flush, 0..0);
        session.submit(&cache, at.now(), flush, &[][..], || ());
        let begun = Instant::now();
        while !session.has_completions() {
            assert!(begun.elapsed() < Duration::from_mins(1), "the flush does not end");
            std::thread::yield_now();
        }
        session.advance(&cache, at.now());
        assert!(session.poll_event().is_some());
    }
    session.close(&cache);
    driver.quit();
    assert!(at.now() >= 1000 * SECOND, "it was idle for long");
    let log = log.lock().unwrap();
    assert!(!log.contains("does not answer"), "{log}");
}
