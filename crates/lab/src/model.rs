//! Timing models of stores: the duration of each operation on simulated hardware.
//!
//! A [`Model`] handles time only: it selects the waiting operation to serve next and returns its
//! completion time. [`ModeledStore`] puts a model in front of a store that holds the data:
//! operations queue, the model serves them on the clock that the caller passes in, and when the
//! service time of an operation is over the inner store executes it. So one type serves the
//! simulator (memory behind it, virtual clock) and the live demo (a file behind it, an engine that
//! sleeps until [`next_event`]).
//!
//! Times are nanoseconds, sizes and offsets are bytes.
//!
//! [`next_event`]: larder_core::store::Store::next_event

mod array;
mod closed_loop;
mod curve;
mod disk;
mod latency;
mod layout;
pub mod measure;
mod modeled;
mod rated;
#[cfg(test)]
mod rig;
mod spec;
mod ssd;
mod stream;

pub use array::{ArrayLayout, ArrayLevel, ArrayStore, MemberSet};
pub use disk::{Disk, DiskSpec};
pub use latency::Latency;
pub use modeled::{ModeledStore, Totals};
pub use rated::{BurstCredit, DEPTH_MAX, DeviceRates, RateLimits, RatedDevice};
pub use spec::{
    ControllerCache, DEVICES, DeviceModel, NamedDevice, SpecSyntax, StoreModel, StoreSpec,
};
pub use ssd::{FlashTotals, Ssd, SsdSpec};

pub(crate) use closed_loop::{ClosedLoop, LoopEnd, run_loop};
use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};

/// An operation as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Kind of the operation.
    pub kind: StoreOpKind,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Time of its arrival at the model, nanoseconds.
    pub arrived_at: Nanos,
}

/// The timing of a store. The times of successive calls never decrease.
pub trait Model: Send {
    /// Returns the maximum number of operations in service at a time; at least 1.
    fn max_concurrency(&self) -> usize;
    /// Returns the index of the operation of `waiting` (never empty, in order of arrival) to serve
    /// next.
    fn pick(&self, _now: Nanos, _waiting: &[Access]) -> usize {
        0
    }
    /// Begins service at `now` and returns the completion time; never before `now`.
    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos;
}

/// A store without content, for simulations over frames that hold no bytes: it discards writes, and
/// a read leaves the frame unchanged. Every operation completes immediately; a model in front of it
/// adds latency.
#[derive(Debug)]
pub struct NullStore<F: Frames> {
    geometry: Geometry,
    done: Vec<StoreCompletion<F>>,
}

impl<F: Frames> NullStore<F> {
    /// Creates a store with this geometry.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        NullStore { geometry, done: Vec::new() }
    }
}

impl<F: Frames> Store<F> for NullStore<F> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, _frames: &F, op: StoreOp<F>) {
        self.done.push(StoreCompletion { op, result: Ok(()), started_at: now, finished_at: now });
    }

    fn reap(&mut self, _now: Nanos, _frames: &F, done: &mut Vec<StoreCompletion<F>>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
