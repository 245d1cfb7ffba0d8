//! A world with one cache, its stores and its clients, in which everything happens in one thread
//! and in the order in which it is called.

use crate::broken::{Broken, Lie};
use crate::client::{Client, Held};
use crate::model::{Model, Outcome, bytes_of};
use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::counters::{Gauge, Recorder};
use larder_core::frames::{Frames, PlainFrames};
use larder_core::lane::{Completion, Silent};
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::{
    CrashDisk, CrashStore, DelayStore, Fault, FaultPlan, FaultyStore, SparseBytes, Store,
    StoreDone, StoreError, StoreOpKind,
};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::{Volume, VolumeOptions};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The last operations of a world, readable after it panicked.
pub(crate) type Log = Arc<Mutex<VecDeque<String>>>;
const LOG_LINES: usize = 60;

/// What a world is made of.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) frames: u32,
    pub(crate) shards: usize,
    pub(crate) volumes: Vec<VolumeOptions>,
    pub(crate) seed: u64,
    pub(crate) delay: Option<Nanos>,
    pub(crate) depth: usize,
    pub(crate) lie: Lie,
}

/// What happened in worlds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) store_ops: u64,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Read(Range<u64>),
    Write { bytes: Range<u64>, fua: bool, zero: bool },
    Flush,
    Exclude { kind: StoreOpKind, blocks: Range<u64> },
}

/// What a request under way consists of.
pub(crate) enum Work {
    Read { assembly: Assembly<PlainFrames>, allowed: Vec<Vec<crate::model::Content>> },
    Write { task: WriteTask, data: Vec<u8> },
    Flush,
    Exclude { kind: StoreOpKind, blocks: Range<u64> },
}

/// A request under way.
pub(crate) struct Request {
    pub(crate) token: u64,
    pub(crate) bytes: Range<u64>,
    pub(crate) work: Work,
    pub(crate) stalled: bool,
    /// The event at which it was submitted.
    pub(crate) event: u64,
}

/// One volume and what lies behind it.
pub(crate) struct Disk {
    pub(crate) volume: Arc<Volume<PlainFrames>>,
    pub(crate) store: Box<dyn Store<PlainFrames>>,
    pub(crate) platter: Arc<Mutex<CrashDisk>>,
    pub(crate) plan: FaultPlan,
    recorder: Arc<Recorder>,
    pub(crate) model: Model,
    pub(crate) next_poll: Option<Nanos>,
    /// The last event at which reads were failing.
    pub(crate) reads_failed_at: u64,
    pub(crate) reads_failing: bool,
    /// Whether writes or flushes have ever been made to fail.
    pub(crate) writes_failed: bool,
    pub(crate) flush_failed: bool,
    /// Ranges whose discard or zeroing goes on although its client has left.
    pub(crate) orphans: Vec<Range<u64>>,
}

impl Disk {
    pub(crate) fn length(&self) -> u64 {
        self.volume.geometry().length
    }
}

/// One cache, its stores and its clients.
pub(crate) struct World {
    pub(crate) cache: Cache<PlainFrames>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) now: Nanos,
    pub(crate) depth: usize,
    pub(crate) figures: Figures,
    log: Log,
    tokens: u64,
}

fn disk(cache: &Cache<PlainFrames>, setup: &Setup, options: &VolumeOptions) -> Disk {
    let geometry = options.geometry;
    let mut content = SparseBytes::default();
    content.write(0, &bytes_of(0, 0..geometry.length));
    let crash = CrashStore::new(geometry, content, setup.seed);
    let platter = crash.disk();
    let plan = FaultPlan::default();
    let store: Box<dyn Store<PlainFrames>> = match (setup.lie, setup.delay) {
        (Lie::Nothing, None) => Box::new(FaultyStore::new(crash, plan.clone())),
        (Lie::Nothing, Some(delay)) => {
            Box::new(FaultyStore::new(DelayStore::new(crash, delay), plan.clone()))
        }
        (lie, _) => Box::new(Broken::new(crash, lie)),
    };
    let volume = cache.add_volume(options.clone(), Box::new(Silent));
    Disk {
        recorder: cache.recorder(&volume),
        volume,
        store,
        platter,
        plan,
        model: Model::new(geometry.length),
        next_poll: None,
        reads_failed_at: 0,
        reads_failing: false,
        writes_failed: false,
        flush_failed: false,
        orphans: Vec::new(),
    }
}

