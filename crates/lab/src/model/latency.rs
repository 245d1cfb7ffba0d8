//! Times in service that vary from one operation to the next.
//!
//! The times of a device whose median is below their mean follow a log-normal distribution, which
//! the mean and the median determine: most operations are fast, and a few take much longer.

use crate::random::Random;
use larder_core::clock::Nanos;
use larder_core::units::as_f64;
use larder_schema::as_u64;
use std::f64::consts::TAU;

/// Maximum quotient of mean and median. Devices that vary more do so for other reasons, such as
/// limits on their rates.
const VARIATION_MAX: u64 = 10;
/// Maximum of a drawn time, as a multiple of the mean: less than 2 % of the mean lie above it.
const TIMES_MEAN_MAX: u64 = 1_000;

/// The distribution of a time in service, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Mean time.
    pub mean: Nanos,
    /// Half of the operations take at most this time; at most the mean, and at least a tenth of
    /// it. If it is the mean, all take the same time.
    pub median: Nanos,
}

impl Latency {
    /// Returns the distribution with this mean and median.
    ///
    /// # Errors
    /// The median is above the mean, or below a tenth of it: the reason.
    pub(super) fn new(mean: Nanos, median: Nanos) -> Result<Self, String> {
        if median > mean || median < mean.div_ceil(VARIATION_MAX) {
            return Err(format!(
                "the median is not between 1/{VARIATION_MAX} of the latency and the latency, \
                 which is the mean"
            ));
        }
        Ok(Latency { mean, median })
    }

    /// Returns a time that is the same for all operations.
    #[must_use]
    pub const fn constant(time: Nanos) -> Self {
        Latency { mean: time, median: time }
    }

    /// Returns the time of the next operation.
    pub(super) fn draw(&self, random: &mut Random) -> Nanos {
        if self.median >= self.mean {
            return self.mean;
        }
        // The mean of exp(N(m, s^2)) is exp(m + s^2/2), its median exp(m).
        let deviation = (2.0 * (as_f64(self.mean) / as_f64(self.median.max(1))).ln()).sqrt();
        let time = as_f64(self.median) * (deviation * standard_normal(random)).exp();
        as_u64(time).min(self.mean.saturating_mul(TIMES_MEAN_MAX))
    }
}

/// Returns a number with mean 0 and variance 1 (Box and Muller, "A note on the generation of random
/// normal deviates", Annals of Mathematical Statistics 29(2), 1958).
fn standard_normal(random: &mut Random) -> f64 {
    let (radius, angle) = (1.0 - random.unit(), random.unit());
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_have_their_mean_and_median() {
        for (mean, median) in [(50_000, 50_000), (50_000, 45_000), (80_000, 40_000), (7, 5)] {
            let (latency, mut random) = (Latency { mean, median }, Random::from_seed(3));
            let mut times: Vec<Nanos> = (0..200_000).map(|_| latency.draw(&mut random)).collect();
            times.sort_unstable();
            let found = as_f64(times.iter().sum::<u64>()) / as_f64(times.len() as u64);
            let error = found / as_f64(mean) - 1.0;
            // Times are whole nanoseconds.
            assert!(error.abs() < 0.01 + 0.5 / as_f64(mean), "{found} for {mean}");
            let half = times[times.len() / 2];
            assert!(half.abs_diff(median) <= 1 + median / 100, "{half} for {median}");
            assert_eq!(times[0] == times[times.len() - 1], mean == median);
        }
    }
}
