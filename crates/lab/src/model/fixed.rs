//! A store whose operations all take the same time and never wait for each other.

use super::{Access, Model};
use larder_core::clock::Nanos;

/// Operations in service at a time: more than a cache ever has under way.
const PARALLEL: usize = 1024;

/// Every operation takes as long as the other, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub Nanos);

impl Model for Fixed {
    fn parallel(&self) -> usize {
        PARALLEL
    }

    fn pick(&self, _now: Nanos, _waiting: &[Access]) -> usize {
        0
    }

    fn serve(&mut self, now: Nanos, _access: &Access) -> Nanos {
        now + self.0
    }
}