impl World {
    pub(crate) fn new(setup: &Setup, log: Log) -> Self {
        let cache = Cache::new(PlainFrames::new(setup.frames), setup.shards);
        let disks = setup.volumes.iter().map(|options| disk(&cache, setup, options)).collect();
        World {
            cache,
            disks,
            clients: Vec::new(),
            now: MILLISECOND,
            depth: setup.depth,
            figures: Figures::default(),
            log,
            tokens: 0,
        }
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let mut log = self.log.lock().unwrap();
        if log.len() == LOG_LINES {
            log.pop_front();
        }
        log.push_back(format!("{:>9} us: {}", self.now / 1000, line()));
    }

    pub(crate) fn open(&mut self, disk: usize) -> usize {
        let lane = self.cache.open_lane(&self.disks[disk].volume, Box::new(Silent));
        let client = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if client == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[client] = Some(Client::new(lane, disk));
        self.note(|| format!("client {client} opens volume {disk}"));
        client
    }

    /// Closes a lane, with whatever is in flight on it.
    pub(crate) fn close(&mut self, client: usize) {
        let Client { lane, disk, requests, held, mail, .. } = self.clients[client].take().unwrap();
        self.note(|| format!("client {client} leaves {} requests", requests.len()));
        self.cache.close_lane(lane);
        for completion in mail {
            if let Completion::Filled { pins, .. } = completion {
                pins.into_iter().for_each(|pin| self.cache.frames().unpin(pin));
            }
        }
        for mut held in held {
            held.assembly.release(self.cache.frames());
        }
        for Request { work, bytes, stalled, .. } in requests {
            match work {
                Work::Read { mut assembly, .. } => assembly.abandon(self.cache.frames()),
                Work::Write { .. } => self.disks[disk].model.end(&bytes, Outcome::Unknown),
                // Unlike a write it goes on by itself.
                Work::Exclude { .. } if !stalled => self.disks[disk].orphans.push(bytes),
                Work::Exclude { .. } => self.disks[disk].model.end(&bytes, Outcome::Unknown),
                Work::Flush => {}
            }
        }
    }

    /// Submits a request.
    pub(crate) fn submit(&mut self, client: usize, action: Action) {
        self.tokens += 1;
        self.figures.requests += 1;
        let token = self.tokens;
        self.note(|| format!("client {client} request {token}: {action:?}"));
        let place = self.clients[client].as_mut().unwrap().disk;
        let disk = &mut self.disks[place];
        let event = disk.model.event();
        let len = |bytes: &Range<u64>| u32::try_from(bytes.end - bytes.start).unwrap();
        let (bytes, work) = match action {
            Action::Read(bytes) => {
                let assembly = Assembly::new(token, bytes.start, len(&bytes));
                let allowed = disk.model.readable(&bytes);
                (bytes, Work::Read { assembly, allowed })
            }
            Action::Write { bytes, fua, zero } => {
                let mut data = bytes_of(token, bytes.clone());
                if zero {
                    data.fill(0);
                }
                disk.model.begin(&bytes, &data);
                let task = WriteTask::new(token, bytes.start, len(&bytes), fua);
                (bytes, Work::Write { task, data })
            }
            Action::Flush => (0..0, Work::Flush),
            Action::Exclude { kind, blocks } => {
                let end = (blocks.end * BLOCK_BYTES_U64).min(disk.length());
                let bytes = blocks.start * BLOCK_BYTES_U64..end;
                disk.model.begin(&bytes, &vec![0; len(&bytes) as usize]);
                (bytes, Work::Exclude { kind, blocks })
            }
        };
        if matches!(work, Work::Write { .. } | Work::Exclude { .. }) {
            for client in self.clients.iter_mut().flatten().filter(|other| other.disk == place) {
                client.widen(&self.disks[place].model, &bytes);
            }
        }
        self.drive(client, Request { token, bytes, work, stalled: false, event });
    }

