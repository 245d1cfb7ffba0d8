//! Time as an argument: nanoseconds since an origin that the clock defines.
//!
//! The cache never reads a clock; each caller passes the current time. So a run on a virtual clock
//! is reproducible byte for byte.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since the clock's origin.
pub type Nanos = u64;

/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the nanoseconds since the origin. The value never decreases.
    fn now(&self) -> Nanos;
}

/// A clock that only [`VirtualClock::advance_to`] moves.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now: AtomicU64,
}

impl VirtualClock {
    /// Returns a clock that shows `now`.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        VirtualClock { now: AtomicU64::new(now) }
    }

    /// Moves the clock forward to `to`. A time in the past has no effect.
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
