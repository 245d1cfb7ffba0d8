//! The lazy writer: when it runs, what it writes, and how it paces those who write.
//!
//! It is a function of the time and the state, called by whoever drives the volume's store.

mod pace;
mod trigger;

pub(crate) use pace::Pace;
pub(crate) use trigger::{Decision, LazyState, Trigger, decide};

use crate::clock::Nanos;

/// Pages to be written, in disk order, each named by a block of it: which page that is may change
/// until then.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Blocks, descending: the next one is last.
    blocks: Vec<u64>,
}

impl Batch {
    /// Blocks in any order become a batch.
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

/// What the lazy writer of one volume remembers.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// What it is writing, and why.
    pub(crate) lazy: Batch,
    pub(crate) trigger: Option<Trigger>,
    /// What flushes wait for.
    pub(crate) forced: Batch,
    /// Whether a series of bursts goes on until the target.
    pub(crate) bulk: bool,
    /// Backing off from clients until then.
    pub(crate) paused_until: Nanos,
    /// After failed writes: not before then, and how long the next wait is.
    pub(crate) retry_at: Nanos,
    pub(crate) retry_delay: Nanos,
    pub(crate) pace: Pace,
    /// When the store first wrote something that was not flushed since.
    pub(crate) unflushed_since: Option<Nanos>,
}
