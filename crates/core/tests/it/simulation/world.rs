//! A world with one cache, its stores and its clients. A single thread performs all actions in the
//! order of the calls.

use super::broken::{Lie, LyingStore};
use super::client::{Client, HeldRead};
use super::model::{Model, Outcome, bytes_of};
use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::completion::NoWaker;
use larder_core::counters::{Counter, Recorder};
use larder_core::frames::PlainFrames;
use larder_core::mapping::Access;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::request::{
    self, Event, ReadRequest, Reply, RequestOp, Session, SessionLimit, Submitted,
};
use larder_core::settings::SettingError;
use larder_core::store::{
    CrashDisk, CrashStore, DelayStore, FaultPlan, FaultyStore, SparseBytes, Store, StoreError,
};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::{Volume, VolumeOptions};
use larder_core::write_order::GroupId;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The last operations of a world, readable after it panicked.
pub(crate) type Log = Arc<Mutex<VecDeque<String>>>;
const LOG_LINES: usize = 60;

/// The parameters of a world.
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

/// Statistics of worlds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Random steps: a request, a change, store activity, a completion, a crash and others.
    pub(crate) steps: u64,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) store_ops: u64,
    /// Blocks that were read ahead.
    pub(crate) ahead: u64,
    /// Accepted and refused changes while serving.
    pub(crate) changes: u64,
    pub(crate) refused: u64,
    /// Removed volumes.
    pub(crate) removed: u64,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Read(Range<u64>),
    Write { bytes: Range<u64>, fua: bool },
    Flush,
    FlushRange { blocks: Range<u64>, stable: bool },
    Zero { bytes: Range<u64>, keep_allocated: bool },
    Discard { blocks: Range<u64> },
    Map { bytes: Range<u64>, access: Access },
}

/// The expected result of a request, checked at its completion.
pub(crate) enum Kind {
    Read { allowed: Vec<Vec<super::model::Content>> },
    Write { fua: bool },
    Flush,
    FlushRange { stable: bool },
    Zero,
    Discard,
    Map { access: Access, allowed: Vec<Vec<super::model::Content>> },
    Unpin,
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Read { .. } => "read",
            Kind::Write { .. } => "write",
            Kind::Flush => "flush",
            Kind::FlushRange { .. } => "flush of a range",
            Kind::Zero => "zeroing",
            Kind::Discard => "discard",
            Kind::Map { .. } => "map",
            Kind::Unpin => "unpin",
        }
    }
}

/// A request in flight.
pub(crate) struct Request {
    pub(crate) token: u64,
    pub(crate) bytes: Range<u64>,
    pub(crate) kind: Kind,
    /// The event at which it was submitted, and the modes of the volume at that time.
    pub(crate) event: u64,
    pub(crate) modes: (WriteMode, FlushMode),
}

/// A volume and its store.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
pub(crate) struct Disk {
    pub(crate) volume: Arc<Volume<PlainFrames>>,
    pub(crate) store: Box<dyn Store<PlainFrames>>,
    pub(crate) media: Arc<Mutex<CrashDisk>>,
    pub(crate) plan: FaultPlan,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) model: Model,
    pub(crate) next_poll: Option<Nanos>,
    /// The last event at which reads were failing.
    pub(crate) reads_failed_at: u64,
    pub(crate) reads_failing: bool,
    /// Reads that the store failed, with their errors.
    pub(crate) read_errors: Vec<(Range<u64>, StoreError)>,
    /// True if write or flush faults were ever injected.
    pub(crate) writes_failed: bool,
    /// True if a flush of the whole volume has failed.
    pub(crate) flush_failed: bool,
    /// Ranges whose discard or zeroing continues although its client has closed its session.
    pub(crate) orphans: Vec<Range<u64>>,
    /// The largest page size that it ever had.
    pub(crate) page_bytes_max: u64,
    /// True if the volume has been removed.
    pub(crate) is_removed: bool,
}

