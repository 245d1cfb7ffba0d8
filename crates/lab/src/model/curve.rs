//! The seek curve: seek time as a function of seek distance.
//!
//! Short seeks accelerate and brake all the way, so their time grows with the square root of the
//! distance; long ones coast, so theirs grows linearly. The two-part form, and the need to fit it
//! instead of using one average, are from C. Ruemmler and J. Wilkes, "An introduction to disk drive
//! modeling", IEEE Computer 27(3), March 1994. Data sheets give three numbers; the curve is fitted
//! so that its average over uniformly placed pairs of tracks is the stated average.
//!
//! Distances are fractions of the full stroke, 0 to 1; times are nanoseconds.

use larder_core::clock::Nanos;
use larder_core::units::as_f64;

/// Fraction of the stroke at which the square root ends and the line begins. On the drives that
/// Ruemmler and Wilkes measured, the change was at a fifth to two fifths of the stroke.
const COASTING_FROM: f64 = 1.0 / 3.0;

/// Seek time by distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeekCurve {
    track_to_track: f64,
    /// Nanoseconds per square root of the stroke.
    root: f64,
    /// Seek time at the beginning of the line, nanoseconds.
    knee: f64,
    full_stroke: f64,
}

impl SeekCurve {
    /// Fits the curve to the seek times of a data sheet, in nanoseconds.
    pub(super) fn fit(track_to_track: Nanos, average: Nanos, full_stroke: Nanos) -> Self {
        let [nearest, average, farthest] = [track_to_track, average, full_stroke].map(as_f64);
        // The distance of two uniform points has the density 2 (1 - x). `short` is the probability
        // of the square-root part, `roots` the mean of sqrt(x) over it times that probability; over
        // the line the mean distance is a third of the way from the knee to the end.
        let knee_at = COASTING_FROM;
        let short = 2.0 * knee_at - knee_at * knee_at;
        let roots = 2.0
            * (2.0 / 3.0 * knee_at * knee_at.sqrt()
                - 2.0 / 5.0 * knee_at * knee_at * knee_at.sqrt());
        let long = 1.0 - short;
        let constant = nearest * short + long * (2.0 / 3.0 * nearest + farthest / 3.0);
        let root = (average - constant) / (roots + long * 2.0 / 3.0 * knee_at.sqrt());
        let knee = nearest + root * knee_at.sqrt();
        assert!(root > 0.0 && knee <= farthest, "an average between the nearest and the farthest");
        SeekCurve { track_to_track: nearest, root, knee, full_stroke: farthest }
    }

    /// Returns the nanoseconds of a seek over `distance` of `stroke` tracks; 0 over no distance.
    pub(super) fn time(&self, distance: u64, stroke: u64) -> Nanos {
        if distance == 0 {
            return 0;
        }
        let fraction = (as_f64(distance - 1) / as_f64(stroke.max(2) - 1)).min(1.0);
        let time = if fraction <= COASTING_FROM {
            self.track_to_track + self.root * fraction.sqrt()
        } else {
            let rest = (fraction - COASTING_FROM) / (1.0 - COASTING_FROM);
            self.knee + (self.full_stroke - self.knee) * rest
        };
        as_nanos(time)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
fn as_nanos(value: f64) -> Nanos {
    value as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use larder_core::clock::MILLISECOND;

    fn curve() -> SeekCurve {
        SeekCurve::fit(MILLISECOND, 8_500_000, 18 * MILLISECOND)
    }

    #[test]
    fn ends_of_the_curve_are_those_of_the_data_sheet() {
        let curve = curve();
        assert_eq!(curve.time(0, 1_000), 0);
        assert_eq!(curve.time(1, 1_000), MILLISECOND);
        assert_eq!(curve.time(1_000, 1_000), 18 * MILLISECOND);
        assert_eq!(curve.time(1, 1), MILLISECOND);
    }

    #[test]
    fn longer_seeks_take_longer() {
        let curve = curve();
        let times: Vec<Nanos> = (0..=1_000).map(|distance| curve.time(distance, 1_000)).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn average_over_random_pairs_is_the_one_asked_for() {
        let curve = curve();
        let mut random = Random::from_seed(3);
        let pairs = 100_000;
        let sum: Nanos = (0..pairs)
            .map(|_| {
                let (from, to) = (random.below(100_000), random.below(100_000));
                curve.time(from.abs_diff(to), 100_000)
            })
            .sum();
        let average = sum / pairs;
        assert!(average.abs_diff(8_500_000) < 50_000, "average {average} ns");
    }
}
