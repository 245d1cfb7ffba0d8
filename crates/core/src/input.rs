//! Inputs of the cache and of its request engine, in the order in which they take effect.
//!
//! A cache that logs its inputs processes one at a time, under one lock. So the log has a total
//! order, and a cache without memory that gets the same inputs has equal counters. Front ends do
//! nothing for this: the calls log themselves. The lock makes serving slower; a cache without a log
//! pays one comparison for each call.

use crate::cache::ShareMode;
use crate::clock::Nanos;
use crate::hint::Hint;
use crate::mode::{FlushMode, WriteMode};
use crate::policy::PolicyKind;
use crate::request::Request;
use crate::store::StoreError;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::volume::VolumeOptions;
use std::ops::Range;

/// A call that changes the state of a cache. Volumes have the number that the cache gave them, and
/// sessions and reads are numbered as they are opened and handed out. Times are in nanoseconds of
/// the clock that the cache is given, offsets and lengths in bytes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(missing_docs, reason = "the fields are the parameters of the call")]
pub enum Input {
    /// The first input: the cache is made, with `frames` of `frames_max` frames in service.
    Cache { frames: u32, frames_max: u32, shards: usize },
    /// A volume is added.
    AddVolume { options: VolumeOptions },
    /// A volume is closed.
    CloseVolume { volume: u16 },
    /// A volume is removed.
    RemoveVolume { volume: u16, now: Nanos },
    /// A setting of a volume is changed.
    Set { volume: u16, setting: Setting },
    /// The memory is changed.
    Memory { frames: u32 },
    /// The way in which volumes share the memory is changed.
    Share { mode: ShareMode },
    /// Clean pages are dropped.
    DropClean { volume: u16, now: Nanos },
    /// A range is pinned (`pin`) or unpinned.
    PinRange { volume: u16, bytes: Range<u64>, pin: bool, now: Nanos },
    /// Blocks are to be read while there is free memory.
    Warm { volume: u16, blocks: Vec<Range<u64>> },
    /// The hit-ratio curve or the list of resident blocks is queried, which passes the hits that
    /// lanes have recorded to the policies.
    Query { volume: u16, query: Query, now: Nanos },
    /// The driver of a store polls for up to `depth` operations.
    Poll { volume: u16, now: Nanos, depth: usize },
    /// A store has completed an operation.
    Complete {
        volume: u16,
        now: Nanos,
        tag: u64,
        error: Option<StoreError>,
        started_at: Nanos,
        finished_at: Nanos,
    },
    /// The driver of a store ends.
    Abandon { volume: u16 },
    /// A step of the work that changes of memory and bounds leave behind.
    Tend { now: Nanos },
    /// A session is opened.
    Open { session: u32, volume: u16, limit: LoggedLimit },
    /// A session is closed.
    Close { session: u32 },
    /// A request with a payload of `payload` bytes is submitted.
    Submit { session: u32, now: Nanos, request: Request, payload: usize },
    /// A request of several parts begins.
    Begin { session: u32, now: Nanos, request: Request },
    /// One part of a write.
    Push { session: u32, now: Nanos, id: usize, offset: u64, payload: usize },
    /// A flush of a range as one part of a request.
    PushFlush { session: u32, now: Nanos, id: usize, bytes: Range<u64> },
    /// A request of several parts ends.
    Finish { session: u32, now: Nanos, id: usize },
    /// Completions are processed.
    Advance { session: u32, now: Nanos },
    /// Operations that found no room are retried.
    Retry { session: u32, now: Nanos },
    /// An event is polled.
    PollEvent { session: u32 },
    /// The blocks of a read are given back.
    Release { session: u32, now: Nanos, read: u64 },
    /// The buffer of a read is given back, and its pins have been moved out.
    Recycle { session: u32, read: u64 },
    /// The oldest of the pins that were moved out are released.
    ReleasePins { session: u32, now: Nanos, pins: usize },
    /// The leases of a session change without a request.
    Lease { session: u32, lease: LeaseChange },
    /// A call that cannot be replayed: the log is of no use from here on.
    Unsupported { call: String },
}

/// A setting of a volume that is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(missing_docs, reason = "the fields are the parameters of the call")]
pub enum Setting {
    WriteMode(WriteMode),
    FlushMode(FlushMode),
    Tunable {
        name: String,
        value: u64,
    },
    PolicyAuto(bool),
    Policy {
        kind: PolicyKind,
        now: Nanos,
    },
    Hint(Hint),
    PageBlocks(u32),
    Bounds {
        min_frames: u32,
        max_frames: u32,
    },
    Frozen(bool),
    /// The volume is being stopped; false if the stop is cancelled.
    Stopping(bool),
}

/// A query of the state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(missing_docs, reason = "the fields are the parameters of the call")]
pub enum Query {
    Curve,
    /// Resident blocks of at most this many pages.
    Residents(usize),
}

/// A change of the memory that a session leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LeaseChange {
    /// For a read of this many bytes.
    Read(u64),
    /// For a piece of a payload of up to this many bytes, which may have to wait.
    Payload(u32),
    /// For a receive buffer of this many bytes.
    Buffer(u64),
    /// Memory that the session does not need is given back.
    Return,
}

/// Limit on the memory that the requests of a session hold, see [`crate::request::SessionLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LoggedLimit {
    /// This many bytes for the session alone.
    Own(u64),
    /// A share of a budget for this many sessions.
    Shared(u64),
}

/// The destination of a log. Called with the lock of the log held, in the middle of serving.
pub trait InputSink: Send {
    /// Adds an input. An implementation that cannot write it keeps the error, and ignores the
    /// inputs that follow.
    fn add(&mut self, input: Input);
}

struct LogState {
    to: Box<dyn InputSink>,
    sessions: u32,
}

/// The log of a cache.
pub(crate) struct InputLog(Mutex<LogState>);

/// The locked log of a cache. Calls that change the cache wait until it is dropped.
pub struct LogGuard<'a>(MutexGuard<'a, LogState>);

impl InputLog {
    pub(crate) fn new(to: Box<dyn InputSink>) -> Self {
        InputLog(Mutex::new(LogState { to, sessions: 0 }))
    }

    /// Adds an input. No other one is processed until the guard is dropped.
    #[cold]
    pub(crate) fn add(&self, input: Input) -> LogGuard<'_> {
        let mut guard = self.pause();
        guard.add(input);
        guard
    }

    /// Processes no input until the guard is dropped.
    #[cold]
    pub(crate) fn pause(&self) -> LogGuard<'_> {
        LogGuard(lock(&self.0))
    }
}

impl LogGuard<'_> {
    #[cold]
    pub(crate) fn add(&mut self, input: Input) {
        self.0.to.add(input);
    }

    /// Returns the number of the next session.
    pub(crate) fn next_session(&mut self) -> u32 {
        self.0.sessions += 1;
        self.0.sessions
    }
}

impl std::fmt::Debug for LogGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogGuard").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for InputLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputLog").finish_non_exhaustive()
    }
}
