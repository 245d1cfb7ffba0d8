//! A world with one cache, its stores and its clients, in which everything happens in one thread
//! and in the order in which it is called.

use super::broken::{Broken, Lie};
use super::client::{Client, Held};
use super::model::{Model, Outcome, bytes_of};
use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, Nanos};
use larder_core::counters::Recorder;
use larder_core::frames::{Frames, PlainFrames};
use larder_core::group::GroupId;
use larder_core::lane::{Completion, Silent};
use larder_core::mapping::{Access, Mapping};
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::settings::SettingError;
use larder_core::store::{
    CrashDisk, CrashStore, DelayStore, FaultPlan, FaultyStore, SparseBytes, Store, StoreError,
    StoreOpKind,
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
    /// Blocks that were read ahead.
    pub(crate) ahead: u64,
    /// Changes while serving that were done, and those that were refused.
    pub(crate) changes: u64,
    pub(crate) refused: u64,
    /// Volumes that went.
    pub(crate) removed: u64,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Read(Range<u64>),
    Write { bytes: Range<u64>, fua: bool, zero: bool },
    Flush,
    FlushRange { blocks: Range<u64>, stable: bool },
    Exclude { kind: StoreOpKind, blocks: Range<u64> },
    Map { bytes: Range<u64>, access: Access },
}

/// What a request under way consists of.
pub(crate) enum Work {
    Read { assembly: Assembly<PlainFrames>, allowed: Vec<Vec<super::model::Content>> },
    Write { task: WriteTask, data: Vec<u8> },
    Flush,
    FlushRange { blocks: Range<u64>, stable: bool },
    Exclude { kind: StoreOpKind, blocks: Range<u64> },
    Map { mapping: Mapping<PlainFrames>, allowed: Vec<Vec<super::model::Content>> },
    Unpin { mapping: Mapping<PlainFrames> },
}

/// A request under way.
pub(crate) struct Request {
    pub(crate) token: u64,
    pub(crate) bytes: Range<u64>,
    pub(crate) work: Work,
    pub(crate) stalled: bool,
    /// The event at which it was submitted, and the modes of the volume then.
    pub(crate) event: u64,
    pub(crate) modes: (WriteMode, FlushMode),
}

/// One volume and what lies behind it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
pub(crate) struct Disk {
    pub(crate) volume: Arc<Volume<PlainFrames>>,
    pub(crate) store: Box<dyn Store<PlainFrames>>,
    pub(crate) platter: Arc<Mutex<CrashDisk>>,
    pub(crate) plan: FaultPlan,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) model: Model,
    pub(crate) next_poll: Option<Nanos>,
    /// The last event at which reads were failing.
    pub(crate) reads_failed_at: u64,
    pub(crate) reads_failing: bool,
    /// Reads that the store failed, and what it said.
    pub(crate) read_errors: Vec<(Range<u64>, StoreError)>,
    /// Whether writes or flushes have ever been made to fail.
    pub(crate) writes_failed: bool,
    pub(crate) flush_failed: bool,
    /// Ranges whose discard or zeroing goes on although its client has left.
    pub(crate) orphans: Vec<Range<u64>>,
    /// The largest page that it ever had.
    pub(crate) page_bytes_max: u64,
    /// Whether the volume has been removed.
    pub(crate) gone: bool,
}

impl Disk {
    pub(crate) fn length(&self) -> u64 {
        self.volume.geometry().length
    }

    /// Whether the store has failed, in this way, a read of a page that `bytes` touch.
    pub(crate) fn has_failed(&self, bytes: &Range<u64>, error: &StoreError) -> bool {
        let page = self.page_bytes_max;
        let pages = bytes.start / page * page..bytes.end.div_ceil(page) * page;
        self.read_errors.iter().any(|(range, said)| {
            said == error && range.start < pages.end && pages.start < range.end
        })
    }
}