impl Disk {
    pub(crate) fn length(&self) -> u64 {
        self.volume.geometry().length
    }

    /// Returns true if the store has failed, with this error, a read of a page that `bytes`
    /// overlap.
    pub(crate) fn has_failed(&self, bytes: &Range<u64>, error: &StoreError) -> bool {
        let page = self.page_bytes_max;
        let pages = bytes.start / page * page..bytes.end.div_ceil(page) * page;
        self.read_errors.iter().any(|(range, known_error)| {
            known_error == error && range.start < pages.end && pages.start < range.end
        })
    }
}

/// One cache, its stores and its clients.
pub(crate) struct World {
    pub(crate) cache: Cache<PlainFrames>,
    /// The number of frames at the start.
    pub(crate) frames: u32,
    pub(crate) disks: Vec<Disk>,
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) now: Nanos,
    pub(crate) depth: usize,
    /// The delay of the stores: all alike, since time advances only when no store has work.
    delay: Option<Nanos>,
    pub(crate) figures: Figures,
    pub(crate) log: Log,
    /// The group of the next writes.
    pub(crate) group: Option<GroupId>,
    /// The tokens of failed requests.
    pub(crate) failed: Vec<u64>,
    tokens: u64,
}

fn disk(
    cache: &Cache<PlainFrames>,
    options: &VolumeOptions,
    (seed, delay, lie): (u64, Option<Nanos>, Lie),
) -> Result<Disk, SettingError> {
    let geometry = options.geometry;
    let mut content = SparseBytes::default();
    content.write(0, &bytes_of(0, 0..geometry.length));
    let crash = CrashStore::new(geometry, content, seed);
    let media = crash.disk();
    let plan = FaultPlan::default();
    let store: Box<dyn Store<PlainFrames>> = match (lie, delay) {
        (Lie::Nothing, None) => Box::new(FaultyStore::new(crash, plan.clone())),
        (Lie::Nothing, Some(delay)) => {
            Box::new(FaultyStore::new(DelayStore::new(crash, delay), plan.clone()))
        }
        (lie, _) => Box::new(LyingStore::new(crash, lie)),
    };
    let volume = cache.try_add_volume(options.clone(), Box::new(NoWaker))?;
    Ok(Disk {
        recorder: cache.recorder(&volume),
        volume,
        store,
        media,
        plan,
        model: Model::new(geometry.length),
        next_poll: None,
        reads_failed_at: 0,
        reads_failing: false,
        read_errors: Vec::new(),
        writes_failed: false,
        flush_failed: false,
        orphans: Vec::new(),
        page_bytes_max: u64::from(options.page_blocks) * BLOCK_BYTES_U64,
        is_removed: false,
    })
}

impl World {
    pub(crate) fn new(setup: &Setup, log: Log) -> Self {
        let frames = PlainFrames::new(setup.frames * 2);
        let cache = Cache::with_memory(frames, setup.frames, setup.shards);
        let make = |options| disk(&cache, options, (setup.seed, setup.delay, setup.lie)).unwrap();
        let disks = setup.volumes.iter().map(make).collect();
        World {
            cache,
            frames: setup.frames,
            disks,
            clients: Vec::new(),
            now: MILLISECOND,
            depth: setup.depth,
            delay: setup.delay,
            figures: Figures::default(),
            log,
            group: None,
            failed: Vec::new(),
            tokens: 0,
        }
    }

    /// Adds a volume while the others are in service.
    pub(crate) fn add_disk(
        &mut self,
        options: &VolumeOptions,
        seed: u64,
    ) -> Result<(), SettingError> {
        self.disks.push(disk(&self.cache, options, (seed, self.delay, Lie::Nothing))?);
        Ok(())
    }

