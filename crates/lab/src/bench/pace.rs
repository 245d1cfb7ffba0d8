//! Comparison of the machine's speed during a trial with its speed during the others.
//!
//! A machine that is shared with others is slower for seconds at a time. A trial in such a time
//! measures the neighbors, and two runs with unlike shares of such trials differ although nothing
//! was changed. So the speed of the machine is measured before and after each trial
//! ([`super::HostEnv::speed`]), and a short trial during which the machine was slower than it can
//! be is set aside and repeated.
//!
//! Invariants: the time lost in this way is at most [`LOST_TIME_MAX`] plus the time of the trials
//! that count; beyond that every trial counts, and the doubt is stated. Trials longer than
//! [`SHORT`] always count: two measurements say little about them, and slow seconds are a normal
//! part of them. Speeds are of any unit, higher is faster; times are nanoseconds.

use larder_core::clock::{Nanos, SECOND};
use larder_report::compare::SPEED_MAX;

/// The longest trial that can be set aside.
const SHORT: Nanos = 2 * SECOND;
/// The time that may be lost in addition to the time of the trials that count.
const LOST_TIME_MAX: Nanos = 10 * SECOND;

/// The required speed of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedRequirement {
    /// Tolerated deviation from the fastest speed as a share, which covers the noise of the
    /// measurement.
    pub tolerance: f64,
    /// The required speed; `None` for the fastest of this run.
    pub as_fast_as: Option<f64>,
}

impl Default for SpeedRequirement {
    fn default() -> Self {
        SpeedRequirement { tolerance: SPEED_MAX, as_fast_as: None }
    }
}

/// The speeds of the trials so far, and the time lost.
#[derive(Debug)]
pub(super) struct SpeedTracker {
    requirement: Option<SpeedRequirement>,
    best: Option<f64>,
    /// Time of trials that were set aside, and of waiting.
    lost: Nanos,
    /// Time of trials that count.
    counted: Nanos,
}

impl SpeedTracker {
    pub(super) fn new(requirement: Option<SpeedRequirement>) -> Self {
        let best = requirement.and_then(|requirement| requirement.as_fast_as);
        SpeedTracker { requirement, best, lost: 0, counted: 0 }
    }

    /// Adds the speed of the machine during a trial. Returns true if it is the highest so far, so
    /// that earlier trials may have been slow ones.
    pub(super) fn add_speed(&mut self, speed: f64) -> bool {
        let is_given = self.requirement.is_some_and(|requirement| requirement.as_fast_as.is_some());
        let is_best = !is_given && self.best.is_none_or(|best| speed > best);
        if is_best {
            self.best = Some(speed);
        }
        is_best
    }

    /// Returns true if the machine is slower than required, or much faster than a required speed
    /// that was given.
    pub(super) fn is_deviating(&self, speed: f64) -> bool {
        let (Some(requirement), Some(best)) = (self.requirement, self.best) else { return false };
        let ratio = speed / best;
        ratio < 1.0 - requirement.tolerance
            || (requirement.as_fast_as.is_some() && ratio > 1.0 / (1.0 - requirement.tolerance))
    }

    /// Returns true if a trial of this length at this speed is to be set aside.
    pub(super) fn is_rejected(&self, speed: Option<f64>, took: Nanos) -> bool {
        took <= SHORT && self.may_lose_time() && speed.is_some_and(|speed| self.is_deviating(speed))
    }

    /// Returns true if more time may be lost; false if any speed is accepted.
    pub(super) fn may_lose_time(&self) -> bool {
        self.requirement.is_some() && self.lost < LOST_TIME_MAX + self.counted
    }

    pub(super) fn add_lost_time(&mut self, time: Nanos) {
        self.lost += time;
    }

    pub(super) fn add_counted_time(&mut self, time: Nanos) {
        self.counted += time;
    }

    /// Moves the time of a trial that no longer counts to the lost time.
    pub(super) fn reject_counted(&mut self, time: Nanos) {
        self.counted -= time;
        self.lost += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_than_the_fastest_is_off_and_so_is_faster_than_what_was_asked_for() {
        let mut tracker = SpeedTracker::new(Some(SpeedRequirement::default()));
        assert!(!tracker.is_deviating(1.0), "nothing to compare with");
        for speed in [90.0, 100.0, 95.0] {
            assert_eq!(tracker.add_speed(speed), !(94.0..96.0).contains(&speed), "{speed}");
        }
        assert!(
            tracker.is_deviating(89.0)
                && !tracker.is_deviating(91.0)
                && !tracker.is_deviating(200.0)
        );
        let given = SpeedRequirement { as_fast_as: Some(100.0), ..SpeedRequirement::default() };
        let mut tracker = SpeedTracker::new(Some(given));
        assert!(!tracker.add_speed(300.0));
        assert!(
            tracker.is_deviating(89.0)
                && !tracker.is_deviating(105.0)
                && tracker.is_deviating(120.0)
        );
        let mut unrestricted = SpeedTracker::new(None);
        unrestricted.add_speed(100.0);
        assert!(!unrestricted.is_deviating(1.0));
    }

    #[test]
    fn what_is_lost_is_bounded_and_long_trials_always_count() {
        let mut tracker = SpeedTracker::new(Some(SpeedRequirement::default()));
        tracker.add_speed(100.0);
        assert!(
            tracker.is_rejected(Some(50.0), SHORT) && !tracker.is_rejected(Some(50.0), SHORT + 1)
        );
        assert!(!tracker.is_rejected(None, 1), "the speed is unknown");
        tracker.add_lost_time(LOST_TIME_MAX);
        assert!(!tracker.is_rejected(Some(50.0), 1));
        tracker.add_counted_time(5);
        assert!(tracker.is_rejected(Some(50.0), 1), "as much again as what counts");
        tracker.reject_counted(5);
        assert!(!tracker.is_rejected(Some(50.0), 1), "and no more");
    }
}
