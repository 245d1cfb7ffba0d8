//! The lazy writer: its triggers, the pages that it writes, and the throttling of writers.
//!
//! It depends only on the time and the state; the driver of the volume's store calls it.

mod pace;
mod trigger;

pub(crate) use pace::Pace;
pub(crate) use trigger::{Decision, LazyState, Trigger, decide};

use crate::clock::Nanos;

/// Pages to write in disk order. Each is named by a block of it, since the page size may change
/// before the write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Block numbers in descending order: the next one is last.
    blocks: Vec<u64>,
}

impl Batch {
    /// Returns a batch of `blocks`, which may be in any order.
    pub(crate) fn sorted(mut blocks: Vec<u64>) -> Self {
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        blocks.dedup();
        Batch { blocks }
    }

    pub(crate) fn next(&mut self) -> Option<u64> {
        self.blocks.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
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
    /// Until then the lazy writer pauses in favour of client reads.
    pub(crate) paused_until: Nanos,
    /// Earliest time of the next attempt after failed writes, and the delay after the next failure.
    pub(crate) retry_at: Nanos,
    pub(crate) retry_delay: Nanos,
    pub(crate) pace: Pace,
    /// Time of the first write to the store since its last flush.
    pub(crate) unflushed_since: Option<Nanos>,
}
