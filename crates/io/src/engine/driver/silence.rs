//! Stores that owe an answer and give none.

use larder_core::clock::{Nanos, SECOND};

/// A store that has finished nothing for this long while it had something to do is mentioned in the
/// log, and again after each further such time.
pub(super) const STALL: Nanos = 30 * SECOND;

/// Watches the answers of a store.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the store began to owe an answer, or gave the last one since; none while it has nothing
    /// to do.
    since: Option<Nanos>,
    /// Length of the silence when it was last mentioned.
    mentioned: Nanos,
}

impl Silence {
    /// Notes how many operations the store has after a look at it, and whether it has answered one
    /// since the last look. Returns the length of the silence if it is to be mentioned now.
    pub(super) fn note(&mut self, now: Nanos, owed: usize, answered: bool) -> Option<Nanos> {
        if owed == 0 || answered {
            // A time without anything to do is no silence.
            (self.since, self.mentioned) = ((owed > 0).then_some(now), 0);
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let silent = now.saturating_sub(since);
        if silent < self.mentioned + STALL {
            return None;
        }
        self.mentioned = silent;
        Some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_that_owes_an_answer_is_silent() {
        let mut silence = Silence::default();
        assert_eq!(silence.note(0, 0, false), None);
        let idle = 1000 * SECOND;
        assert_eq!(silence.note(idle, 1, false), None, "it has just been asked");
        assert_eq!(silence.note(idle + STALL - 1, 1, false), None);
        assert_eq!(silence.note(idle + STALL, 1, false), Some(STALL));
        assert_eq!(silence.note(idle + STALL + 1, 1, false), None, "once for each such time");
        assert_eq!(silence.note(idle + 2 * STALL, 2, false), Some(2 * STALL));
        assert_eq!(silence.note(idle + 2 * STALL + 1, 1, true), None, "one of two was answered");
        assert_eq!(silence.note(idle + 3 * STALL, 1, false), None);
        assert_eq!(silence.note(idle + 3 * STALL + 1, 1, false), Some(STALL));
        assert_eq!(silence.note(idle + 9 * STALL, 0, true), None);
        assert_eq!(silence.note(idle + 99 * STALL, 1, false), None, "it was idle again");
    }
}