    /// Calls the cache for a request that is new, was stalled, or is to be continued.
    fn drive(&mut self, client: usize, mut request: Request) {
        let lane = &mut self.clients[client].as_mut().unwrap().lane;
        request.stalled = false;
        let status = match &mut request.work {
            Work::Read { assembly, .. } => self.cache.read(lane, self.now, assembly),
            Work::Write { task, data } => self.cache.write(lane, self.now, task, data),
            Work::Flush => self.cache.flush(lane, self.now, request.token),
            Work::Exclude { kind, blocks } => {
                self.cache.exclude(lane, self.now, *kind, blocks.clone(), request.token)
            }
        };
        self.settle(client, request, status);
    }

    fn settle(&mut self, client: usize, mut request: Request, status: Status) {
        match status {
            Status::Done | Status::DoneAt(_) => self.finish(client, request, None),
            Status::Failed(error) => self.finish(client, request, Some(error)),
            Status::Pending | Status::Stalled => {
                request.stalled = status == Status::Stalled;
                self.clients[client].as_mut().unwrap().requests.push(request);
            }
        }
    }

    /// Tries again what was stalled on a lane.
    pub(crate) fn retry(&mut self, client: usize) {
        let requests = &mut self.clients[client].as_mut().unwrap().requests;
        let stalled: Vec<_> = requests.extract_if(.., |request| request.stalled).collect();
        for request in stalled {
            self.drive(client, request);
        }
    }

    /// A request is done: what the model makes of it.
    fn finish(&mut self, client: usize, request: Request, error: Option<StoreError>) {
        let Request { token, bytes, work, event, .. } = request;
        self.figures.failed += u64::from(error.is_some());
        self.note(|| match &error {
            None => format!("request {token} is done"),
            Some(error) => format!("request {token} failed to {error}"),
        });
        let frames = self.cache.frames();
        let client = self.clients[client].as_mut().unwrap();
        let disk = &mut self.disks[client.disk];
        let read_fault = disk.reads_failing || disk.reads_failed_at >= event;
        match work {
            Work::Read { assembly, allowed } => {
                if let Some(error) = error {
                    assert!(read_fault, "a read failed without a fault: {error}");
                    return;
                }
                let mut copy = vec![0; usize::try_from(bytes.end - bytes.start).unwrap()];
                assembly.copy_to(frames, &mut copy);
                Model::check_read(&bytes, &copy, &allowed);
                client.held.push(Held { assembly, copy });
            }
            Work::Write { task, .. } => {
                let may_fail = disk.writes_failed || read_fault;
                assert!(error.is_none() || may_fail, "a write failed without a fault: {error:?}");
                let outcome = match error {
                    Some(_) => Outcome::Unknown,
                    None if task.fua => Outcome::Stable,
                    None => Outcome::Done,
                };
                disk.model.end(&bytes, outcome);
            }
            Work::Flush => unreachable!("flushes end where their completion arrives"),
            Work::Exclude { kind, .. } => {
                assert!(error.is_none() || disk.writes_failed, "{kind} failed: {error:?}");
                let is_zero = matches!(kind, StoreOpKind::Zero { .. }) && error.is_none();
                disk.model.end(&bytes, if is_zero { Outcome::Done } else { Outcome::Unknown });
            }
        }
    }

