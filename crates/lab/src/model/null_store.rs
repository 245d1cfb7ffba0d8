//! A store without content: it discards writes, and a read leaves the frame unchanged.
//!
//! It is for simulations over frames that hold no bytes, where keeping content would cost the
//! memory that they save. Every operation completes immediately; a model in front of it adds
//! latency.

use larder_core::clock::Nanos;
use larder_core::frames::Frames;
use larder_core::store::{Geometry, Store, StoreDone, StoreOp};

/// A store that accepts all operations and keeps no data.
#[derive(Debug)]
pub struct NullStore<F: Frames> {
    geometry: Geometry,
    done: Vec<StoreDone<F>>,
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
        self.done.push(StoreDone { op, result: Ok(()), started_at: now, finished_at: now });
    }

    fn reap(&mut self, _now: Nanos, _frames: &F, done: &mut Vec<StoreDone<F>>) {
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
