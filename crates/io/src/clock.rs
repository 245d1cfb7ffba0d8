//! The clock of the machine.

use larder_core::clock::{Clock, Nanos};
use std::time::Instant;

/// Nanoseconds since a second before it was made; never goes backwards.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that starts at one second, so that "a moment ago" is a time too.
    #[must_use]
    pub fn new() -> Self {
        MonotonicClock { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        MonotonicClock::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        let elapsed = u64::try_from(self.origin.elapsed().as_nanos()).expect("584 years");
        elapsed + larder_core::clock::SECOND
    }
}
