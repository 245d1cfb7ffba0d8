//! The tunables of a volume in service: each can change at any time, and a read returns its current
//! value. Two of them cannot be read as one atomic unit.

use super::{TUNABLES, Tunable, TunableError, Tunables, check, share_of};
use crate::clock::{MILLISECOND, Nanos};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Tunables that one thread changes while others read them.
#[derive(Debug)]
pub(crate) struct LiveTunables {
    values: [AtomicU64; TUNABLES.len()],
}

impl LiveTunables {
    pub(crate) fn new(tunables: &Tunables) -> Self {
        LiveTunables { values: std::array::from_fn(|i| AtomicU64::new(tunables.values[i])) }
    }

    /// Sets a tunable by name, with the checks of [`Tunables::set`].
    pub(crate) fn set(&self, name: &str, value: u64) -> Result<(), TunableError> {
        self.values[check(name, value)?].store(value, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> Tunables {
        let value = |i: usize| self.values[i].load(Ordering::Relaxed);
        Tunables { values: std::array::from_fn(value) }
    }

    /// Returns the value in the tunable's own unit.
    #[inline]
    pub(crate) fn get(&self, tunable: Tunable) -> u64 {
        self.values[tunable as usize].load(Ordering::Relaxed)
    }

    /// Returns a tunable that is a number of operations.
    #[inline]
    pub(crate) fn count(&self, tunable: Tunable) -> usize {
        usize::try_from(self.get(tunable)).expect("a small number")
    }

    /// Returns a tunable in milliseconds, as nanoseconds.
    #[inline]
    pub(crate) fn nanos(&self, tunable: Tunable) -> Nanos {
        self.get(tunable) * MILLISECOND
    }

    /// Returns the share of `whole` given by a tunable in per mille.
    #[inline]
    pub(crate) fn share(&self, tunable: Tunable, whole: u64) -> u64 {
        share_of(whole, self.get(tunable))
    }
}
