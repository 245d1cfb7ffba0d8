//! Replays a log of inputs on a cache without memory and without stores.
//!
//! The cache and its request engine are the production code. An operation that the engine gives to
//! a store is kept until the log completes it. A log is untrusted input: an input that would
//! violate a rule of the engine is refused, and the error names its line.

use super::{Counters, LogRecord, VERSION, counters};
use larder_core::cache::Cache;
use larder_core::clock::Nanos;
use larder_core::completion::NoWaker;
use larder_core::counters::Recorder;
use larder_core::frames::{Frames, NoFrames};
use larder_core::input::{Input, LeaseChange, LoggedLimit, Query, Setting};
use larder_core::request::{
    self, Budget, Event, ReadRequest, Request, RequestId, RequestOp, SessionLimit, Submitted, Then,
    ZeroPayload,
};
use larder_core::store::{StoreCompletion, StoreOp};
use larder_core::tunables::Tunables;
use larder_core::volume::{Volume, VolumeOptions};
use larder_report::lines::{LineError, Lines};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io::BufRead;
use std::ops::Range;
use std::sync::Arc;

/// Limits on the resources of a log: frames (a machine with 1 TiB of memory, for which the replay
/// takes 1 GiB), volumes, and simultaneous sessions.
const FRAMES_MAX: u32 = 1 << 28;
const SHARDS_MAX: usize = 64;
const VOLUMES_MAX: usize = 1024;
const SESSIONS_MAX: usize = 4096;
/// Maximum bytes of a part of a write; front ends add less at a time.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Times beyond this are refused: 146 years.
const TIME_MAX: Nanos = 1 << 62;

type Pin = <NoFrames as Frames>::Pin;
type Read = Box<ReadRequest<NoFrames>>;

/// A log that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] LineError),
    /// The line is not one of a log.
    #[error("line {line}, column {}: {}", error.column(), without_place(error))]
    Syntax {
        /// Counting from 1.
        line: u64,
        /// Error of the line, with its column.
        error: serde_json::Error,
    },
    /// The file does not begin as a log.
    #[error("it is no recording of inputs (larder serve --record-inputs makes one)")]
    NoLog,
    /// The input violates a rule of the engine.
    #[error("line {line}: {reason}")]
    Refused {
        /// Counting from 1.
        line: u64,
        /// Reason for the refusal.
        reason: String,
    },
    /// The log has no `End`.
    #[error(
        "the recording is incomplete: its server still runs, was killed, or could not write it \
         (stop the server with larder ctl stop, and record again if need be)"
    )]
    NoEnd,
}

/// Returns the message of an error without its position, which is relative to one line of the log.
fn without_place(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).map_or_else(|| message.clone(), str::to_owned)
}

/// The outcome of a replayed log.
#[derive(Debug)]
pub struct ReplayResult {
    /// Number of inputs.
    pub inputs: u64,
    /// Counters at the end of the log, and those of the replay, by volume. If only one of the two
    /// has a volume, the counters of the other are empty.
    pub volumes: BTreeMap<String, (Counters, Counters)>,
}

/// One counter of a volume, at the end of a log and of its replay; `None` if the volume is only in
/// the other one.
#[derive(Clone, Copy, Debug)]
pub struct ComparedCounter<'a> {
    /// Name of the volume.
    pub volume: &'a str,
    /// Name of the counter.
    pub name: &'a str,
    /// Value in the log.
    pub recorded: Option<u64>,
    /// Value in the replay.
    pub replayed: Option<u64>,
}

impl ReplayResult {
    /// Returns the counters of all volumes.
    pub fn counters(&self) -> impl Iterator<Item = ComparedCounter<'_>> {
        self.volumes.iter().flat_map(|(volume, (recorded, replayed))| {
            let names: BTreeSet<_> = recorded.keys().chain(replayed.keys()).collect();
            names.into_iter().map(move |name| ComparedCounter {
                volume,
                name,
                recorded: recorded.get(name).copied(),
                replayed: replayed.get(name).copied(),
            })
        })
    }

    /// Returns the number of counters that differ between the log and the replay.
    #[must_use]
    pub fn count_differences(&self) -> usize {
        self.counters().filter(|counter| counter.recorded != counter.replayed).count()
    }
}

