//! A rehearsal: the production cache on a virtual clock, in front of modelled stores, with as many
//! clients as wanted. Ten minutes take a second or two, and the same requests give the same run.
//!
//! A hit takes no time here; only stores do, and pauses that the cache makes writers take. Between
//! two moments the stores are driven and the clients go on in the order of their numbers, until
//! nothing moves any more. Then the clock jumps to what happens next.
//!
//! Times are nanoseconds, sizes are bytes.

mod client;
pub mod sharing;

pub use client::Request;

use crate::trace::Op;
use crate::workload::probe::{Action, ProbeRequest};
use client::{Client, Moved, Session};
use larder_core::cache::{Cache, ShareMode};
use larder_core::clock::Nanos;
use larder_core::completion::{Notify, Silent};
use larder_core::counters::{Recorder, Totals};
use larder_core::curve::report::CurveReport;
use larder_core::frames::NoFrames;
use larder_core::request::SessionLimit;
use larder_core::store::{Store, StoreDone, StoreOp};
use larder_core::volume::{Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Operations that a store has at a time.
const DEPTH: usize = 32;

/// A volume of the cache, and what lies behind it.
#[derive(Debug)]
struct Served<S> {
    volume: Arc<Volume<NoFrames>>,
    recorder: Arc<Recorder>,
    store: S,
}

/// Remembers that the cache has something for a store to do.
#[derive(Debug)]
struct Bell(Arc<AtomicBool>);

impl Notify for Bell {
    fn notify(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A cache without memory, its volumes and their stores, its clients, and the time.
#[derive(Debug)]
pub struct CacheSimulation<S> {
    cache: Cache<NoFrames>,
    volumes: Vec<Served<S>>,
    clients: Vec<Client>,
    /// Whether the cache has something for a store to do since it was looked at last.
    bell: Arc<AtomicBool>,
    now: Nanos,
    /// When something happens by itself, as far as the stores, the lazy writer and waiting clients
    /// know. At most `now` if something may move now.
    next: Option<Nanos>,
    ops: Vec<StoreOp<NoFrames>>,
    done: Vec<StoreDone<NoFrames>>,
}

/// A request that failed, which a modelled store never does by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rehearse a request: {0}")]
pub struct RehearsalError(String);

impl<S: Store<NoFrames>> CacheSimulation<S> {
    /// A cache of `frames` frames in `shards` parts, in front of `volumes`, with so many clients.
    #[must_use]
    pub fn new(
        frames: u32,
        shards: usize,
        volumes: impl IntoIterator<Item = (VolumeOptions, S)>,
        clients: usize,
    ) -> Self {
        let cache = Cache::new(NoFrames::new(frames), shards);
        let bell = Arc::new(AtomicBool::new(false));
        let serve = |(options, store)| {
            let volume = cache.add_volume(options, Box::new(Bell(Arc::clone(&bell))));
            let recorder = cache.recorder(&volume);
            Served { volume, recorder, store }
        };
        let volumes: Vec<Served<S>> = volumes.into_iter().map(serve).collect();
        let open = |served: &Served<S>| {
            let limit = SessionLimit::Own(u64::MAX);
            let session = Session::open(&cache, &served.volume, Box::new(Silent), limit);
            session.expect("the volume was just added")
        };
        let sessions = || volumes.iter().map(open).collect();
        let clients = (0..clients).map(|_| Client::new(sessions())).collect();
        // The clock starts a second after its origin, as a machine's does.
        let now = larder_core::clock::SECOND;
        let (ops, done) = (Vec::new(), Vec::new());
        CacheSimulation { cache, volumes, clients, bell, now, next: Some(now), ops, done }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The counters of a volume so far.
    #[must_use]
    pub fn totals(&self, volume: usize) -> Totals {
        self.volumes[volume].volume.totals()
    }

    /// What is known of the workload of a volume, if it is followed.
    #[must_use]
    pub fn curve(&self, volume: usize) -> Option<CurveReport> {
        self.cache.curve(&self.volumes[volume].volume, self.now)
    }

    /// Sets how the volumes share the memory.
    pub fn set_share_mode(&self, mode: ShareMode) {
        self.cache.set_share_mode(mode);
    }

    /// Blocks of a volume that its store does not have yet.
    #[must_use]
    pub fn unclean_blocks(&self, volume: usize) -> u64 {
        self.volumes[volume].volume.unclean_blocks()
    }

    /// The store of a volume.
    #[must_use]
    pub fn store(&self, volume: usize) -> &S {
        &self.volumes[volume].store
    }

    /// A client without a request.
    #[must_use]
    pub fn idle_client(&self) -> Option<usize> {
        self.clients.iter().position(Client::is_idle)
    }

    /// Gives a request to an idle client, and lets it go as far as it goes now.
    ///
    /// # Errors
    /// If the store failed it.
    pub fn begin(&mut self, client: usize, request: &Request) -> Result<(), RehearsalError> {
        self.bell.store(false, Ordering::Relaxed);
        match self.clients[client].begin(&self.cache, self.now, request)? {
            // A hit changes nothing that the stores or the lazy writer have to know of now, unless
            // it leads to reading ahead; a write may have given the lazy writer something.
            Moved::Idle if request.op == Op::Read && !self.bell.load(Ordering::Relaxed) => {}
            Moved::Idle | Moved::Waits => self.next = Some(self.now),
            Moved::Until(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
        }
        Ok(())
    }

    /// Lets the next thing happen, if that is not after `until`; otherwise, or if nothing will
    /// happen by itself, it is `until` afterwards.
    ///
    /// # Errors
    /// If a store failed a request.
    pub fn advance(&mut self, until: Nanos) -> Result<(), RehearsalError> {
        match self.next {
            Some(next) if next <= until => {
                self.now = self.now.max(next);
                self.next = self.settle()?;
            }
            _ => self.now = self.now.max(until),
        }
        Ok(())
    }

    /// Lets time pass until `until`, with whatever happens in it.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn pass(&mut self, until: Nanos) -> Result<(), RehearsalError> {
        while self.now < until || self.next.is_some_and(|next| next <= until) {
            self.advance(until)?;
        }
        Ok(())
    }

    /// Lets time pass until a client has had its answer for `think` nanoseconds, or had no request
    /// yet; which.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn wait_for_idle(&mut self, think: Nanos) -> Result<usize, RehearsalError> {
        loop {
            let clients = self.clients.iter().enumerate();
            let ready = |(index, client): (usize, &Client)| {
                Some((client.ready_at(think)?.max(self.now), index))
            };
            if let Some((at, client)) = clients.filter_map(ready).min() {
                self.pass(at)?;
                return Ok(client);
            }
            assert!(self.next.is_some(), "somebody waits, so something is under way");
            self.advance(Nanos::MAX)?;
        }
    }

    /// Lets time pass until all clients are idle.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn wait_for_all(&mut self) -> Result<(), RehearsalError> {
        while !self.clients.iter().all(Client::is_idle) {
            assert!(self.next.is_some(), "somebody waits, so something is under way");
            self.advance(Nanos::MAX)?;
        }
        Ok(())
    }

    /// Thinks and then serves one request to the first client, letting the time pass that it takes.
    ///
    /// # Errors
    /// If the store failed it.
    pub fn serve(&mut self, request: &ProbeRequest) -> Result<(), RehearsalError> {
        self.pass(self.now + request.think)?;
        let op = match request.action {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
        };
        let request = Request { volume: 0, op, offset: request.offset, len: request.len };
        self.begin(0, &request)?;
        self.wait_for_all()
    }

    /// Does everything that can be done now; when the next thing happens by itself.
    fn settle(&mut self) -> Result<Option<Nanos>, RehearsalError> {
        loop {
            let mut next = self.drive_stores();
            let mut moved = false;
            for client in &mut self.clients {
                if client.is_idle() {
                    continue;
                }
                match client.advance(&self.cache, self.now)? {
                    Moved::Idle => moved = true,
                    Moved::Waits => {}
                    Moved::Until(at) => next = Some(next.map_or(at, |next| next.min(at))),
                }
            }
            if !moved && !self.has_work() {
                return Ok(next);
            }
        }
    }

    /// Whether a store would be given something now.
    fn has_work(&mut self) -> bool {
        for served in &mut self.volumes {
            let (cache, ops) = (&self.cache, &mut self.ops);
            cache.poll(&served.volume, &served.recorder, self.now, DEPTH, ops);
            if !ops.is_empty() {
                for op in ops.drain(..) {
                    served.store.submit(self.now, cache.frames(), op);
                }
                return true;
            }
        }
        false
    }

    /// Gives the stores what they shall do and takes in what they have done, until nothing moves.
    fn drive_stores(&mut self) -> Option<Nanos> {
        let CacheSimulation { cache, volumes, now, ops, done, .. } = self;
        let now = *now;
        let mut next = None;
        for Served { volume, recorder, store } in volumes {
            let event = loop {
                let due = cache.poll(volume, recorder, now, DEPTH, ops);
                for op in ops.drain(..) {
                    store.submit(now, cache.frames(), op);
                }
                store.reap(now, cache.frames(), done);
                if done.is_empty() {
                    let event = store.next_event();
                    break [due, event].into_iter().flatten().min().map(|at| at.max(now + 1));
                }
                for done in done.drain(..) {
                    cache.complete(volume, recorder, now, done);
                }
            };
            next = [next, event].into_iter().flatten().min();
        }
        next
    }

    /// Gives up what is under way; the counters of each volume.
    pub fn finish(self) -> Vec<Totals> {
        let totals = self.volumes.iter().map(|served| served.volume.totals()).collect();
        for client in self.clients {
            client.close(&self.cache);
        }
        for served in &self.volumes {
            self.cache.abandon(&served.volume);
        }
        totals
    }
}

#[cfg(test)]
mod tests;
