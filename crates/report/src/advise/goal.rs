//! The recommended size: the smallest that reaches the target, and never more than the budget.
//!
//! The target is a share of the *reachable* hits, so 95 % means the same for a workload that reads
//! all data once and for one that reads it a thousand times.

use larder_schema::advice::{Attainment, Choice, SizingGoal};
use larder_schema::curve::Curve;
use larder_schema::format;

/// Descriptions of a curve's origin, for [`reason`].
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The events whose share a hit ratio is, such as `references`.
    pub counted: &'a str,
    /// The cache that attains all reachable hits.
    pub everything: &'a str,
    /// The largest size of the curve.
    pub largest: &'a str,
}

/// Returns a sentence with the reason for a chosen size. `ceiling` is the reachable hit ratio.
#[must_use]
pub fn reason(
    goal: &SizingGoal,
    ceiling: f64,
    reach: Attainment,
    target_bytes: Option<u64>,
    source: Source<'_>,
) -> String {
    let Source { counted, everything, largest } = source;
    let target = format::percent(goal.target);
    let (reachable, wanted) = (format::percent(ceiling), format::percent(goal.hit_ratio(ceiling)));
    let goal = format!(
        "{target} of the reachable hits (at least {wanted} of the {counted}; {everything} \
         hits {reachable})"
    );
    match reach {
        Attainment::Reached => format!("The smallest size with {goal}."),
        Attainment::Budget => {
            let needed = target_bytes.map_or_else(
                || "more than the largest evaluated size".to_owned(),
                |bytes| format!("about {}", format::bytes(bytes)),
            );
            format!("All that the budget allows. The target, {goal}, needs {needed}.")
        }
        Attainment::End => {
            format!(
                "{largest}: the estimates end below the target, {goal}, by less than their error."
            )
        }
    }
}

/// Returns the recommended size, or `None` if no hits are reachable or no size fits.
#[must_use]
pub fn choose(curve: &Curve, ceiling: f64, goal: &SizingGoal) -> Option<Choice> {
    let curve = curve.rising();
    if ceiling <= 0.0 || curve.last_bytes() == 0 || goal.budget_bytes == Some(0) {
        return None;
    }
    let target_bytes = curve.reaching(goal.hit_ratio(ceiling));
    let wanted = target_bytes.unwrap_or(curve.last_bytes());
    let (bytes, reach) = match goal.budget_bytes {
        Some(budget) if budget < wanted => (budget, Attainment::Budget),
        _ if target_bytes.is_none() => (wanted, Attainment::End),
        _ => (wanted, Attainment::Reached),
    };
    Some(Choice { point: curve.at(bytes)?, reach, target_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::curve::Point;

    fn curve() -> Curve {
        Curve::new([Point::exact(100, 0.2), Point::exact(200, 0.6), Point::exact(400, 0.8)])
    }

    #[test]
    fn the_smallest_size_that_reaches_the_target() {
        let goal = SizingGoal { target: 0.75, budget_bytes: None };
        let found = choose(&curve(), 0.8, &goal).unwrap();
        assert_eq!((found.point.bytes, found.reach), (200, Attainment::Reached));
    }

    #[test]
    fn never_more_than_the_budget() {
        let goal = SizingGoal { target: 0.75, budget_bytes: Some(150) };
        let found = choose(&curve(), 0.8, &goal).unwrap();
        assert_eq!((found.point.bytes, found.reach), (150, Attainment::Budget));
        assert_eq!(found.target_bytes, Some(200));
        assert!((found.point.hit_ratio - 0.4).abs() < 1e-12);
    }

    #[test]
    fn a_target_above_the_curve_takes_all_of_it_and_says_so() {
        let goal = SizingGoal { target: 1.0, budget_bytes: None };
        let found = choose(&curve(), 0.9, &goal).unwrap();
        assert_eq!((found.point.bytes, found.reach), (400, Attainment::End));
    }

    #[test]
    fn where_nothing_hits_nothing_is_recommended() {
        let goal = SizingGoal { target: 0.95, budget_bytes: None };
        assert_eq!(choose(&curve(), 0.0, &goal), None);
        assert_eq!(choose(&Curve::default(), 0.5, &goal), None);
    }
}
