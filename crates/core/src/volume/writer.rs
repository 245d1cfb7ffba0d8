//! The state of the lazy writer of a volume; `cache/writeback.rs` is what it does. A poll holds its
//! lock.

use super::pace::Pace;
use crate::clock::Nanos;
use crate::queue::Batch;

/// The trigger of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Too many blocks are dirty.
    Threshold,
    /// A page has been dirty for too long.
    Age,
    /// The volume is idle.
    Idle,
}

/// State of the writeback of one volume.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The pages of the current run of the lazy writer, and its trigger.
    pub(crate) lazy: Batch,
    pub(crate) trigger: Option<Trigger>,
    /// Pages that flushes wait for.
    pub(crate) forced: Batch,
    /// True while a series of bursts continues until the target.
    pub(crate) bulk: bool,
    /// Until then the lazy writer pauses in favor of client reads.
    pub(crate) paused_until: Nanos,
    /// Earliest time of the next attempt after failed writes, and the delay after the next failure.
    pub(crate) retry_at: Nanos,
    pub(crate) retry_delay: Nanos,
    pub(crate) pace: Pace,
    /// Time of the first write to the store since its last flush.
    pub(crate) unflushed_since: Option<Nanos>,
}
