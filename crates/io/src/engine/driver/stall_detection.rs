//! Detection of stores that do not complete their operations.

use larder_core::clock::{Nanos, SECOND};

/// A store with operations in flight that completes none for this long is logged, and again after
/// each further period of this length.
pub(super) const STALL: Nanos = 30 * SECOND;

/// Detects that a store with operations in flight completes none of them.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// Time at which the store got its first operation, or last completed one; none while it is
    /// idle.
    since: Option<Nanos>,
    /// Length of the silence when it was last logged.
    logged: Nanos,
}

impl StallDetector {
    /// Records the number of operations in flight; `answered` is true if one has completed since
    /// the last call. Returns the length of the silence if it must be logged now.
    pub(super) fn note_progress(
        &mut self,
        now: Nanos,
        in_flight: usize,
        answered: bool,
    ) -> Option<Nanos> {
        if in_flight == 0 || answered {
            // An idle store is not silent.
            (self.since, self.logged) = ((in_flight > 0).then_some(now), 0);
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let silent = now.saturating_sub(since);
        if silent < self.logged + STALL {
            return None;
        }
        self.logged = silent;
        Some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_that_owes_an_answer_is_silent() {
        let mut detector = StallDetector::default();
        assert_eq!(detector.note_progress(0, 0, false), None);
        let idle = 1000 * SECOND;
        assert_eq!(detector.note_progress(idle, 1, false), None, "it has just been asked");
        assert_eq!(detector.note_progress(idle + STALL - 1, 1, false), None);
        assert_eq!(detector.note_progress(idle + STALL, 1, false), Some(STALL));
        assert_eq!(
            detector.note_progress(idle + STALL + 1, 1, false),
            None,
            "once for each such time"
        );
        assert_eq!(detector.note_progress(idle + 2 * STALL, 2, false), Some(2 * STALL));
        assert_eq!(
            detector.note_progress(idle + 2 * STALL + 1, 1, true),
            None,
            "one of two was answered"
        );
        assert_eq!(detector.note_progress(idle + 3 * STALL, 1, false), None);
        assert_eq!(detector.note_progress(idle + 3 * STALL + 1, 1, false), Some(STALL));
        assert_eq!(detector.note_progress(idle + 9 * STALL, 0, true), None);
        assert_eq!(detector.note_progress(idle + 99 * STALL, 1, false), None, "it was idle again");
    }
}
