//! Inputs of the cache and of its request engine, in the order in which they take effect.
//!
//! A cache that logs its inputs processes one at a time, under one lock. So the log has a total
//! order, and a cache without memory that gets the same inputs has equal counters. Front ends have
//! no part in this: each call logs itself. The lock makes serving slower; without a log each call
//! costs one comparison.

use crate::clock::Nanos;
use crate::hint::Hint;
use crate::message::Request;
use crate::mode::{FlushMode, WriteMode};
use crate::policy::PolicyKind;
use crate::settings::ShareMode;
use crate::store::StoreError;
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::volume_options::VolumeOptions;
use std::ops::Range;

/// A call that changes the state of a cache. Volumes have the number that the cache assigned to
/// them; sessions are numbered in the order of opening, and reads in the order in which the session
/// returns them. Times are nanoseconds of the clock of the caller, offsets and lengths are bytes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(missing_docs, reason = "the fields are the parameters of the call")]
pub enum Input {
    /// The first input: creation of the cache, with `frames` of `frames_max` frames in service.
    Cache { frames: u32, frames_max: u32, shards: usize },
    /// Addition of a volume.
    AddVolume { options: VolumeOptions },
    /// Closing of a volume.
    CloseVolume { volume: u16 },
    /// Removal of a volume.
    RemoveVolume { volume: u16, now: Nanos },
    /// Change of a setting of a volume.
    Set { volume: u16, setting: Setting },
    /// Change of the memory size.
    Memory { frames: u32 },
    /// Change of the mode in which volumes share the memory.
    Share { mode: ShareMode },
    /// Drop of the clean pages of a volume.
    DropClean { volume: u16, now: Nanos },
    /// Pinning (`pin`) or unpinning of a range.
    PinRange { volume: u16, bytes: Range<u64>, pin: bool, now: Nanos },
    /// Blocks to read while there is free memory.
    Warm { volume: u16, blocks: Vec<Range<u64>> },
    /// Query of the hit-ratio curve or of the resident blocks. It passes the hits that handles have
    /// recorded to the policies.
    Query { volume: u16, query: Query, now: Nanos },
    /// Poll by the driver of a store for up to `depth` operations.
    Poll { volume: u16, now: Nanos, depth: usize },
    /// Completion of an operation by a store.
    Complete {
        volume: u16,
        now: Nanos,
        tag: u64,
        error: Option<StoreError>,
        started_at: Nanos,
        finished_at: Nanos,
    },
    /// End of the driver of a store.
    Abandon { volume: u16 },
    /// One step of the maintenance that follows changes of memory and bounds.
    Tend { now: Nanos },
    /// Opening of a session.
    Open { session: u32, volume: u16, limit: LoggedLimit },
    /// Closing of a session.
    Close { session: u32 },
    /// Submission of a request with a payload of `payload` bytes.
    Submit { session: u32, now: Nanos, request: Request, payload: usize },
    /// Begin of a request of several parts.
    Begin { session: u32, now: Nanos, request: Request },
    /// One part of a write.
    Push { session: u32, now: Nanos, id: usize, offset: u64, payload: usize },
    /// A flush of a range as one part of a request.
    PushFlush { session: u32, now: Nanos, id: usize, bytes: Range<u64> },
    /// End of a request of several parts.
    Finish { session: u32, now: Nanos, id: usize },
    /// Processing of completions.
    Advance { session: u32, now: Nanos },
    /// Retry of stalled operations.
    Retry { session: u32, now: Nanos },
    /// Poll for an event.
    PollEvent { session: u32 },
    /// Release of the blocks of a read.
    Release { session: u32, now: Nanos, read: u64 },
    /// Return of the buffer of a read whose pins the front end has moved out.
    Recycle { session: u32, read: u64 },
    /// Release of the oldest of the pins that were moved out.
    ReleasePins { session: u32, now: Nanos, pins: usize },
    /// Change of the leases of a session without a request.
    Lease { session: u32, lease: LeaseChange },
    /// A call that cannot be replayed; the log is unusable from here on.
    Unsupported { call: String },
}

/// Change of a setting of a volume.
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
    /// Start of a stop of the volume; false if the stop is cancelled.
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
    /// For a piece of a payload of up to this many bytes, which may have to be parked.
    Payload(u32),
    /// For a receive buffer of this many bytes.
    Buffer(u64),
    /// Return of memory that the session does not need.
    Return,
}

/// Limit on the memory that the requests of a session hold, see [`crate::request::SessionLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LoggedLimit {
    /// This many bytes for each session.
    Own(u64),
    /// A share of a budget for this many sessions.
    Shared(u64),
}

/// The destination of a log. The cache calls it on the request path, with the lock of the log held.
pub trait InputSink: Send {
    /// Adds an input. An implementation that cannot write it keeps the error, and ignores all later
    /// inputs.
    fn add(&mut self, input: Input);
}

struct LogState {
    to: Box<dyn InputSink>,
    sessions: u32,
}

/// The log of a cache, if its inputs are logged.
#[derive(Clone, Default)]
pub(crate) struct InputLog(Option<Arc<Mutex<LogState>>>);

/// The locked log of a cache. Calls that change the cache wait until it is dropped.
pub struct LogGuard<'a>(MutexGuard<'a, LogState>);

impl InputLog {
    pub(crate) fn new(to: Box<dyn InputSink>) -> Self {
        InputLog(Some(Arc::new(Mutex::new(LogState { to, sessions: 0 }))))
    }

    /// Returns true if inputs are logged.
    pub(crate) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an input if inputs are logged. The cache processes no other input until the caller
    /// drops the guard.
    #[inline]
    pub(crate) fn add(&self, input: impl FnOnce() -> Input) -> Option<LogGuard<'_>> {
        self.0.as_ref().map(|log| locked_with(log, input()))
    }

    /// Locks the log, if there is one. The cache processes no input until the caller drops the
    /// guard.
    #[inline]
    pub(crate) fn pause(&self) -> Option<LogGuard<'_>> {
        self.0.as_ref().map(|log| LogGuard(lock(log)))
    }
}

#[cold]
fn locked_with(log: &Mutex<LogState>, input: Input) -> LogGuard<'_> {
    let mut guard = LogGuard(lock(log));
    guard.add(input);
    guard
}

impl LogGuard<'_> {
    #[cold]
    pub(crate) fn add(&mut self, input: Input) {
        self.0.to.add(input);
    }

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
