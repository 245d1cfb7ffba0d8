//! Interfaces: how a caller gets at what is cached. Each has counters of its own, calls and hits,
//! since one ratio over all of them misleads: a copy is counted per call whatever its size, and who
//! maps looks at the same page again without a call.

use super::{Counter, Recorder};

/// What a read is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Interface {
    /// The bytes are copied to the caller.
    #[default]
    Copy,
    /// The caller looks at the bytes in place.
    Map,
    /// The caller maps the bytes to change them.
    Pin,
    /// The frames are handed to a socket or a store: no copy at all.
    Gather,
}

impl Interface {
    /// All of them.
    pub const ALL: [Interface; 4] =
        [Interface::Copy, Interface::Map, Interface::Pin, Interface::Gather];

    /// The counters of its calls, and of those that were answered without the store.
    #[must_use]
    pub fn counters(self) -> (Counter, Counter) {
        match self {
            Interface::Copy => (Counter::CopyReads, Counter::CopyReadHits),
            Interface::Map => (Counter::MapReads, Counter::MapReadHits),
            Interface::Pin => (Counter::PinReads, Counter::PinReadHits),
            Interface::Gather => (Counter::GatherReads, Counter::GatherReadHits),
        }
    }

    /// Counts a call; whether it was a hit.
    pub(crate) fn count(self, recorder: &Recorder, hit: bool) {
        let (calls, hits) = self.counters();
        recorder.add(calls, 1);
        recorder.add(hits, u64::from(hit));
    }
}
