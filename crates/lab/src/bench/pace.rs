//! Whether the machine was as fast during a trial as during the others.
//!
//! A machine that is shared with others has seconds in which all that it does takes longer. Such a
//! trial measures the neighbours, and two runs that had unlike shares of them differ though nothing
//! was changed. So the speed of the machine is measured before and after each trial
//! ([`super::HostEnv::speed`]), and a short trial during which it was slower than it can be is
//! set aside and done again.
//!
//! Invariants: what is lost so is bounded by [`PATIENCE`] and by the time of the trials that count;
//! then every trial counts, and the doubt is said. Trials that are longer than [`SHORT`] always
//! count: two moments say little of them, and they have their share of everything. Speeds are of
//! any unit, the higher the faster; times are nanoseconds.

use larder_core::clock::{Nanos, SECOND};
use larder_report::compare::SPEED_MAX;

/// The longest trial that is set aside.
const SHORT: Nanos = 2 * SECOND;
/// The time that may be lost beside as much as the trials take that count.
const PATIENCE: Nanos = 10 * SECOND;

/// How fast the machine is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SameSpeed {
    /// How much slower than the fastest it may be, as a share; what its own noise is.
    pub tolerance: f64,
    /// As fast as this; none for as fast as it has been in this run.
    pub as_fast_as: Option<f64>,
}

impl Default for SameSpeed {
    fn default() -> Self {
        SameSpeed { tolerance: SPEED_MAX, as_fast_as: None }
    }
}

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct Pace {
    wanted: Option<SameSpeed>,
    best: Option<f64>,
    /// Time of trials that were set aside, and of waiting.
    lost: Nanos,
    /// Time of trials that count.
    kept: Nanos,
}

impl Pace {
    pub(super) fn new(wanted: Option<SameSpeed>) -> Self {
        let best = wanted.and_then(|wanted| wanted.as_fast_as);
        Pace { wanted, best, lost: 0, kept: 0 }
    }

    /// Notes how fast the machine was during a trial; whether it has never been faster, so that
    /// trials before may have been slow ones.
    pub(super) fn add_speed(&mut self, speed: f64) -> bool {
        let is_given = self.wanted.is_some_and(|wanted| wanted.as_fast_as.is_some());
        let is_best = !is_given && self.best.is_none_or(|best| speed > best);
        if is_best {
            self.best = Some(speed);
        }
        is_best
    }

    /// Whether the machine was not as fast as it is to be; much faster than what was asked for is
    /// not the same either.
    pub(super) fn is_off(&self, speed: f64) -> bool {
        let (Some(wanted), Some(best)) = (self.wanted, self.best) else { return false };
        let ratio = speed / best;
        ratio < 1.0 - wanted.tolerance
            || (wanted.as_fast_as.is_some() && ratio > 1.0 / (1.0 - wanted.tolerance))
    }

    /// Whether a trial of this length at this speed is to be set aside.
    pub(super) fn sets_aside(&self, speed: Option<f64>, took: Nanos) -> bool {
        took <= SHORT && self.has_patience() && speed.is_some_and(|speed| self.is_off(speed))
    }

    /// Whether more time may be lost; never where any speed will do.
    pub(super) fn has_patience(&self) -> bool {
        self.wanted.is_some() && self.lost < PATIENCE + self.kept
    }

    pub(super) fn lose(&mut self, time: Nanos) {
        self.lost += time;
    }

    pub(super) fn keep(&mut self, time: Nanos) {
        self.kept += time;
    }

    /// A trial of this length does not count any more.
    pub(super) fn give_up(&mut self, time: Nanos) {
        self.kept -= time;
        self.lost += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_than_the_fastest_is_off_and_so_is_faster_than_what_was_asked_for() {
        let mut pace = Pace::new(Some(SameSpeed::default()));
        assert!(!pace.is_off(1.0), "nothing to compare with");
        for speed in [90.0, 100.0, 95.0] {
            assert_eq!(pace.add_speed(speed), !(94.0..96.0).contains(&speed), "{speed}");
        }
        assert!(pace.is_off(89.0) && !pace.is_off(91.0) && !pace.is_off(200.0));
        let given = SameSpeed { as_fast_as: Some(100.0), ..SameSpeed::default() };
        let mut pace = Pace::new(Some(given));
        assert!(!pace.add_speed(300.0));
        assert!(pace.is_off(89.0) && !pace.is_off(105.0) && pace.is_off(120.0));
        let mut nothing = Pace::new(None);
        nothing.add_speed(100.0);
        assert!(!nothing.is_off(1.0));
    }

    #[test]
    fn what_is_lost_is_bounded_and_long_trials_always_count() {
        let mut pace = Pace::new(Some(SameSpeed::default()));
        pace.add_speed(100.0);
        assert!(pace.sets_aside(Some(50.0), SHORT) && !pace.sets_aside(Some(50.0), SHORT + 1));
        assert!(!pace.sets_aside(None, 1), "nobody knows how fast it was");
        pace.lose(PATIENCE);
        assert!(!pace.sets_aside(Some(50.0), 1));
        pace.keep(5);
        assert!(pace.sets_aside(Some(50.0), 1), "as much again as what counts");
        pace.give_up(5);
        assert!(!pace.sets_aside(Some(50.0), 1), "and no more");
    }
}
