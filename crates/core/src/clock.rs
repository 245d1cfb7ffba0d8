//! Time comes in as an argument: nanoseconds since an origin that the clock chooses.
//!
//! The cache never asks for the time; whoever calls it says what time it is. That is what makes a
//! run on a virtual clock the same run, byte for byte, every time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since the clock's origin.
pub type Nanos = u64;

/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the origin; never goes backwards.
    fn now(&self) -> Nanos;
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now: AtomicU64,
}

impl VirtualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        VirtualClock { now: AtomicU64::new(now) }
    }

    /// Moves the clock to `to`, or leaves it where it is if that lies in the past.
    pub fn advance_to(&self, to: Nanos) {
        self.now.fetch_max(to, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.now.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_never_goes_back() {
        let clock = VirtualClock::at(5);
        assert_eq!(clock.now(), 5);
        clock.advance_to(9);
        assert_eq!(clock.now(), 9);
        clock.advance_to(7);
        assert_eq!(clock.now(), 9, "a clock never goes back");
    }
}
