//! Timing models of stores: the duration of each operation on simulated hardware.
//!
//! A [`Model`] handles time only: it selects the waiting operation to serve next and returns its
//! completion time. [`ModelledStore`] puts a model in front of a store that holds the data:
//! operations queue, the model serves them on the clock that the caller passes in, and when the
//! service time of an operation is over the inner store executes it. So one type serves the
//! simulator (memory behind it, virtual clock) and the live demo (a file behind it, an engine that
//! sleeps until [`next_event`]).
//!
//! Times are nanoseconds, sizes and offsets are bytes.
//!
//! [`next_event`]: larder_core::store::Store::next_event

mod capped;
mod curve;
mod disk;
mod fixed;
mod layout;
mod modelled;
mod null_store;
#[cfg(test)]
mod rig;
mod stream;

pub use capped::{CappedVolume, CappedVolumeSpec};
pub use curve::SeekCurve;
pub use disk::{Disk, DiskSpec};
pub use fixed::FixedLatency;
pub use modelled::{ModelledStore, Totals};
pub use null_store::NullStore;

use larder_core::clock::Nanos;
use larder_core::store::StoreOpKind;

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
    fn pick(&self, now: Nanos, waiting: &[Access]) -> usize;
    /// Begins service at `now` and returns the completion time; never before `now`.
    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos;
}
