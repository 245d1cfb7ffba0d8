//! How often a trial is repeated: until the interval of the main series is small enough, or until
//! trials or time are spent.
//!
//! The interval is that of the median by signs (`report::stats`): exact for any distribution, and
//! it reaches 95 % from six values on, which is why fewer never count as enough.

use super::pace::SameSpeed;
use larder_core::clock::Nanos;
use larder_report::run::trial::Start;
use larder_report::stats::{CONFIDENCE, Summary, sign_interval};
use std::ops::RangeInclusive;

/// Trials with which the interval can reach 95 %.
pub(super) const INTERVAL_MIN_TRIALS: u64 = 6;

/// How a workload is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// From where each trial starts.
    pub start: Start,
    /// The fewest and the most trials.
    pub trials: RangeInclusive<u64>,
    /// How small half the width of the interval shall be, as a share of the median; none to do the
    /// fewest trials only.
    pub confidence: Option<f64>,
    /// The time that may be spent on trials and their starts, in nanoseconds. The trial at hand is
    /// not cut short, and one is always done.
    pub budget: Option<Nanos>,
    /// The seed of everything random.
    pub seed: u64,
    /// How fast the machine is to be during a trial that counts; none for any.
    pub same_speed: Option<SameSpeed>,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            start: Start::Cold,
            trials: INTERVAL_MIN_TRIALS..=30,
            confidence: Some(0.05),
            budget: None,
            seed: 1,
            same_speed: Some(SameSpeed::default()),
        }
    }
}

/// Half the width of the 95 % interval for the median, as a share of the median. Nothing if there
/// are too few values for such an interval, or the median is 0.
#[must_use]
pub(super) fn half_width(values: &[f64]) -> Option<f64> {
    let interval = sign_interval(values).filter(|it| it.confidence >= CONFIDENCE)?;
    let median = Summary::of(values)?.median;
    let half = (interval.high - interval.low) / 2.0 / median.abs();
    half.is_finite().then_some(half)
}

impl Plan {
    /// Whether the interval is as small as was asked for.
    pub(super) fn is_reached(&self, values: &[f64]) -> bool {
        match self.confidence {
            Some(wanted) => half_width(values).is_some_and(|half| half <= wanted),
            None => true,
        }
    }

    /// Whether one more trial is to be done after these, the last of which ended `spent` after the
    /// first began to start.
    pub(super) fn goes_on(&self, values: &[f64], spent: Nanos) -> bool {
        let done = values.len() as u64;
        if done == 0 {
            return true;
        }
        // One more takes about as long as those before.
        let next = spent + spent / done;
        if done >= *self.trials.end() || self.budget.is_some_and(|budget| next > budget) {
            return false;
        }
        done < *self.trials.start() || !self.is_reached(values)
    }

    /// The time that is left, at the most likely, after these values in `spent`; nothing before the
    /// first trial is done.
    pub(super) fn left(&self, values: &[f64], spent: Nanos) -> Option<Nanos> {
        let done = values.len() as u64;
        let each = spent.checked_div(done)?;
        let (least, most) = (*self.trials.start(), *self.trials.end());
        // The width of an interval falls with the root of the number of values.
        let needed = match (self.confidence, half_width(values)) {
            (None, _) => least,
            (Some(_), None) => least.max(INTERVAL_MIN_TRIALS),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "saturates, and is bounded next"
            )]
            (Some(wanted), Some(half)) => (done as f64 * (half / wanted).powi(2)).ceil() as u64,
        };
        let more = needed.clamp(least, most.max(least)).saturating_sub(done);
        let left = each.saturating_mul(more);
        Some(self.budget.map_or(left, |budget| left.min(budget.saturating_sub(spent))))
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
        assert!(sure.goes_on(&[], 0) && sure.goes_on(&[7.0; 5], 5));
        assert!(!sure.goes_on(&[7.0; 6], 6));
        let unsure: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { 5.0 } else { 9.0 }).collect();
        assert!(sure.goes_on(&unsure[..29], 29) && !sure.goes_on(&unsure, 30));
        assert!(plan(8..=30, Some(0.05), None).goes_on(&[7.0; 7], 7));
        // Without an interval to reach, the fewest are all.
        assert!(!plan(3..=30, None, None).goes_on(&[1.0, 5.0, 9.0], 3));
    }

    #[test]
    fn the_budget_is_kept_but_for_the_first_trial() {
        let short = plan(6..=30, Some(0.05), Some(100));
        assert!(short.goes_on(&[], 1000), "one is always done");
        assert!(short.goes_on(&[7.0; 2], 60), "a third ends at about 90");
        assert!(!short.goes_on(&[7.0; 3], 80), "a fourth would end at 106");
    }

    #[test]
    fn time_left_shrinks_with_the_interval() {
        let sure = plan(6..=30, Some(0.05), None);
        assert_eq!(sure.left(&[], 0), None);
        assert_eq!(sure.left(&[7.0; 2], 20), Some(40));
        assert_eq!(sure.left(&[7.0; 6], 60), Some(0));
        let wide = [9.0, 10.0, 10.0, 10.0, 10.0, 11.0];
        // Twice as wide as wanted: four times as many.
        assert_eq!(sure.left(&wide, 60), Some(180));
        assert_eq!(plan(6..=30, Some(0.05), Some(100)).left(&wide, 60), Some(40));
    }
}
