//! A store of two: one range of the bytes, a log, has disks of its own.

use crate::model::ArrayStore;
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp};
use std::ops::Range;

/// Two stores, to which requests go by their first byte.
pub(super) struct SplitStore<'a> {
    /// The store of the range.
    pub(super) log: &'a mut ArrayStore,
    /// Bytes of the log; no request crosses its ends.
    pub(super) range: Range<u64>,
    /// The store of the bytes before and after the range, without a gap.
    pub(super) rest: &'a mut ArrayStore,
}

impl Store<NoFrames> for SplitStore<'_> {
    fn geometry(&self) -> Geometry {
        let rest = self.rest.geometry();
        Geometry { length: rest.length + self.log.geometry().length, ..rest }
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        let Range { start, end } = self.range;
        let offset = op.offset;
        if offset < start {
            self.rest.submit(now, frames, op);
        } else if offset < end {
            self.log.submit(now, frames, StoreOp { offset: offset - start, ..op });
        } else {
            self.rest.submit(now, frames, StoreOp { offset: offset - (end - start), ..op });
        }
    }

    fn reap(&mut self, now: Nanos, frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        self.log.reap(now, frames, done);
        self.rest.reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        self.log.in_flight() + Store::<NoFrames>::in_flight(self.rest)
    }

    fn next_event(&self) -> Option<Nanos> {
        let (log, rest) = (self.log.next_event(), self.rest.next_event());
        log.into_iter().chain(rest).min()
    }
}
