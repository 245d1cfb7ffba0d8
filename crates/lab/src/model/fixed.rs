//! A store whose operations all take the same time and never wait for each other.

use super::{Access, Model};
use larder_core::clock::Nanos;

/// Maximum operations in service at a time: more than a cache ever has in flight.
const MAX_CONCURRENCY: usize = 1024;

/// Completes every operation after the same time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLatency(pub Nanos);

impl Model for FixedLatency {
    fn max_concurrency(&self) -> usize {
        MAX_CONCURRENCY
    }

    fn pick(&self, _now: Nanos, _waiting: &[Access]) -> usize {
        0
    }

    fn serve(&mut self, now: Nanos, _access: &Access) -> Nanos {
        now + self.0
    }
}