    /// Replaces a removed volume with a new one.
    pub(crate) fn replace_disk(&mut self, index: usize, options: &VolumeOptions, seed: u64) {
        let removed = &self.disks[index];
        assert!(removed.is_removed && removed.store.in_flight() == 0, "its store is in use");
        self.figures.ahead += removed.volume.totals().get(Counter::ReadAheadBlocks);
        let added = disk(&self.cache, options, (seed, self.delay, Lie::Nothing));
        self.disks[index] = added.unwrap();
        self.log_event(|| format!("volume {index} is new"));
    }

    /// Returns the indices of the volumes that are not removed.
    pub(crate) fn present_disks(&self) -> Vec<usize> {
        (0..self.disks.len()).filter(|&disk| !self.disks[disk].is_removed).collect()
    }

    pub(crate) fn log_event(&self, line: impl FnOnce() -> String) {
        let mut log = self.log.lock().unwrap();
        if log.len() == LOG_LINES {
            log.pop_front();
        }
        log.push_back(format!("{:>9} us: {}", self.now / 1000, line()));
    }

    pub(crate) fn open(&mut self, disk: usize) -> usize {
        let limit = SessionLimit::Own(u64::MAX);
        let volume = &self.disks[disk].volume;
        let session = Session::open(&self.cache, volume, Box::new(NoWaker), limit).unwrap();
        let client = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if client == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[client] = Some(Client::new(session, disk));
        self.log_event(|| format!("client {client} opens volume {disk}"));
        client
    }

    /// Closes a session together with its requests in flight.
    pub(crate) fn close(&mut self, index: usize) {
        let mut client = self.clients[index].take().unwrap();
        self.log_event(|| format!("client {index} leaves {} requests", client.requests.len()));
        while !client.held.is_empty() {
            client.release(&self.cache, self.now);
        }
        let Client { session, disk, requests, mapped, .. } = client;
        let mut left = session.close(&self.cache);
        let mut expected: Vec<_> = requests.iter().map(|request| request.token).collect();
        left.sort_unstable();
        expected.sort_unstable();
        assert_eq!(left, expected, "requests without a reply");
        let disk = &mut self.disks[disk];
        for Request { kind, bytes, .. } in requests {
            match kind {
                // Unlike a write, they continue after the session is closed.
                Kind::Zero | Kind::Discard => disk.orphans.push(bytes),
                Kind::Write { .. } | Kind::Unpin => disk.model.end(&bytes, Outcome::Unknown),
                Kind::Read { .. } | Kind::Flush | Kind::FlushRange { .. } | Kind::Map { .. } => {}
            }
        }
        for mut mapping in mapped {
            self.cache.unmap(&disk.volume, &mut mapping);
        }
    }

    /// Returns the token of the request that was submitted last; it determines the content of a
    /// write.
    pub(crate) fn last_token(&self) -> u64 {
        self.tokens
    }

    /// Returns the token of the next request.
    pub(crate) fn next_token(&mut self) -> u64 {
        self.tokens += 1;
        self.figures.requests += 1;
        self.tokens
    }

