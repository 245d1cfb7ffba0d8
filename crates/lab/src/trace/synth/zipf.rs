//! Zipf distribution without a table: rejection-inversion as in W. Hoermann and G. Derflinger,
//! "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS
//! 6(3), 1996. Logarithm and exponential are implemented here, from operations whose results IEEE
//! 754 fixes, so that a seed gives the same trace on every machine.

use crate::random::Random;

/// Zipf distribution of the ranks from 1 to `count`, with probabilities proportional to
/// rank^-`exponent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral at both ends, and the distance within which a rank is accepted immediately.
    at_first: f64,
    at_last: f64,
    accept_within: f64,
}

impl Zipf {
    /// Creates the distribution; `count` is at least 1, `exponent` above 0.
    pub(super) fn new(count: u64, exponent: f64) -> Self {
        assert!(count > 0 && exponent > 0.0, "a distribution of something");
        #[expect(clippy::cast_precision_loss, reason = "ranks beyond 2^53 are never told apart")]
        let count = count as f64;
        let mut zipf = Zipf { count, exponent, at_first: 0.0, at_last: 0.0, accept_within: 0.0 };
        zipf.at_first = zipf.integral(1.5) - 1.0;
        zipf.at_last = zipf.integral(count + 0.5);
        zipf.accept_within = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Draws a rank, from 1.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.at_last + random.unit() * (self.at_first - self.at_last);
            let x = self.inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.accept_within || u >= self.integral(rank + 0.5) - self.weight(rank)
            {
                #[expect(clippy::cast_possible_truncation, reason = "clamped to the ranks")]
                #[expect(clippy::cast_sign_loss, reason = "clamped to the ranks")]
                return rank as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        exp(-self.exponent * ln(x))
    }

    /// Returns the integral of the weight from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = ln(x);
        let t = (1.0 - self.exponent) * log;
        // (e^t - 1) / t, by its series near 0, where the difference would lose precision.
        let slope = if t.abs() > 1e-3 {
            (exp(t) - 1.0) / t
        } else {
            1.0 + t / 2.0 * (1.0 + t / 3.0 * (1.0 + t / 4.0 * (1.0 + t / 5.0)))
        };
        slope * log
    }

    /// Returns the `x` at which the integral has this value.
    fn inverse(&self, value: f64) -> f64 {
        let t = (value * (1.0 - self.exponent)).max(-1.0 + 1e-15);
        // ln(1 + t) / t, by its series near 0.
        let slope = if t.abs() > 1e-3 {
            ln(1.0 + t) / t
        } else {
            1.0 - t * (0.5 - t * (1.0 / 3.0 - t * (0.25 - t * 0.2)))
        };
        exp(slope * value)
    }
}

const LN_2: f64 = std::f64::consts::LN_2;

/// Returns the natural logarithm of a positive, normal number, to about 1e-16.
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).expect("11 bits") - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let mut exponent = f64::from(exponent);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let mut sum = 0.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * square + 1.0 / odd;
    }
    exponent * LN_2 + 2.0 * z * sum
}

/// Returns e to the power of `x`, to about 1e-15; `x` is between -700 and 700.
pub(super) fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let twos = (x / LN_2 + 0.5).floor();
    let rest = x - twos * LN_2;
    let mut sum = 1.0;
    for order in (1..=14).rev() {
        sum = 1.0 + sum * rest / f64::from(order);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "13 to 2033")]
    let exponent = (twos + 1023.0) as u64;
    sum * f64::from_bits(exponent << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_are_those_of_the_library() {
        for x in [1e-300, 0.1, 0.999_999, 1.0, 1.5, 2.0, 3.7, 1e9, 1e300] {
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
        }
        for x in [-690.0, -1.0, -1e-9, 0.0, 0.3, 1.0, 20.0, 690.0] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "exp {x}");
        }
    }

    #[test]
    fn ranks_come_as_often_as_the_formula_says() {
        for exponent in [0.5, 0.99, 1.0, 1.4] {
            let zipf = Zipf::new(1_000, exponent);
            let mut random = Random::from_seed(7);
            let mut counts = vec![0_u32; 1_001];
            for _ in 0..200_000 {
                counts[usize::try_from(zipf.draw(&mut random)).unwrap()] += 1;
            }
            let total: f64 = (1..=1_000).map(|k| f64::from(k).powf(-exponent)).sum();
            for rank in [1_usize, 2, 3, 10, 100] {
                let expected =
                    200_000.0 * f64::from(u32::try_from(rank).unwrap()).powf(-exponent) / total;
                let error = (f64::from(counts[rank]) - expected).abs();
                assert!(error < 5.0 * expected.sqrt(), "{exponent}, {rank}: {expected}, {error}");
            }
            assert_eq!(counts[0], 0);
        }
    }
}
