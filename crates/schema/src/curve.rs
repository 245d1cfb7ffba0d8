//! A hit-ratio curve: points of size and hit ratio, each with its confidence interval.
//!
//! Invariants: sizes rise and are above zero. Between points the curve is linear in the size; it
//! starts at size 0 with hit ratio 0, and is constant after its last point.

use crate::{as_f64, as_u64};
use serde::{Deserialize, Serialize};

/// The hit ratio at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Cache size in bytes.
    pub bytes: u64,
    /// Hit ratio, 0 to 1.
    pub hit_ratio: f64,
    /// Lower bound of the 95 % confidence interval; equal to the hit ratio if it is exact.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Point {
    /// Creates a point with an exact hit ratio.
    #[must_use]
    pub fn exact(bytes: u64, hit_ratio: f64) -> Self {
        Point { bytes, hit_ratio, low: hit_ratio, high: hit_ratio }
    }
}

/// Hit ratio by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Point>", into = "Vec<Point>")]
pub struct Curve {
    points: Vec<Point>,
}

impl From<Vec<Point>> for Curve {
    fn from(points: Vec<Point>) -> Self {
        Curve::new(points)
    }
}

impl From<Curve> for Vec<Point> {
    fn from(curve: Curve) -> Self {
        curve.points
    }
}

impl Curve {
    /// Creates the curve through these points, in any order. Of points with the same size it keeps
    /// the last; it omits points with size 0 or a hit ratio that is not finite.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = Point>) -> Self {
        let mut points: Vec<Point> =
            points.into_iter().filter(|p| p.bytes > 0 && p.hit_ratio.is_finite()).collect();
        points.sort_by_key(|point| point.bytes);
        // The sort is stable, so the last point of a size is kept.
        points.reverse();
        points.dedup_by_key(|point| point.bytes);
        points.reverse();
        Curve { points }
    }

    /// Returns the points, by rising size.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the largest size of a point; 0 without points.
    #[must_use]
    pub fn last_bytes(&self) -> u64 {
        self.points.last().map_or(0, |point| point.bytes)
    }

    /// Returns the monotone envelope of the curve: a cache may leave memory unused, so more memory
    /// never hits less.
    #[must_use]
    pub fn rising(&self) -> Curve {
        let mut best: Option<Point> = None;
        let points = self.points.iter().map(|point| {
            let top = best.filter(|best| best.hit_ratio > point.hit_ratio).unwrap_or(*point);
            best = Some(top);
            Point { bytes: point.bytes, ..top }
        });
        Curve { points: points.collect() }
    }

    /// Returns the interpolated curve at a size, or `None` if it has no points.
    #[must_use]
    pub fn at(&self, bytes: u64) -> Option<Point> {
        let last = *self.points.last()?;
        let index = self.points.partition_point(|point| point.bytes < bytes);
        let Some(after) = self.points.get(index) else { return Some(Point { bytes, ..last }) };
        let before = index.checked_sub(1).map_or(Point::exact(0, 0.0), |at| self.points[at]);
        let fraction = as_f64(bytes - before.bytes) / as_f64(after.bytes - before.bytes);
        let between = |from: f64, to: f64| from + (to - from) * fraction;
        Some(Point {
            bytes,
            hit_ratio: between(before.hit_ratio, after.hit_ratio),
            low: between(before.low, after.low),
            high: between(before.high, after.high),
        })
    }

    /// Returns the smallest size with this hit ratio or more, or `None` if no size reaches it.
    #[must_use]
    pub fn reaching(&self, hit_ratio: f64) -> Option<u64> {
        let at = self.points.iter().position(|point| point.hit_ratio >= hit_ratio)?;
        let after = self.points[at];
        let before = at.checked_sub(1).map_or(Point::exact(0, 0.0), |before| self.points[before]);
        let rise = after.hit_ratio - before.hit_ratio;
        let fraction = if rise > 0.0 { (hit_ratio - before.hit_ratio) / rise } else { 1.0 };
        let more = as_f64(after.bytes - before.bytes) * fraction.clamp(0.0, 1.0);
        // Compensates rounding errors just above a whole byte.
        let whole = as_u64((more - 1e-6).ceil());
        Some((before.bytes + whole).clamp(1, after.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve::new(points.iter().map(|&(bytes, ratio)| Point::exact(bytes, ratio)))
    }

    #[test]
    fn it_is_a_straight_line_between_its_points() {
        let sample_curve = curve(&[(200, 0.6), (100, 0.2), (0, 0.9), (50, f64::NAN)]);
        assert_eq!(sample_curve.points().len(), 2);
        let ratio = |bytes| sample_curve.at(bytes).unwrap().hit_ratio;
        assert!((ratio(0) - 0.0).abs() < 1e-12 && (ratio(50) - 0.1).abs() < 1e-12);
        assert!((ratio(150) - 0.4).abs() < 1e-12 && (ratio(900) - 0.6).abs() < 1e-12);
        assert_eq!(sample_curve.reaching(0.4), Some(150));
        assert_eq!(sample_curve.reaching(0.1), Some(50));
        assert_eq!(sample_curve.reaching(0.6), Some(200));
        assert_eq!(sample_curve.reaching(0.61), None);
        assert_eq!(sample_curve.reaching(0.0), Some(1));
    }

    #[test]
    fn a_curve_that_falls_is_raised_to_what_less_memory_does() {
        let sample_curve = curve(&[(1, 0.3), (2, 0.2), (3, 0.5)]).rising();
        let ratios: Vec<f64> = sample_curve.points().iter().map(|point| point.hit_ratio).collect();
        assert_eq!(ratios, [0.3, 0.3, 0.5]);
    }

    #[test]
    fn of_two_points_of_a_size_the_last_stays() {
        let sample_curve = curve(&[(1, 0.3), (1, 0.4)]);
        assert_eq!(sample_curve.points(), [Point::exact(1, 0.4)]);
    }

    #[test]
    fn without_points_there_is_nothing() {
        assert_eq!(Curve::default().at(1), None);
        assert_eq!(Curve::default().reaching(0.0), None);
        assert_eq!(Curve::default().last_bytes(), 0);
    }
}
