//! The tunables of a volume that serves: each can be changed at any moment, and is read as it is
//! then. No two of them are read as one.

use super::{TUNABLES, Tunable, TunableError, Tunables, check, share_of};
use crate::clock::{MILLISECOND, Nanos};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Tunables that change while others read them.
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

    /// All values as they are now.
    pub(crate) fn snapshot(&self) -> Tunables {
        let value = |i: usize| self.values[i].load(Ordering::Relaxed);
        Tunables { values: std::array::from_fn(value) }
    }

    /// The value in the tunable's own unit.
    pub(crate) fn get(&self, tunable: Tunable) -> u64 {
        self.values[tunable as usize].load(Ordering::Relaxed)
    }

    /// A tunable in milliseconds, as nanoseconds.
    pub(crate) fn nanos(&self, tunable: Tunable) -> Nanos {
        self.get(tunable) * MILLISECOND
    }

    /// The share of `whole` that a tunable in per mille names.
    pub(crate) fn share(&self, tunable: Tunable, whole: u64) -> u64 {
        share_of(whole, self.get(tunable))
    }
}
