//! Models of stores: how long an operation takes on hardware that is not there.
//!
//! A [`Model`] knows time only: which of the waiting operations is served next, and when it will be
//! done. [`ModelledStore`] puts it in front of a store that holds the data: operations queue, the model
//! serves them on the clock that is passed in, and when an operation's time is over the inner store
//! executes it. So one object serves the simulator (memory behind it, virtual clock) and the live
//! demo (a file behind it, an engine that sleeps until [`next_event`]).
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

pub use capped::{Capped, CappedSpec};
pub use curve::SeekCurve;
pub use disk::{Disk, DiskSpec};
pub use fixed::Fixed;
pub use modelled::{ModelledStore, Totals};
pub use null_store::VoidStore;

use larder_core::clock::Nanos;
use larder_core::store::StoreOpKind;

/// What a model is told of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What to do.
    pub kind: StoreOpKind,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When it arrived at the model, nanoseconds.
    pub arrived_at: Nanos,
}

/// The timing of a store. Called with times that never go backwards.
pub trait Model: Send {
    /// How many operations can be in service at a time; at least 1.
    fn parallel(&self) -> usize;
    /// Which of `waiting` (never empty, in order of arrival) is served next, as an index.
    fn pick(&self, now: Nanos, waiting: &[Access]) -> usize;
    /// Begins service at `now` and says when it will be done; never before `now`.
    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos;
}