/// One cache, its stores and its clients.
pub(crate) struct World {
    pub(crate) cache: Cache<PlainFrames>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) now: Nanos,
    pub(crate) depth: usize,
    /// How slow the stores are: all alike, since time goes on only when none has something to do.
    delay: Option<Nanos>,
    pub(crate) figures: Figures,
    pub(crate) log: Log,
    /// The group of the writes that are submitted next.
    pub(crate) group: Option<GroupId>,
    /// The tokens of requests that failed.
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
    let platter = crash.disk();
    let plan = FaultPlan::default();
    let store: Box<dyn Store<PlainFrames>> = match (lie, delay) {
        (Lie::Nothing, None) => Box::new(FaultyStore::new(crash, plan.clone())),
        (Lie::Nothing, Some(delay)) => {
            Box::new(FaultyStore::new(DelayStore::new(crash, delay), plan.clone()))
        }
        (lie, _) => Box::new(Broken::new(crash, lie)),
    };
    let volume = cache.try_add_volume(options.clone(), Box::new(Silent))?;
    Ok(Disk {
        recorder: cache.recorder(&volume),
        volume,
        store,
        platter,
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
        gone: false,
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

    /// Adds a volume while the others are served.
    pub(crate) fn add_disk(
        &mut self,
        options: &VolumeOptions,
        seed: u64,
    ) -> Result<(), SettingError> {
        self.disks.push(disk(&self.cache, options, (seed, self.delay, Lie::Nothing))?);
        Ok(())
    }

    /// The volumes that are there.
    pub(crate) fn there(&self) -> Vec<usize> {
        (0..self.disks.len()).filter(|&disk| !self.disks[disk].gone).collect()
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
        let Client { lane, disk, requests, held, mail, mapped, .. } =
            self.clients[client].take().unwrap();
        self.note(|| format!("client {client} leaves {} requests", requests.len()));
        self.cache.close_lane(lane);
        for completion in mail {
            if let Completion::Filled { pins, .. } = completion {
                for pin in pins {
                    self.cache.frames().unpin(pin);
                }
            }
        }
        for mut held in held {
            held.assembly.release(self.cache.frames());
        }
        for Request { work, bytes, stalled, .. } in requests {
            match work {
                Work::Read { mut assembly, .. } => assembly.abandon(self.cache.frames()),
                // Unlike a write it goes on by itself.
                Work::Exclude { .. } if !stalled => self.disks[disk].orphans.push(bytes),
                Work::Write { .. } | Work::Exclude { .. } => {
                    self.disks[disk].model.end(&bytes, Outcome::Unknown);
                }
                Work::Flush | Work::FlushRange { .. } => {}
                Work::Map { mut mapping, .. } => {
                    self.cache.unmap(&self.disks[disk].volume, &mut mapping);
                }
                Work::Unpin { mut mapping } => {
                    self.cache.unmap(&self.disks[disk].volume, &mut mapping);
                    self.disks[disk].model.end(&bytes, Outcome::Unknown);
                }
            }
        }
        for mut mapping in mapped {
            self.cache.unmap(&self.disks[disk].volume, &mut mapping);
        }
    }

    /// The token of the request that was submitted last; writes take their content from it.
    pub(crate) fn last_token(&self) -> u64 {
        self.tokens
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
                let mut task = WriteTask::new(token, bytes.start, len(&bytes), fua);
                if let Some(group) = self.group {
                    task = task.in_group(group);
                }
                (bytes, Work::Write { task, data })
            }
            Action::Flush => (0..0, Work::Flush),
            Action::FlushRange { blocks, stable } => {
                let end = (blocks.end * BLOCK_BYTES_U64).min(disk.length());
                let bytes = blocks.start * BLOCK_BYTES_U64..end;
                (bytes, Work::FlushRange { blocks, stable })
            }
            Action::Map { bytes, access } => {
                let mapping = Mapping::new(token, bytes.start, len(&bytes), access);
                let allowed = disk.model.readable(&bytes);
                (bytes, Work::Map { mapping, allowed })
            }
            Action::Exclude { kind, blocks } => {
                let end = (blocks.end * BLOCK_BYTES_U64).min(disk.length());
                let bytes = blocks.start * BLOCK_BYTES_U64..end;
                disk.model.begin(&bytes, &vec![0; len(&bytes) as usize]);
                (bytes, Work::Exclude { kind, blocks })
            }
        };
        if matches!(work, Work::Write { .. } | Work::Exclude { .. }) {
            self.widen(place, &bytes);
        }
        let volume = &self.disks[place].volume;
        let modes = (volume.write_mode(), volume.flush_mode());
        self.drive(client, Request { token, bytes, work, stalled: false, event, modes });
    }

    /// A change to `bytes` has begun: reads in flight may see it.
    pub(crate) fn widen(&mut self, disk: usize, bytes: &Range<u64>) {
        for client in self.clients.iter_mut().flatten().filter(|other| other.disk == disk) {
            client.widen(&self.disks[disk].model, bytes);
        }
    }

    /// Calls the cache for a request that is new, was stalled, or is to be continued.
    pub(crate) fn drive(&mut self, client: usize, mut request: Request) {
        let lane = &mut self.clients[client].as_mut().unwrap().lane;
        request.stalled = false;
        let status = match &mut request.work {
            Work::Read { assembly, .. } => self.cache.read(lane, self.now, assembly),
            Work::Write { task, data } => self.cache.write(lane, self.now, task, data),
            Work::Flush => self.cache.flush(lane, self.now, request.token),
            Work::FlushRange { blocks, stable } => {
                let (token, blocks) = (request.token, blocks.clone());
                self.cache.flush_range(lane, self.now, blocks, *stable, token)
            }
            Work::Map { mapping, .. } => self.cache.map(lane, self.now, mapping),
            Work::Unpin { mapping } => self.cache.unpin(lane, self.now, mapping),
            Work::Exclude { kind, blocks } => {
                self.cache.exclude(lane, self.now, *kind, blocks.clone(), request.token)
            }
        };
        self.settle(client, request, status);
    }

    pub(crate) fn settle(&mut self, client: usize, mut request: Request, status: Status) {
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
        let Request { token, bytes, work, event, modes, .. } = request;
        self.figures.failed += u64::from(error.is_some());
        self.failed.extend(error.is_some().then_some(token));
        self.note(|| match &error {
            None => format!("request {token} is done"),
            Some(error) => format!("request {token} failed to {error}"),
        });
        let frames = self.cache.frames();
        let client = self.clients[client].as_mut().unwrap();
        let disk = &mut self.disks[client.disk];
        // A page that is read in parts fails when the last one is done, whoever has come meanwhile.
        let read_fault = disk.reads_failing
            || disk.reads_failed_at >= event
            || error.as_ref().is_some_and(|error| disk.has_failed(&bytes, error));
        match work {
            Work::Read { assembly, allowed } => {
                if let Some(error) = error {
                    assert!(
                        disk.has_failed(&bytes, &error),
                        "a read of {bytes:?} failed to {error}"
                    );
                    return;
                }
                let mut copy = vec![0; usize::try_from(bytes.end - bytes.start).unwrap()];
                assembly.copy_to(frames, &mut copy);
                Model::check_read(&bytes, &copy, &allowed);
                client.held.push(Held { assembly, copy });
            }
            Work::Write { task, .. } => {
                let refused = modes.0 == WriteMode::ReadOnly;
                let may_fail = disk.writes_failed || read_fault || refused;
                assert!(error.is_none() || may_fail, "a write failed without a fault: {error:?}");
                let is_stable = task.fua && modes.1 == FlushMode::Keep;
                let outcome = match error {
                    Some(_) if refused => Outcome::Refused,
                    Some(_) => Outcome::Unknown,
                    None if is_stable => Outcome::Stable,
                    None => Outcome::Done,
                };
                disk.model.end(&bytes, outcome);
            }
            // Others end where their completion arrives.
            Work::Flush | Work::FlushRange { .. } => {
                assert_eq!(modes.1, FlushMode::Ignore, "promised nothing");
            }
            Work::Map { mapping, allowed } => {
                super::mapped::mapped(disk, client, frames, mapping, (bytes, allowed, error));
            }
            Work::Unpin { mut mapping } => {
                let may_fail = disk.writes_failed || read_fault;
                assert!(error.is_none() || may_fail, "an unpin failed: {error:?}");
                self.cache.unmap(&disk.volume, &mut mapping);
                let failed = error.is_some();
                disk.model.end(&bytes, if failed { Outcome::Unknown } else { Outcome::Done });
            }
            Work::Exclude { kind, .. } => {
                assert!(error.is_none() || disk.writes_failed, "{kind} failed: {error:?}");
                let is_zero = matches!(kind, StoreOpKind::Zero { .. }) && error.is_none();
                disk.model.end(&bytes, if is_zero { Outcome::Done } else { Outcome::Unknown });
            }
        }
    }
}