    /// Gives the store what the cache wants of it.
    pub(crate) fn poll(&mut self, index: usize) -> usize {
        let disk = &mut self.disks[index];
        let mut ops = Vec::new();
        disk.next_poll =
            self.cache.poll(&disk.volume, &disk.recorder, self.now, self.depth, &mut ops);
        let count = ops.len();
        for op in ops {
            self.note(|| format!("store {index}: {:?} {}+{}", op.kind, op.offset, op.len));
            let disk = &mut self.disks[index];
            disk.store.submit(self.now, self.cache.frames(), op);
        }
        self.figures.store_ops += count as u64;
        count
    }

    /// Gives the cache what the store has done.
    pub(crate) fn reap(&mut self, index: usize) -> usize {
        let mut done = Vec::new();
        self.disks[index].store.reap(self.now, self.cache.frames(), &mut done);
        let count = done.len();
        for done in done {
            self.complete(index, done);
        }
        count
    }

    fn complete(&mut self, index: usize, done: StoreDone<PlainFrames>) {
        if let Err(error) = &done.result {
            self.figures.faults += 1;
            self.note(|| format!("store {index} failed to {error}"));
            let is_flush = done.op.kind == StoreOpKind::Flush;
            self.disks[index].flush_failed |= is_flush;
            if matches!(done.op.kind, StoreOpKind::Write { .. }) {
                for client in self.clients.iter_mut().flatten().filter(|c| c.disk == index) {
                    client.untold = true;
                }
            }
        } else {
            self.note(|| format!("store {index} has done {} {}", done.op.kind, done.op.offset));
        }
        let disk = &mut self.disks[index];
        self.cache.complete(&disk.volume, &disk.recorder, self.now, done);
        for client in 0..self.clients.len() {
            self.collect(client);
        }
    }

    /// Takes the mail of a lane. Flushes end here, at the moment at which they are promised.
    fn collect(&mut self, index: usize) {
        let Some(client) = self.clients[index].as_mut() else { return };
        let (mut mail, mut lines) = (Vec::new(), Vec::new());
        client.lane.collect(&mut mail);
        for completion in mail {
            let Completion::Finished { token, result } = &completion else {
                client.mail.push_back(completion);
                continue;
            };
            // The flush that a FUA write needs tells its lane of errors, too.
            let is_write = |r: &Request| r.token == *token && matches!(r.work, Work::Write { .. });
            if result.is_err() && client.requests.iter().any(is_write) {
                client.untold = false;
            }
            let is_flush = |r: &Request| r.token == *token && matches!(r.work, Work::Flush);
            let Some(place) = client.requests.iter().position(is_flush) else {
                client.mail.push_back(completion);
                continue;
            };
            let request = client.requests.swap_remove(place);
            let disk = &mut self.disks[client.disk];
            match result {
                Ok(()) => {
                    assert!(!disk.flush_failed, "a flush went well after one had failed");
                    assert!(!client.untold, "client {index} was not told of a failed write");
                    disk.model.flushed(request.event);
                }
                Err(error) => {
                    assert!(disk.writes_failed, "a flush failed without a fault: {error}");
                    client.untold = false;
                    self.figures.failed += 1;
                }
            }
            lines.push(format!("flush {token} ends: {:?}", result.as_ref().err()));
        }
        lines.into_iter().for_each(|line| self.note(|| line));
    }

    /// Hands one completion to the request it belongs to; whether there was one.
    pub(crate) fn deliver(&mut self, index: usize) -> bool {
        let client = self.clients[index].as_mut().unwrap();
        let Some(completion) = client.mail.pop_front() else { return false };
        let token = match &completion {
            Completion::Unstalled => {
                self.retry(index);
                return true;
            }
            Completion::Filled { token, .. }
            | Completion::Failed { token, .. }
            | Completion::Continue { token }
            | Completion::Synced { token, .. }
            | Completion::Finished { token, .. } => *token,
        };
        let place = client.requests.iter().position(|request| request.token == token);
        let place = place.unwrap_or_else(|| panic!("request {token} is done already"));
        let mut request = client.requests.swap_remove(place);
        if matches!(completion, Completion::Continue { .. }) {
            self.drive(index, request);
            return true;
        }
        let status = match &mut request.work {
            Work::Read { assembly, .. } => assembly.absorb(self.cache.frames(), completion),
            Work::Write { task, .. } => {
                self.cache.write_completed(&mut client.lane, self.now, task, completion)
            }
            Work::Exclude { .. } => match completion {
                Completion::Finished { result, .. } => {
                    result.map_or_else(Status::Failed, |()| Status::Done)
                }
                other => panic!("{other:?} for an exclusive range"),
            },
            Work::Flush => panic!("{completion:?} for a flush"),
        };
        self.settle(index, request, status);
        true
    }

