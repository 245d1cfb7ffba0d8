//! Simulation of the production cache on a virtual clock, in front of modeled stores, with any
//! number of clients. Ten minutes of virtual time take a second or two, and the same requests give
//! the same run.
//!
//! A hit takes no time; only store operations and the pauses that the cache imposes on writers do.
//! At each point in time the simulation polls the stores and advances the clients in the order of
//! their numbers until none makes progress. Then the clock jumps to the next event.
//!
//! Times are nanoseconds, sizes are bytes.

mod cached_store;
mod client;

pub use cached_store::CachedStore;
pub use client::{EngineRequest, Request, RequestTime};

use crate::trace::Op;
use crate::workload::probe::{Action, ProbeRequest};
use client::{Client, Progress, Session};
use larder_core::cache::{Cache, ShareMode};
use larder_core::clock::Nanos;
use larder_core::completion::{NoWaker, Wake};
use larder_core::counters::{Recorder, Totals};
use larder_core::curve::report::CurveReport;
use larder_core::frames::NoFrames;
use larder_core::request::{RequestOp, SessionLimit};
use larder_core::settings::SettingError;
use larder_core::store::{Store, StoreCompletion, StoreOp};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::{Volume, VolumeOptions};
use larder_schema::format::counted;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum operations in flight on one store.
const DEPTH: usize = 32;

/// A volume of the cache, and its store.
#[derive(Debug)]
struct ServedVolume<S> {
    volume: Arc<Volume<NoFrames>>,
    recorder: Arc<Recorder>,
    store: S,
    /// True if the cache may have operations for the store since it was last polled.
    has_work: Arc<AtomicBool>,
    /// Time at which the sleeping store thread takes the operations.
    wakes_at: Option<Nanos>,
    /// Time of the next event of the store or the lazy writer.
    next: Option<Nanos>,
}

impl<S> ServedVolume<S> {
    /// Returns true if the cache may have operations that the store thread takes now. It takes them
    /// `wake` after the first one was queued.
    fn takes_work(&mut self, now: Nanos, wake: Nanos) -> bool {
        if !self.has_work.load(Ordering::Relaxed) {
            return false;
        }
        wake == 0 || *self.wakes_at.get_or_insert(now + wake) <= now
    }

    /// Marks the operations as taken.
    fn take_work(&mut self) {
        self.has_work.store(false, Ordering::Relaxed);
        self.wakes_at = None;
    }
}

/// The clients of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clients {
    /// Number of clients; each has a session on each volume.
    pub number: usize,
    /// Maximum requests of each that are in flight at a time.
    pub depth: usize,
}

impl Clients {
    /// Returns clients that wait for each reply before they send the next request.
    #[must_use]
    pub const fn synchronous(number: usize) -> Clients {
        Clients { number, depth: 1 }
    }

    /// Returns the limit of the frames that a client pins in a cache of this many bytes. A client
    /// with one request may pin any, since its request needs no others.
    fn limit(self, cache_bytes: u64) -> SessionLimit {
        let share = cache_bytes / PINNED_SHARE / (self.number.max(1) as u64);
        SessionLimit::Own(if self.depth > 1 { share } else { u64::MAX })
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.number as u64, "client"))?;
        if self.depth > 1 { write!(f, " of depth {}", self.depth) } else { Ok(()) }
    }
}

/// Divisor of the memory that gives the frames that clients with several requests pin, in addition
/// to a piece of a read of each client.
const PINNED_SHARE: u64 = 4;

/// Sets flags when the cache has operations for a store.
#[derive(Debug)]
struct WorkNotifier {
    of_volume: Arc<AtomicBool>,
    of_any: Arc<AtomicBool>,
}

impl Wake for WorkNotifier {
    fn wake(&self) {
        self.of_volume.store(true, Ordering::Relaxed);
        self.of_any.store(true, Ordering::Relaxed);
    }
}