/// Replays a log.
///
/// # Errors
/// If the log cannot be read, or has an input that cannot be replayed.
pub fn replay(from: impl BufRead) -> Result<ReplayResult, ReplayError> {
    let mut lines = Lines::new(from);
    let mut replayer: Option<Replayer> = None;
    let mut inputs = 0;
    while let Some((line, bytes)) = lines.next_line()? {
        let refused = |reason: String| ReplayError::Refused { line, reason };
        let no_cache = || refused("the first input must be the cache".to_owned());
        let record = match serde_json::from_slice(bytes) {
            Ok(record) => record,
            Err(_) if line == 1 => return Err(ReplayError::NoLog),
            // The last line of a killed server.
            Err(error) if error.is_eof() && lines.next_line()?.is_none() => {
                return Err(ReplayError::NoEnd);
            }
            Err(error) => return Err(ReplayError::Syntax { line, error }),
        };
        match record {
            LogRecord::LarderInputs { version } if line == 1 && version == VERSION => {}
            LogRecord::LarderInputs { version } => {
                return Err(refused(format!(
                    "version {version} of the format is not supported; this larder reads version \
                     {VERSION}"
                )));
            }
            _ if line == 1 => return Err(ReplayError::NoLog),
            LogRecord::Input(Input::Cache { frames, frames_max, shards }) if replayer.is_none() => {
                inputs += 1;
                replayer = Some(Replayer::new((frames, frames_max), shards).map_err(refused)?);
            }
            LogRecord::Input(input) => {
                inputs += 1;
                replayer.as_mut().ok_or_else(no_cache)?.apply(input).map_err(refused)?;
            }
            LogRecord::End(recorded) => {
                let mut volumes: BTreeMap<_, (Counters, Counters)> = BTreeMap::new();
                for (name, counters) in recorded {
                    volumes.entry(name).or_default().0 = counters;
                }
                for (name, counters) in replayer.ok_or_else(no_cache)?.counters() {
                    volumes.entry(name).or_default().1 = counters;
                }
                return Ok(ReplayResult { inputs, volumes });
            }
        }
    }
    Err(ReplayError::NoEnd)
}

/// A session of the log.
struct Session {
    engine: request::Session<NoFrames, ZeroPayload, ()>,
    length: u64,
    /// Reads that the engine has returned, by number.
    reads: HashMap<u64, Read>,
    read_count: u64,
    /// Pins that the log has moved out of reads.
    pins: VecDeque<Pin>,
    /// Requests to which parts can be added.
    open: HashSet<usize>,
}

/// A volume of the log that is not removed.
struct ReplayedVolume {
    volume: Arc<Volume<NoFrames>>,
    recorder: Arc<Recorder>,
    is_closed: bool,
}

/// State of a replay.
struct Replayer {
    cache: Cache<NoFrames>,
    volumes: HashMap<u16, ReplayedVolume>,
    /// Operations that the log has not completed.
    operations: HashMap<(u16, u64), StoreOp<NoFrames>>,
    sessions: HashMap<u32, Session>,
    budgets: HashMap<u64, Arc<Budget>>,
    polled: Vec<StoreOp<NoFrames>>,
}

fn check(is_allowed: bool, reason: &str) -> Result<(), String> {
    if is_allowed { Ok(()) } else { Err(reason.to_owned()) }
}

fn find_volume(
    volumes: &HashMap<u16, ReplayedVolume>,
    number: u16,
) -> Result<&ReplayedVolume, String> {
    volumes.get(&number).ok_or_else(|| format!("there is no volume {number}"))
}

impl Replayer {
    fn new((frames, frames_max): (u32, u32), shards: usize) -> Result<Self, String> {
        let is_allowed = (1..=frames_max).contains(&frames) && frames_max <= FRAMES_MAX;
        check(is_allowed, "the number of frames is out of range")?;
        let fits = shards.is_power_of_two() && shards <= SHARDS_MAX && shards <= frames as usize;
        check(fits, "the number of shards is out of range")?;
        Ok(Replayer {
            cache: Cache::with_memory(NoFrames::new(frames_max), frames, shards),
            volumes: HashMap::new(),
            operations: HashMap::new(),
            sessions: HashMap::new(),
            budgets: HashMap::new(),
            polled: Vec::new(),
        })
    }

    /// Returns the counters of each volume, by name.
    fn counters(&self) -> impl Iterator<Item = (String, Counters)> {
        let of = |replayed: &ReplayedVolume| {
            (replayed.volume.name().to_owned(), counters(&replayed.volume.totals()))
        };
        self.volumes.values().map(of)
    }

    fn volume(&self, number: u16) -> Result<Arc<Volume<NoFrames>>, String> {
        Ok(Arc::clone(&find_volume(&self.volumes, number)?.volume))
    }