    /// Submits a request.
    pub(crate) fn submit(&mut self, client: usize, action: Action) {
        let token = self.next_token();
        self.log_event(|| format!("client {client} request {token}: {action:?}"));
        let index = self.clients[client].as_ref().unwrap().disk;
        let disk = &mut self.disks[index];
        let length = disk.length();
        let whole = |blocks: &Range<u64>| {
            blocks.start * BLOCK_BYTES_U64..(blocks.end * BLOCK_BYTES_U64).min(length)
        };
        let (mut data, mut fua) = (Vec::new(), false);
        let (op, bytes, kind) = match action {
            Action::Read(bytes) => {
                let allowed = disk.model.readable(&bytes);
                (RequestOp::Read, bytes, Kind::Read { allowed })
            }
            Action::Write { bytes, fua: is_stable } => {
                (data, fua) = (bytes_of(token, bytes.clone()), is_stable);
                (RequestOp::Write, bytes, Kind::Write { fua })
            }
            Action::Flush => (RequestOp::Flush, 0..0, Kind::Flush),
            Action::FlushRange { blocks, stable } => {
                let op = RequestOp::FlushRange { durable: stable };
                (op, whole(&blocks), Kind::FlushRange { stable })
            }
            Action::Zero { bytes, keep_allocated } => {
                (RequestOp::Zero { keep_allocated }, bytes, Kind::Zero)
            }
            Action::Discard { blocks } => (RequestOp::Discard, whole(&blocks), Kind::Discard),
            Action::Map { bytes, access } => {
                let allowed = disk.model.readable(&bytes);
                (RequestOp::Map, bytes, Kind::Map { access, allowed })
            }
        };
        if matches!(kind, Kind::Write { .. } | Kind::Zero | Kind::Discard) {
            let zeros = vec![0; usize::try_from(bytes.end - bytes.start).unwrap()];
            let new = if matches!(kind, Kind::Write { .. }) { &data } else { &zeros };
            disk.model.begin(&bytes, new);
            self.allow_new_content(index, &bytes);
        }
        let request = self.request(client, token, bytes.clone(), kind);
        let (cache, now) = (&self.cache, self.now);
        let session = &mut self.clients[client].as_mut().unwrap().session;
        if let Kind::Map { access, .. } = request.kind {
            let len = u32::try_from(bytes.end - bytes.start).unwrap();
            session.map(cache, now, (bytes.start, len), access, token);
        } else {
            let group = self.group;
            let wanted = request::Request { fua, group, ..request::Request::new(op, bytes) };
            let submitted = session.submit(cache, now, wanted, &data[..], || token);
            if let Submitted::Done(done) = submitted {
                self.finish(client, request, done.data, None);
                return;
            }
        }
        self.clients[client].as_mut().unwrap().requests.push(request);
        self.take_events(client);
    }

    /// Returns the record of a request that a client submits now.
    pub(crate) fn request(
        &mut self,
        client: usize,
        token: u64,
        bytes: Range<u64>,
        kind: Kind,
    ) -> Request {
        let index = self.clients[client].as_ref().unwrap().disk;
        let disk = &mut self.disks[index];
        let modes = (disk.volume.write_mode(), disk.volume.flush_mode());
        Request { token, bytes, kind, event: disk.model.event(), modes }
    }

    /// Allows reads in flight to return the content of a change to `bytes` that begins now.
    pub(crate) fn allow_new_content(&mut self, disk: usize, bytes: &Range<u64>) {
        for client in self.clients.iter_mut().flatten().filter(|other| other.disk == disk) {
            client.allow_new_content(&self.disks[disk].model, bytes);
        }
    }

    /// Retries the stalled operations of a session.
    pub(crate) fn retry(&mut self, client: usize) {
        let (cache, now) = (&self.cache, self.now);
        self.clients[client].as_mut().unwrap().session.retry(cache, now);
        self.take_events(client);
    }

    /// Handles the events of a session. Returns true if there were any.
    pub(crate) fn take_events(&mut self, index: usize) -> bool {
        let mut handled = false;
        while let Some(event) = self.clients[index].as_mut().unwrap().session.poll_event() {
            let Event::End(Reply { context: token, data, mapping, error, .. }) = event else {
                panic!("a short read in pieces")
            };
            handled = true;
            let client = self.clients[index].as_mut().unwrap();
            let position = client.requests.iter().position(|request| request.token == token);
            let position = position.unwrap_or_else(|| panic!("request {token} is done already"));
            let request = client.requests.swap_remove(position);
            client.mapped.extend(mapping.map(|mapping| *mapping));
            self.finish(index, request, data, error);
        }
        handled
    }