/// A cache without memory, its volumes and their stores, its clients, and the virtual clock.
#[derive(Debug)]
pub struct CacheSimulation<S> {
    cache: Cache<NoFrames>,
    volumes: Vec<ServedVolume<S>>,
    clients: Vec<Client>,
    /// True if the cache has announced store operations since the flag was last cleared.
    work_pending: Arc<AtomicBool>,
    now: Nanos,
    /// Time until a sleeping store thread takes operations.
    wake: Nanos,
    /// Time of the next event of a store, the lazy writer or a waiting client. At most `now` if
    /// progress may be possible now.
    next: Option<Nanos>,
    ops: Vec<StoreOp<NoFrames>>,
    done: Vec<StoreCompletion<NoFrames>>,
}

/// A failed request. Modeled stores never fail requests unless their inner store does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rehearse a request: {0}")]
pub struct SimulationError(String);

impl<S: Store<NoFrames>> CacheSimulation<S> {
    /// Creates a cache of `frames` frames in `shards` shards, in front of `volumes`, with
    /// `clients`.
    #[must_use]
    pub fn new(
        frames: u32,
        shards: usize,
        volumes: impl IntoIterator<Item = (VolumeOptions, S)>,
        clients: Clients,
    ) -> Self {
        let cache = Cache::new(NoFrames::new(frames), shards);
        let work_pending = Arc::new(AtomicBool::new(false));
        let serve = |(options, store)| {
            let has_work = Arc::new(AtomicBool::new(true));
            let [of_volume, of_any] = [&has_work, &work_pending].map(Arc::clone);
            let notifier = Box::new(WorkNotifier { of_volume, of_any });
            let volume = cache.add_volume(options, notifier);
            let recorder = cache.recorder(&volume);
            ServedVolume { volume, recorder, store, has_work, wakes_at: None, next: None }
        };
        let volumes: Vec<ServedVolume<S>> = volumes.into_iter().map(serve).collect();
        let open = |served: &ServedVolume<S>| {
            let limit = clients.limit(u64::from(frames) * BLOCK_BYTES_U64);
            let session = Session::open(&cache, &served.volume, Box::new(NoWaker), limit);
            session.expect("the volume was just added")
        };
        let sessions = || volumes.iter().map(open).collect();
        let client = |_| Client::new(sessions(), clients.depth);
        let clients = (0..clients.number).map(client).collect();
        // The clock starts one second after its origin, as a machine's clock does.
        let now = larder_core::clock::SECOND;
        let (ops, done) = (Vec::new(), Vec::new());
        let next = Some(now);
        CacheSimulation { cache, volumes, clients, work_pending, now, wake: 0, next, ops, done }
    }

    /// Sets the time from the first queued operation until the store takes the queued operations.
    /// Adjacent reads that are queued in the meantime become one operation.
    pub fn set_wake_time(&mut self, wake: Nanos) {
        self.wake = wake;
    }

