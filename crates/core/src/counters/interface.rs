//! Read interfaces: the ways in which a caller accesses cached data. Each has separate counters of
//! calls and hits, since one ratio over all of them misleads: a copy counts once per call whatever
//! its size, and a caller that maps a page reads it again without a call.

use super::{Counter, Recorder};

/// The access method of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Interface {
    /// The cache copies the bytes to the caller.
    #[default]
    Copy,
    /// The caller reads the bytes in place.
    Map,
    /// The caller maps the bytes to change them.
    Pin,
    /// The frames are passed to a socket or a store without a copy.
    Gather,
}

impl Interface {
    /// All interfaces.
    pub const ALL: [Interface; 4] =
        [Interface::Copy, Interface::Map, Interface::Pin, Interface::Gather];

    /// Returns the counters of its calls, and of those that were served without the store.
    #[must_use]
    pub fn counters(self) -> (Counter, Counter) {
        match self {
            Interface::Copy => (Counter::CopyReads, Counter::CopyReadHits),
            Interface::Map => (Counter::MapReads, Counter::MapReadHits),
            Interface::Pin => (Counter::PinReads, Counter::PinReadHits),
            Interface::Gather => (Counter::GatherReads, Counter::GatherReadHits),
        }
    }

    /// Counts a call and, if `hit`, a hit.
    pub(crate) fn count(self, recorder: &Recorder, hit: bool) {
        let (calls, hits) = self.counters();
        recorder.add(calls, 1);
        recorder.add(hits, u64::from(hit));
    }
}