    /// Sets the faults of a disk.
    pub(crate) fn set_faults(&mut self, index: usize, faults: Vec<Fault>) {
        self.note(|| format!("store {index} faults: {faults:?}"));
        let disk = &mut self.disks[index];
        if disk.reads_failing {
            disk.reads_failed_at = disk.model.event();
        }
        let is_read = |fault: &Fault| matches!(fault, Fault::Reads(_) | Fault::Shrunk(_));
        disk.reads_failing = faults.iter().any(is_read);
        disk.writes_failed |= faults.iter().any(|fault| !matches!(fault, Fault::Reads(_)));
        disk.plan.set(faults);
    }

    /// Asserts that a crash now would leave only what it may.
    pub(crate) fn crash(&mut self, index: usize, seed: u64) {
        let disk = &self.disks[index];
        let bytes = disk.platter.lock().unwrap().after_crash(seed);
        disk.model.check_store(&bytes, true);
        self.figures.crashes += 1;
    }

    /// Lets everything happen that would happen by itself while nobody asks for more, except that
    /// the lazy writer is waited for only if `lazily`.
    pub(crate) fn rest(&mut self, lazily: bool) {
        for _ in 0..20_000 {
            let mut moved = false;
            for disk in 0..self.disks.len() {
                moved |= self.poll(disk) + self.reap(disk) > 0;
            }
            for client in 0..self.clients.len() {
                while self.clients[client].is_some() && self.deliver(client) {
                    moved = true;
                }
            }
            if moved {
                continue;
            }
            let times = self.disks.iter().filter_map(|disk| {
                let lazy = disk.next_poll.filter(|_| lazily);
                lazy.into_iter().chain(disk.store.next_event()).min()
            });
            if let Some(next) = times.min().filter(|&next| next > self.now) {
                self.now = next;
                continue;
            }
            if self.disks.iter().any(|disk| disk.store.in_flight() > 0) {
                continue;
            }
            return;
        }
        panic!("the world does not come to rest\n{}", self.describe());
    }

    /// Asserts that every frame can be had: nobody holds a pin.
    pub(crate) fn check_no_pins(&self) {
        let frames = self.cache.frames();
        for frame in 0..frames.count() {
            let own = frames.try_own(frame).unwrap_or_else(|| panic!("frame {frame} is held"));
            frames.disown(own);
        }
    }

    /// Who waits, and for what there may be no room.
    fn describe(&self) -> String {
        let clients = self.clients.iter().flatten();
        let waiting = clients.flat_map(|client| {
            client.requests.iter().map(|request| {
                let Request { token, bytes, stalled, .. } = request;
                format!("request {token} of volume {}: {bytes:?}, stalled {stalled}", client.disk)
            })
        });
        let gauges = self.disks.iter().map(|disk| {
            let blocks = |gauge| self.cache.gauge(&disk.volume, gauge) / BLOCK_BYTES_U64;
            format!(
                "{}: {} resident, {} dirty, {} writing, {} free, of {}",
                disk.volume.name(),
                blocks(Gauge::Resident),
                blocks(Gauge::Dirty),
                blocks(Gauge::Writing),
                blocks(Gauge::Free),
                blocks(Gauge::Memory)
            )
        });
        gauges.chain(waiting).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn is_failing(&self, disk: usize) -> bool {
        self.cache.gauge(&self.disks[disk].volume, Gauge::Failing) > 0
    }
}