    /// Gives an input to the cache. An input that the cache refuses was refused when it was logged.
    fn apply(&mut self, input: Input) -> Result<(), String> {
        check(times_of(&input).all(|time| time <= TIME_MAX), "the time is out of range")?;
        match input {
            Input::Cache { .. } => return Err("the log creates a second cache".to_owned()),
            Input::AddVolume { options } => self.add_volume(options)?,
            Input::CloseVolume { volume } => {
                let is_closed = self.cache.close_volume(&*self.volume(volume)?).is_ok();
                if let Some(replayed) = self.volumes.get_mut(&volume) {
                    replayed.is_closed |= is_closed;
                }
            }
            Input::RemoveVolume { volume, now } => {
                let replayed = find_volume(&self.volumes, volume)?;
                let has_operations = self.operations.keys().any(|&(number, _)| number == volume);
                let is_removable = replayed.is_closed
                    && !has_operations
                    && self.cache.is_at_rest(&replayed.volume);
                check(is_removable, "a volume is removed that is not closed and at rest")?;
                self.cache.remove_volume(&replayed.volume, now);
                self.volumes.remove(&volume);
            }
            Input::Set { volume, setting } => self.set(&*self.volume(volume)?, setting),
            Input::Memory { frames } => drop(self.cache.set_memory(frames)),
            Input::Share { mode } => self.cache.set_share_mode(mode),
            Input::DropClean { volume, now } => {
                self.cache.drop_clean(&*self.volume(volume)?, now);
            }
            Input::PinRange { volume, bytes, pin, now } => {
                check(bytes.start < bytes.end, "an empty range is pinned")?;
                let volume = self.volume(volume)?;
                drop(if pin {
                    self.cache.pin_range(&volume, bytes, now)
                } else {
                    self.cache.unpin_range(&volume, bytes, now)
                });
            }
            Input::Warm { volume, blocks } => self.cache.warm(&*self.volume(volume)?, blocks),
            Input::Query { volume, query, now } => {
                let volume = self.volume(volume)?;
                match query {
                    Query::Curve => drop(self.cache.curve(&volume, now)),
                    Query::Residents(limit) => drop(self.cache.residents(&volume, now, limit)),
                }
            }
            Input::Poll { volume, now, depth } => self.poll(volume, now, depth)?,
            Input::Complete { volume, now, tag, error, started_at, finished_at } => {
                let op = self.operations.remove(&(volume, tag));
                let op = op.ok_or("the store completed an operation that it was not given")?;
                let result = error.map_or(Ok(()), Err);
                self.complete(
                    volume,
                    now,
                    StoreCompletion { op, result, started_at, finished_at },
                )?;
            }
            Input::Abandon { volume } => self.cache.abandon(&*self.volume(volume)?),
            Input::Tend { now } => {
                self.cache.run_maintenance(now);
            }
            Input::Open { session, volume, limit } => self.open(session, volume, limit)?,
            Input::Close { session } => self.close(session)?,
            Input::Unsupported { call } => return Err(format!("{call} cannot be replayed")),
            input => {
                let session = session_of(&input).and_then(|n| self.sessions.get_mut(&n));
                let session = session.ok_or("the session is not open")?;
                session.apply(&self.cache, input)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self, volume: u16, now: Nanos, depth: usize) -> Result<(), String> {
        let ReplayedVolume { volume: polled, recorder, .. } = find_volume(&self.volumes, volume)?;
        self.cache.poll(polled, recorder, now, depth, &mut self.polled);
        self.operations.extend(self.polled.drain(..).map(|op| ((volume, op.tag), op)));
        Ok(())
    }

    fn complete(
        &self,
        volume: u16,
        now: Nanos,
        done: StoreCompletion<NoFrames>,
    ) -> Result<(), String> {
        let ReplayedVolume { volume, recorder, .. } = find_volume(&self.volumes, volume)?;
        self.cache.complete(volume, recorder, now, done);
        Ok(())
    }

    fn close(&mut self, session: u32) -> Result<(), String> {
        let closing = self.sessions.remove(&session);
        let closing = closing.ok_or("a session is closed that is not open")?;
        let Session { engine, reads, pins, .. } = closing;
        engine.close_and_release(&self.cache, pins.into_iter());
        for mut read in reads.into_values() {
            read.release(self.cache.frames());
        }
        Ok(())
    }

    fn add_volume(&mut self, options: VolumeOptions) -> Result<(), String> {
        check(self.volumes.len() < VOLUMES_MAX, "too many volumes")?;
        check(matches!(options.geometry.granule, 512 | 4096), "the granule is out of range")?;
        let mut tunables = Tunables::default();
        for (tunable, &value) in
            larder_core::tunables::TUNABLES.iter().zip(options.tunables.values())
        {
            tunables.set(tunable.name, value).map_err(|error| error.to_string())?;
        }
        let Ok(volume) = self.cache.try_add_volume(options, Box::new(NoWaker)) else {
            return Ok(());
        };
        let recorder = self.cache.recorder(&volume);
        let number = volume.number();
        self.volumes.insert(number, ReplayedVolume { volume, recorder, is_closed: false });
        Ok(())
    }

    fn set(&self, volume: &Volume<NoFrames>, setting: Setting) {
        let cache = &self.cache;
        match setting {
            Setting::WriteMode(mode) => drop(volume.set_write_mode(mode)),
            Setting::FlushMode(mode) => volume.set_flush_mode(mode),
            Setting::Tunable { name, value } => drop(volume.set_tunable(&name, value)),
            Setting::PolicyAuto(auto) => volume.set_policy_auto(auto),
            Setting::Policy { kind, now } => cache.set_policy(volume, kind, now),
            Setting::Hint(hint) => volume.set_hint(hint),
            Setting::PageBlocks(blocks) => drop(cache.set_page_blocks(volume, blocks)),
            Setting::Bounds { min_frames, max_frames } => {
                drop(cache.set_bounds(volume, min_frames, max_frames));
            }
            Setting::Frozen(frozen) => cache.freeze(volume, frozen),
            Setting::Stopping(true) => volume.begin_stop(),
            Setting::Stopping(false) => volume.cancel_stop(),
        }
    }

    fn open(&mut self, session: u32, volume: u16, limit: LoggedLimit) -> Result<(), String> {
        check(self.sessions.len() < SESSIONS_MAX, "too many sessions")?;
        let volume = self.volume(volume)?;
        let limit = match limit {
            LoggedLimit::Own(bytes) => SessionLimit::Own(bytes),
            LoggedLimit::Shared(sessions_max) => {
                let sessions = usize::try_from(sessions_max).unwrap_or(usize::MAX);
                let budget = self.budgets.entry(sessions_max);
                let budget = budget.or_insert_with(|| Arc::new(Budget::new(sessions)));
                SessionLimit::Shared(Arc::clone(budget))
            }
        };
        let Ok(engine) = request::Session::open(&self.cache, &volume, Box::new(NoWaker), limit)
        else {
            return Ok(());
        };
        let opened = Session {
            engine,
            length: volume.geometry().length,
            reads: HashMap::new(),
            read_count: 0,
            pins: VecDeque::new(),
            open: HashSet::new(),
        };
        match self.sessions.insert(session, opened) {
            Some(_) => Err(format!("session {session} is opened twice")),
            None => Ok(()),
        }
    }
}

/// Returns the times of an input.
fn times_of(input: &Input) -> impl Iterator<Item = Nanos> + use<> {
    let times = match *input {
        Input::Complete { now, started_at, finished_at, .. } => [now, started_at, finished_at],
        Input::Set { setting: Setting::Policy { now, .. }, .. }
        | Input::RemoveVolume { now, .. }
        | Input::DropClean { now, .. }
        | Input::PinRange { now, .. }
        | Input::Query { now, .. }
        | Input::Poll { now, .. }
        | Input::Tend { now }
        | Input::Submit { now, .. }
        | Input::Begin { now, .. }
        | Input::Push { now, .. }
        | Input::PushFlush { now, .. }
        | Input::Finish { now, .. }
        | Input::Advance { now, .. }
        | Input::Retry { now, .. }
        | Input::Release { now, .. }
        | Input::ReleasePins { now, .. } => [now; 3],
        _ => [0; 3],
    };
    times.into_iter()
}

/// Returns the session that an input is for.
fn session_of(input: &Input) -> Option<u32> {
    match input {
        Input::Submit { session, .. }
        | Input::Begin { session, .. }
        | Input::Push { session, .. }
        | Input::PushFlush { session, .. }
        | Input::Finish { session, .. }
        | Input::Advance { session, .. }
        | Input::Retry { session, .. }
        | Input::PollEvent { session }
        | Input::Release { session, .. }
        | Input::Recycle { session, .. }
        | Input::ReleasePins { session, .. }
        | Input::Lease { session, .. } => Some(*session),
        _ => None,
    }
}

impl Session {
    fn apply(&mut self, cache: &Cache<NoFrames>, input: Input) -> Result<(), String> {
        match input {
            Input::Submit { now, request, payload, .. } => {
                self.check_request(&request)?;
                let len = usize::try_from(request.len).ok();
                let is_write = request.op == RequestOp::Write;
                check(!is_write || len == Some(payload), "the payload has another length")?;
                check(payload <= PAYLOAD_BYTES_MAX, "the payload is too long")?;
                let submitted =
                    self.engine.submit(cache, now, request, ZeroPayload(payload), || ());
                if let Submitted::Done(done) = submitted {
                    self.keep_read(done.data);
                }
            }
            Input::Begin { now, request, .. } => {
                self.check_request(&request)?;
                self.open.insert(self.engine.begin(now, request, ()).index());
            }
            Input::Push { now, id, offset, payload, .. } => {
                let id = self.open_request(id)?;
                let is_allowed = (1..=PAYLOAD_BYTES_MAX).contains(&payload);
                check(is_allowed, "the length of the payload is out of range")?;
                self.check_bytes(offset, payload as u64)?;
                self.engine.push(cache, now, id, offset, ZeroPayload(payload));
            }
            Input::PushFlush { now, id, bytes, .. } => {
                let id = self.open_request(id)?;
                self.check_range(&bytes)?;
                self.engine.push_flush(cache, now, id, bytes);
            }
            Input::Finish { now, id, .. } => {
                let id = self.open_request(id)?;
                self.open.remove(&id.index());
                self.engine.finish(cache, now, id);
            }
            Input::Advance { now, .. } => {
                self.engine.advance(cache, now);
            }
            Input::Retry { now, .. } => self.engine.retry(cache, now),
            Input::PollEvent { .. } => match self.engine.poll_event() {
                Some(Event::Piece(_, read)) => self.keep_read(Some(read)),
                Some(Event::End(reply)) => self.keep_read(reply.data),
                None => return Err("the session has no event".to_owned()),
            },
            Input::Release { now, read, .. } => {
                let read = self.take_read(read)?;
                self.engine.release(cache, now, read);
            }
            Input::Recycle { read, .. } => {
                let mut read = self.take_read(read)?;
                self.pins.extend(read.take_pieces().map(|(pin, _)| pin));
                self.engine.recycle(read);
            }
            Input::ReleasePins { now, pins, .. } => {
                check(pins <= self.pins.len(), "more pins are released than there are")?;
                self.engine.release_pins(cache, now, self.pins.drain(..pins));
            }
            Input::Lease { lease, .. } => self.lease(cache, lease),
            input => return Err(format!("{input:?} is no input of a session")),
        }
        Ok(())
    }

    fn lease(&mut self, cache: &Cache<NoFrames>, lease: LeaseChange) {
        match lease {
            LeaseChange::Read(bytes) => drop(self.engine.grant_piece(cache, bytes)),
            LeaseChange::Payload(bytes) => drop(self.engine.may_park(cache, bytes)),
            LeaseChange::Buffer(bytes) => drop(self.engine.lease_buffer(cache, bytes)),
            LeaseChange::Return => self.engine.settle_share(cache),
        }
    }

    /// Keeps a read that the engine has returned, under its number in the log.
    fn keep_read(&mut self, read: Option<Read>) {
        if let Some(read) = read {
            self.read_count += 1;
            self.reads.insert(self.read_count, read);
        }
    }

    fn take_read(&mut self, read: u64) -> Result<Read, String> {
        self.reads.remove(&read).ok_or_else(|| format!("read {read} was not handed out"))
    }

    fn open_request(&self, id: usize) -> Result<RequestId, String> {
        check(self.open.contains(&id), "the request is not open")?;
        Ok(RequestId::of(id))
    }

    fn check_range(&self, bytes: &Range<u64>) -> Result<(), String> {
        let is_allowed = bytes.start < bytes.end && bytes.end <= self.length;
        check(is_allowed, "a range is empty or not inside the volume")
    }

    fn check_bytes(&self, offset: u64, len: u64) -> Result<(), String> {
        let end = offset.checked_add(len);
        check(end.is_some_and(|end| end <= self.length), "the range ends beyond the volume")
    }

    fn check_request(&self, request: &Request) -> Result<(), String> {
        let is_mapping = matches!(request.op, RequestOp::Map | RequestOp::Unpin);
        check(!is_mapping, "mappings cannot be replayed")?;
        check(
            u32::try_from(request.len).is_ok() || request.op != RequestOp::Read,
            "the read is 4 GiB or longer",
        )?;
        if let Then::FlushRange(bytes) = &request.then {
            self.check_range(bytes)?;
        }
        let needs_bytes = matches!(request.op, RequestOp::FlushRange { .. });
        check(request.len > 0 || !needs_bytes, "the range is empty")?;
        if let Some(bound) = &request.bound {
            check(bound.start < bound.end, "the bound of a read is empty")?;
        }
        self.check_bytes(request.offset, request.len)
    }
}
