//! Number of trials: a trial is repeated until the interval of the main series is small enough, or
//! until trials or time are spent.
//!
//! The interval is the sign-test interval of the median (`report::stats`): exact for any
//! distribution. It reaches 95 % with six values, so fewer are never enough.

use super::pace::SpeedRequirement;
use larder_core::clock::Nanos;
use larder_report::stats::{CONFIDENCE, INTERVAL_VALUES_MIN, Summary, sign_interval};
use larder_schema::run::trial::Start;
use std::ops::RangeInclusive;

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The start of each trial.
    pub start: Start,
    /// The minimum and maximum number of trials.
    pub trials: RangeInclusive<u64>,
    /// Maximum half width of the interval as a share of the median; `None` to do only the minimum
    /// number of trials.
    pub confidence: Option<f64>,
    /// The time for trials and their starts, in nanoseconds. The current trial is not cut short,
    /// and one is always done.
    pub budget: Option<Nanos>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The required speed of the machine during a trial that counts; `None` for any.
    pub same_speed: Option<SpeedRequirement>,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            start: Start::Cold,
            trials: INTERVAL_VALUES_MIN..=30,
            confidence: Some(0.05),
            budget: None,
            seed: 1,
            same_speed: Some(SpeedRequirement::default()),
        }
    }
}

/// Returns half the width of the 95 % interval for the median, as a share of the median; `None` if
/// there are too few values for such an interval, or the median is 0.
#[must_use]
pub(super) fn half_width(values: &[f64]) -> Option<f64> {
    let interval = sign_interval(values).filter(|it| it.confidence >= CONFIDENCE)?;
    let median = Summary::of(values)?.median;
    let half = (interval.high - interval.low) / 2.0 / median.abs();
    half.is_finite().then_some(half)
}

impl Plan {
    /// Returns true if the interval is as small as required.
    pub(super) fn is_reached(&self, values: &[f64]) -> bool {
        match self.confidence {
            Some(target) => half_width(values).is_some_and(|half| half <= target),
            None => true,
        }
    }

    /// Returns true if one more trial is to be done after these, the last of which ended `spent`
    /// after the preparation of the first began.
    pub(super) fn needs_trial(&self, values: &[f64], spent: Nanos) -> bool {
        let done = values.len() as u64;
        if done == 0 {
            return true;
        }
        // The next trial takes about as long as those before.
        let next = spent + spent / done;
        if done >= *self.trials.end() || self.budget.is_some_and(|budget| next > budget) {
            return false;
        }
        done < *self.trials.start() || !self.is_reached(values)
    }

    /// Returns the most likely time that is left after these values in `spent`; `None` before the
    /// first trial is done.
    pub(super) fn time_left(&self, values: &[f64], spent: Nanos) -> Option<Nanos> {
        let done = values.len() as u64;
        let each = spent.checked_div(done)?;
        let (least, most) = (*self.trials.start(), *self.trials.end());
        // The width of an interval decreases with the square root of the number of values.
        let needed = match (self.confidence, half_width(values)) {
            (None, _) => least,
            (Some(_), None) => least.max(INTERVAL_VALUES_MIN),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "saturates, and is bounded next"
            )]
            (Some(target), Some(half)) => (done as f64 * (half / target).powi(2)).ceil() as u64,
        };
        let more = needed.clamp(least, most.max(least)).saturating_sub(done);
        let time = each.saturating_mul(more);
        Some(self.budget.map_or(time, |budget| time.min(budget.saturating_sub(spent))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(trials: RangeInclusive<u64>, confidence: Option<f64>, budget: Option<Nanos>) -> Plan {
        Plan { trials, confidence, budget, ..Plan::default() }
    }

    #[test]
    fn fewer_than_six_values_are_never_sure() {
        assert_eq!(half_width(&[7.0; 5]), None);
        assert_eq!(half_width(&[7.0; 6]), Some(0.0));
        assert_eq!(half_width(&[0.0; 6]), None, "no share of nothing");
        let half = half_width(&[9.0, 10.0, 10.0, 10.0, 10.0, 11.0]).unwrap();
        assert!((half - 0.1).abs() < 1e-12, "{half}");
    }

    #[test]
    fn it_ends_when_sure_or_spent_and_not_before_the_fewest() {
        let sure = plan(6..=30, Some(0.05), None);
        assert!(sure.needs_trial(&[], 0) && sure.needs_trial(&[7.0; 5], 5));
        assert!(!sure.needs_trial(&[7.0; 6], 6));
        let unsure: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 5.0 } else { 9.0 }).collect();
        assert!(sure.needs_trial(&unsure[..29], 29) && !sure.needs_trial(&unsure, 30));
        assert!(plan(8..=30, Some(0.05), None).needs_trial(&[7.0; 7], 7));
        // Without an interval to reach, the minimum number is done.
        assert!(!plan(3..=30, None, None).needs_trial(&[1.0, 5.0, 9.0], 3));
    }

    #[test]
    fn the_budget_is_kept_but_for_the_first_trial() {
        let short = plan(6..=30, Some(0.05), Some(100));
        assert!(short.needs_trial(&[], 1000), "one is always done");
        assert!(short.needs_trial(&[7.0; 2], 60), "a third ends at about 90");
        assert!(!short.needs_trial(&[7.0; 3], 80), "a fourth would end at 106");
    }

    #[test]
    fn time_left_shrinks_with_the_interval() {
        let sure = plan(6..=30, Some(0.05), None);
        assert_eq!(sure.time_left(&[], 0), None);
        assert_eq!(sure.time_left(&[7.0; 2], 20), Some(40));
        assert_eq!(sure.time_left(&[7.0; 6], 60), Some(0));
        let wide = [9.0, 10.0, 10.0, 10.0, 10.0, 11.0];
        // Twice as wide as required: four times as many.
        assert_eq!(sure.time_left(&wide, 60), Some(180));
        assert_eq!(plan(6..=30, Some(0.05), Some(100)).time_left(&wide, 60), Some(40));
    }
}