    /// Completes a request: checks its result and updates the model.
    #[expect(clippy::too_many_lines, reason = "an arm for each kind of request")]
    fn finish(
        &mut self,
        client: usize,
        request: Request,
        data: Option<Box<ReadRequest<PlainFrames>>>,
        error: Option<StoreError>,
    ) {
        let Request { token, bytes, kind, event, modes } = request;
        self.figures.failed += u64::from(error.is_some());
        self.failed.extend(error.is_some().then_some(token));
        self.log_event(|| match &error {
            None => format!("request {token} is done"),
            Some(error) => format!("request {token} failed to {error}"),
        });
        let frames = self.cache.frames();
        let index = client;
        let client = self.clients[client].as_mut().unwrap();
        let disk = &mut self.disks[client.disk];
        // A page that is read in parts fails at the completion of the last part, also for requests
        // submitted in the meantime.
        let is_read_error = error.as_ref().is_some_and(|error| disk.has_failed(&bytes, error));
        let read_fault = disk.reads_failing || disk.reads_failed_at >= event || is_read_error;
        match kind {
            Kind::Read { allowed } => {
                if let Some(error) = error {
                    assert!(
                        disk.has_failed(&bytes, &error),
                        "a read of {bytes:?} failed to {error}"
                    );
                    return;
                }
                let read = data.expect("the blocks of a read");
                let mut copy = vec![0; usize::try_from(bytes.end - bytes.start).unwrap()];
                read.copy_to(frames, &mut copy);
                Model::check_read(&bytes, &copy, &allowed);
                client.held.push(HeldRead { read, copy });
            }
            Kind::Write { fua } => {
                let refused = modes.0 == WriteMode::ReadOnly;
                let may_fail = disk.writes_failed || read_fault || refused;
                assert!(error.is_none() || may_fail, "a write failed without a fault: {error:?}");
                if error.is_some() && fua && !is_read_error {
                    // Its flush reports earlier errors, too.
                    client.has_unreported_failure = false;
                }
                let outcome = match error {
                    Some(_) if refused => Outcome::Refused,
                    Some(_) => Outcome::Unknown,
                    None if fua && modes.1 == FlushMode::Keep => Outcome::Stable,
                    None => Outcome::Done,
                };
                disk.model.end(&bytes, outcome);
            }
            Kind::Flush => match error {
                Some(error) => {
                    assert!(disk.writes_failed, "a flush failed without a fault: {error}");
                    client.has_unreported_failure = false;
                }
                None if modes.1 == FlushMode::Keep => {
                    assert!(!disk.flush_failed, "a flush succeeded after a failed one");
                    assert!(
                        !client.has_unreported_failure,
                        "no reply reported a failed write to client {index}"
                    );
                    disk.model.flushed(event);
                }
                None => {}
            },
            Kind::FlushRange { stable } => match error {
                // It reports only errors in its range.
                Some(error) => {
                    assert!(disk.writes_failed, "a flush failed without a fault: {error}");
                }
                None if stable && modes.1 == FlushMode::Keep => {
                    disk.model.range_flushed(&bytes, event);
                }
                None => {}
            },
            Kind::Map { access, allowed } => {
                super::mapped::check_mapping(disk, client, frames, access, (bytes, allowed, error));
            }
            Kind::Unpin => {
                let may_fail = disk.writes_failed || read_fault;
                assert!(error.is_none() || may_fail, "an unpin failed: {error:?}");
                let failed = error.is_some();
                disk.model.end(&bytes, if failed { Outcome::Unknown } else { Outcome::Done });
            }
            Kind::Zero => {
                let is_read_only = modes.0 == WriteMode::ReadOnly;
                let may_fail = disk.writes_failed || read_fault || is_read_only;
                assert!(error.is_none() || may_fail, "a zeroing failed: {error:?}");
                let failed = error.is_some();
                disk.model.end(&bytes, if failed { Outcome::Unknown } else { Outcome::Done });
            }
            Kind::Discard => {
                assert!(error.is_none() || disk.writes_failed, "a discard failed: {error:?}");
                disk.model.end(&bytes, Outcome::Unknown);
            }
        }
    }
}
