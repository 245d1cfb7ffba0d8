//! A store without content: what is written is gone, what is read is whatever the frame held.
//!
//! For simulations over frames that hold no bytes, where keeping content would cost the memory that
//! they save. Instant; a model in front of it says how long things take.

use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Geometry, Store, StoreDone, StoreOp};

/// Takes everything, keeps nothing.
#[derive(Debug)]
pub struct VoidStore<F: Frames> {
    geometry: Geometry,
    done: Vec<StoreDone<F>>,
}

impl<F: Frames> VoidStore<F> {
    /// A store that says it is this.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        VoidStore { geometry, done: Vec::new() }
    }
}

impl<F: Frames> Store<F> for VoidStore<F> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, _frames: &F, op: StoreOp<F>) {
        self.done.push(StoreDone { op, result: Ok(()), started_at: now, finished_at: now });
    }

    fn reap(&mut self, _now: Nanos, _frames: &F, done: &mut Vec<StoreDone<F>>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
