//! Log lines about stores that cannot be written to.

use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreError;

/// Minimum time between two lines about one store, so that a store that fails intermittently does
/// not fill the log.
const INTERVAL: Nanos = 10 * SECOND;

/// Effect of the store's errors on the writes of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WriteState {
    /// The store takes writes.
    #[default]
    Working,
    /// Some data could not be written; more is accepted.
    Failing(StoreError),
    /// The dirty limit is reached as well: new writes fail.
    Refusing(StoreError),
}

impl WriteState {
    /// Returns true if a line about `other` would say the same as one about this state, except for
    /// the offset.
    fn is_like(&self, other: &WriteState) -> bool {
        match (self, other) {
            (WriteState::Working, WriteState::Working) => true,
            (WriteState::Failing(one), WriteState::Failing(other))
            | (WriteState::Refusing(one), WriteState::Refusing(other)) => one.kind == other.kind,
            _ => false,
        }
    }
}

/// Selects the changes of the state of one store that are logged.
#[derive(Debug, Default)]
pub(super) struct WriteFailures {
    logged: WriteState,
    logged_at: Option<Nanos>,
    /// Time at which a change that came too early is checked again.
    due: Option<Nanos>,
}

impl WriteFailures {
    /// Records the state. Returns true if it differs from the last state that was logged, and must
    /// be logged now.
    pub(super) fn note_write_state(&mut self, now: Nanos, state: &WriteState) -> bool {
        self.due = None;
        if self.logged.is_like(state) {
            return false;
        }
        // The transition to refused writes is always logged immediately.
        let is_urgent =
            matches!((&self.logged, state), (WriteState::Failing(_), WriteState::Refusing(_)));
        let earliest = self.logged_at.map_or(0, |at| at + INTERVAL);
        if now < earliest && !is_urgent {
            self.due = Some(earliest);
            return false;
        }
        (self.logged, self.logged_at) = (state.clone(), Some(now));
        true
    }

    /// Returns the time at which the caller records the state again, if any.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::store::StoreErrorKind;

    fn error(kind: StoreErrorKind, place: u64) -> StoreError {
        StoreError::new(kind, format!("write 4096 bytes at {place}"))
    }

    #[test]
    fn each_change_is_logged_once_and_a_store_that_fails_now_and_then_does_not_fill_the_log() {
        let mut failures = WriteFailures::default();
        let full = |place| WriteState::Failing(error(StoreErrorKind::NoSpace, place));
        let refusing = WriteState::Refusing(error(StoreErrorKind::NoSpace, 0));
        assert!(!failures.note_write_state(0, &WriteState::Working));
        assert!(failures.note_write_state(1, &full(0)));
        assert!(!failures.note_write_state(2, &full(4096)), "another block");
        assert!(failures.note_write_state(3, &refusing), "at once");
        assert!(!failures.note_write_state(4, &WriteState::Working), "too early");
        assert_eq!(failures.due(), Some(3 + INTERVAL));
        assert!(!failures.note_write_state(5, &refusing), "it was never said to be better");
        assert_eq!(failures.due(), None);
        assert!(failures.note_write_state(3 + INTERVAL, &WriteState::Working));
        assert!(!failures.note_write_state(4 + INTERVAL, &full(0)));
        assert!(failures.note_write_state(3 + 2 * INTERVAL, &full(0)));
        let broken = WriteState::Failing(error(StoreErrorKind::Io, 0));
        assert!(failures.note_write_state(3 + 3 * INTERVAL, &broken), "for another reason");
    }
}