    /// Sets the time from the end of a request that has waited until its client gets the reply.
    pub fn set_reply_time(&mut self, reply: Nanos) {
        self.clients.iter_mut().for_each(|client| client.set_reply_time(reply));
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the counters of a volume so far.
    #[must_use]
    pub fn totals(&self, volume: usize) -> Totals {
        self.volumes[volume].volume.totals()
    }

    /// Returns the curve report of a volume, if the cache tracks the volume.
    #[must_use]
    pub fn curve(&self, volume: usize) -> Option<CurveReport> {
        self.cache.curve(&self.volumes[volume].volume, self.now)
    }

    /// Sets how the volumes share the memory.
    pub fn set_share_mode(&self, mode: ShareMode) {
        self.cache.set_share_mode(mode);
    }

    /// Returns the number of blocks of a volume that its store does not have yet.
    #[must_use]
    pub fn unclean_blocks(&self, volume: usize) -> u64 {
        self.volumes[volume].volume.unclean_blocks()
    }

    /// Returns the number of blocks of a volume that are valid in the cache.
    #[must_use]
    pub fn resident_blocks(&self, volume: usize) -> u64 {
        let volume = &self.volumes[volume].volume;
        self.cache.count_resident(volume, 0..volume.geometry().length / BLOCK_BYTES_U64)
    }

    /// Returns the blocks of the resident pages of a volume, in order.
    #[must_use]
    pub fn residents(&self, volume: usize) -> Vec<Range<u64>> {
        let mut pages = self.cache.residents(&self.volumes[volume].volume, self.now, usize::MAX);
        pages.sort_unstable_by_key(|range| range.start);
        pages
    }

    /// Returns the number of volumes.
    #[must_use]
    pub fn volume_count(&self) -> usize {
        self.volumes.len()
    }

    /// Changes the memory of the cache to this many frames, as far as pages can be evicted now.
    ///
    /// # Errors
    /// As [`Cache::set_memory`].
    pub fn set_memory(&mut self, frames: u32) -> Result<(), SettingError> {
        self.cache.set_memory(frames)?;
        while self.cache.run_maintenance(self.now).is_some_and(|at| at <= self.now) {}
        self.volumes.iter().for_each(|it| it.has_work.store(true, Ordering::Relaxed));
        self.next = Some(self.now);
        Ok(())
    }

    /// Returns the store of a volume.
    #[must_use]
    pub fn store(&self, volume: usize) -> &S {
        &self.volumes[volume].store
    }

    /// Gives a request to a client that has room for it, and advances it as far as possible now.
    ///
    /// # Errors
    /// If the store failed it.
    pub fn begin(&mut self, client: usize, request: &Request) -> Result<(), SimulationError> {
        self.begin_exactly(client, request.of_engine())
    }

    /// Does the same with a request that has options.
    ///
    /// # Errors
    /// If the store failed it.
    pub fn begin_exactly(
        &mut self,
        client: usize,
        request: EngineRequest,
    ) -> Result<(), SimulationError> {
        let (volume, is_read) = (request.volume, request.request.op == RequestOp::Read);
        self.work_pending.store(false, Ordering::Relaxed);
        let progress = self.clients[client].begin(&self.cache, self.now, request)?;
        let has_work = self.work_pending.load(Ordering::Relaxed);
        match progress {
            // A hit changes nothing that the stores or the lazy writer must act on now, unless it
            // triggers read-ahead; a write may have made work for the lazy writer.
            Progress::Ended if is_read && !has_work => {}
            Progress::WaitingUntil(at) if !has_work => {
                self.next = Some(self.next.map_or(at, |next| next.min(at)));
            }
            _ => {
                self.volumes[volume].has_work.store(true, Ordering::Relaxed);
                self.next = Some(self.now);
            }
        }
        Ok(())
    }

    /// Advances to the next event if it is at or before `until`; otherwise sets the clock to
    /// `until`.
    ///
    /// # Errors
    /// If a store failed a request.
    pub fn advance(&mut self, until: Nanos) -> Result<(), SimulationError> {
        match self.next {
            Some(next) if next <= until => {
                self.now = self.now.max(next);
                self.next = self.settle()?;
            }
            _ => self.now = self.now.max(until),
        }
        Ok(())
    }

    /// Advances the clock to `until` and processes all events up to then.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn run_until(&mut self, until: Nanos) -> Result<(), SimulationError> {
        while self.now < until || self.next.is_some_and(|next| next <= until) {
            self.advance(until)?;
        }
        Ok(())
    }

    /// Advances the clock until a client has room for a request, and the think time of the last one
    /// in its place has passed. Returns the index of that client.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn wait_for_client(&mut self, think: RequestTime) -> Result<usize, SimulationError> {
        self.wait_for_client_of(|_, _| true, think)
    }

    /// As [`CacheSimulation::wait_for_client`], for a client for which `is_wanted` returns
    /// true: it gets the index of the client, and true if the client has no request in flight.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn wait_for_client_of(
        &mut self,
        is_wanted: impl Fn(usize, bool) -> bool,
        think: RequestTime,
    ) -> Result<usize, SimulationError> {
        loop {
            let clients = self.clients.iter().enumerate();
            let clients = clients.filter(|(index, client)| is_wanted(*index, client.is_idle()));
            let ready = |(index, client): (usize, &Client)| {
                Some((client.ready_at(think)?.max(self.now), index))
            };
            let first = clients.filter_map(ready).min();
            let until = first.map_or(Nanos::MAX, |(at, _)| at);
            match first {
                // An event before may make another client ready earlier.
                Some((_, client)) if self.next.is_none_or(|next| next > until) => {
                    self.now = until;
                    self.clients[client].choose_place(think);
                    return Ok(client);
                }
                _ => assert!(self.next.is_some(), "a waiting request has an operation in flight"),
            }
            self.advance(until)?;
        }
    }

    /// Sets the earliest time of the next request of a client without requests.
    pub fn pause(&mut self, client: usize, until: Nanos) {
        self.clients[client].pause_until(until);
    }

    /// Appends the tags of requests that have ended, and the times of their ends.
    pub(crate) fn drain_ended(&mut self, ended: &mut Vec<(u64, Nanos)>) {
        self.clients.iter_mut().for_each(|client| ended.append(client.ended()));
    }

    /// Returns the time of the next event, if any is due.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.next
    }

    /// Advances the clock until all clients are idle.
    ///
    /// # Errors
    /// As [`CacheSimulation::advance`].
    pub fn wait_for_all(&mut self) -> Result<(), SimulationError> {
        while !self.clients.iter().all(Client::is_idle) {
            assert!(self.next.is_some(), "a waiting request has an operation in flight");
            self.advance(Nanos::MAX)?;
        }
        Ok(())
    }

    /// Waits for the think time, then serves one request on the first client, and advances the
    /// clock until the request is complete.
    ///
    /// # Errors
    /// If the store failed it.
    pub fn serve(&mut self, request: &ProbeRequest) -> Result<(), SimulationError> {
        self.run_until(self.now + request.think)?;
        let op = match request.action {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
        };
        let request = Request { volume: 0, op, offset: request.offset, len: request.len };
        self.begin(0, &request)?;
        self.wait_for_all()
    }

    /// Makes all progress that is possible now. Returns the time of the next event.
    fn settle(&mut self) -> Result<Option<Nanos>, SimulationError> {
        loop {
            let mut next = self.drive_stores();
            let mut progressed = false;
            for client in &mut self.clients {
                // The list loses a volume whose requests have all ended.
                for index in (0..client.busy().len()).rev() {
                    let volume = client.busy()[index];
                    match client.advance(&self.cache, self.now, volume)? {
                        Progress::Ended => {
                            progressed = true;
                            self.volumes[volume].has_work.store(true, Ordering::Relaxed);
                        }
                        Progress::Waiting => {}
                        Progress::WaitingUntil(at) => {
                            next = Some(next.map_or(at, |next| next.min(at)));
                        }
                    }
                }
            }
            if !progressed && !self.has_work() {
                let wakes = self.volumes.iter().filter_map(|served| served.wakes_at);
                return Ok(wakes.chain(next).min());
            }
        }
    }

    /// Submits the operations of the first volume that has any. Returns true if there were any.
    fn has_work(&mut self) -> bool {
        for served in &mut self.volumes {
            if !served.takes_work(self.now, self.wake) {
                continue;
            }
            served.take_work();
            let (cache, ops) = (&self.cache, &mut self.ops);
            cache.poll(&served.volume, &served.recorder, self.now, DEPTH, ops);
            if !ops.is_empty() {
                for op in ops.drain(..) {
                    served.store.submit(self.now, cache.frames(), op);
                }
                // The next round collects completions, and polls again.
                served.has_work.store(true, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Submits operations to the stores and collects their completions until there are no more.
    /// Returns the time of the next event.
    fn drive_stores(&mut self) -> Option<Nanos> {
        let CacheSimulation { cache, volumes, now, wake, ops, done, .. } = self;
        let now = *now;
        let mut next = None;
        for served in volumes {
            let is_due = served.next.is_some_and(|at| at <= now);
            if !is_due && !served.takes_work(now, *wake) {
                next = [next, served.next].into_iter().flatten().min();
                continue;
            }
            served.next = loop {
                served.take_work();
                let ServedVolume { volume, recorder, store, .. } = served;
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
            next = [next, served.next].into_iter().flatten().min();
        }
        next
    }

    /// Abandons requests in flight. Returns the counters of each volume.
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
