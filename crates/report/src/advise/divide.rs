//! Memory among volumes by marginal gain: each byte goes where it brings the most hits.
//!
//! Stone, Turek, Wolf, "Optimal partitioning of cache memory", IEEE Transactions on Computers
//! 41(9), 1992: where every curve bends downwards only, giving out memory step by step to whoever
//! gains most is the best division. Curves with cliffs do not bend so; greedy would stop in front
//! of a cliff. Each curve is therefore replaced by its concave hull, so that a cliff is one step
//! that is taken as a whole or not (Beckmann, Sanchez, "Talus: a simple way to remove cliffs in
//! cache performance", HPCA '15, makes a cache behave like its hull; ours does not). The last step
//! may be taken in part; the hit ratio that is answered is always that of the curve itself.

use super::as_f64;
use super::curve::Curve;
use serde::Serialize;

/// A volume that wants memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimant {
    /// What it is called.
    pub name: String,
    /// Its references; what a hit ratio is a share of.
    pub references: u64,
    /// Its curve, as if it had a cache of its own.
    pub curve: Curve,
}

/// What a volume gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The volume.
    pub volume: String,
    /// Its references.
    pub references: u64,
    /// All of its pages, bytes.
    pub footprint_bytes: u64,
    /// Its memory, bytes.
    pub bytes: u64,
    /// Its hit ratio with that.
    pub hit_ratio: f64,
    /// Lower end of the bar.
    pub low: f64,
    /// Upper end of the bar.
    pub high: f64,
}

/// A stretch of a hull.
#[derive(Clone, Copy, Debug)]
struct Step {
    claimant: usize,
    bytes: u64,
    /// Hits for each byte.
    slope: f64,
}

/// Divides `budget_bytes`, in whole units of `unit_bytes` (the bytes of a page).
#[must_use]
pub fn divide(claimants: &[Claimant], budget_bytes: u64, unit_bytes: u64) -> Vec<Share> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, claimant) in claimants.iter().enumerate() {
        let hull = hull(&claimant.curve);
        steps.extend(hull.windows(2).map(|pair| {
            let bytes = pair[1].0 - pair[0].0;
            let hits = (pair[1].1 - pair[0].1) * as_f64(claimant.references);
            Step { claimant: number, bytes, slope: hits / as_f64(bytes) }
        }));
    }
    // Steps of one hull fall by themselves, so they stay in their order.
    steps.sort_by(|a, b| b.slope.total_cmp(&a.slope));
    let mut given = vec![0; claimants.len()];
    let mut left = budget_bytes;
    for step in steps.iter().filter(|step| step.slope > 0.0) {
        let bytes = step.bytes.min(left);
        given[step.claimant] += bytes;
        left -= bytes;
    }
    let whole = |bytes: u64| bytes / unit_bytes.max(1) * unit_bytes.max(1);
    let share = |(claimant, bytes): (&Claimant, u64)| {
        let bytes = whole(bytes);
        let point = claimant.curve.at(bytes);
        Share {
            volume: claimant.name.clone(),
            references: claimant.references,
            footprint_bytes: claimant.curve.last_bytes(),
            bytes,
            hit_ratio: point.map_or(0.0, |point| point.hit_ratio),
            low: point.map_or(0.0, |point| point.low),
            high: point.map_or(0.0, |point| point.high),
        }
    };
    claimants.iter().zip(given).map(share).collect()
}

/// The corners of the concave hull over the curve, from no memory on, up to its highest point.
fn hull(curve: &Curve) -> Vec<(u64, f64)> {
    let mut corners: Vec<(u64, f64)> = vec![(0, 0.0)];
    let slope = |from: (u64, f64), to: (u64, f64)| (to.1 - from.1) / as_f64(to.0 - from.0);
    for point in curve.rising().points() {
        let next = (point.bytes, point.hit_ratio);
        while let [.., before, last] = corners[..]
            && slope(before, last) <= slope(last, next)
        {
            corners.pop();
        }
        corners.push(next);
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::super::curve::Point;
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    fn claimant(name: &str, references: u64, points: &[(u64, f64)]) -> Claimant {
        let points = points.iter().map(|&(bytes, ratio)| Point::exact(bytes, ratio));
        Claimant { name: name.to_owned(), references, curve: Curve::new(points) }
    }

    fn hits(claimant: &Claimant, bytes: u64) -> f64 {
        claimant.curve.at(bytes).map_or(0.0, |p| p.hit_ratio) * as_f64(claimant.references)
    }

    /// The most hits of all divisions into whole units.
    fn best(claimants: &[Claimant], units: u64) -> f64 {
        let Some((first, rest)) = claimants.split_first() else { return 0.0 };
        (0..=units).map(|unit| hits(first, unit) + best(rest, units - unit)).fold(0.0, f64::max)
    }

    #[test]
    fn no_division_of_concave_curves_is_better() {
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut below = |end: u64| random.next_u64() % end;
            let claimants: Vec<Claimant> = (0..3)
                .map(|number| {
                    let mut gains: Vec<u64> = (0..8).map(|_| below(100)).collect();
                    gains.sort_unstable_by(|a, b| b.cmp(a));
                    let mut sum = 0;
                    let points: Vec<(u64, f64)> = gains
                        .iter()
                        .zip(1_u64..)
                        .map(|(gain, bytes)| {
                            sum += gain;
                            (bytes, as_f64(sum) / 800.0)
                        })
                        .collect();
                    claimant(&number.to_string(), 1 + below(1000), &points)
                })
                .collect();
            let budget = below(25);
            let shares = divide(&claimants, budget, 1);
            assert!(shares.iter().map(|share| share.bytes).sum::<u64>() <= budget);
            let made: f64 = claimants.iter().zip(&shares).map(|(c, s)| hits(c, s.bytes)).sum();
            let most = best(&claimants, budget);
            assert!(made >= most - 1e-9, "seed {seed}: {made} of {most}");
        }
    }

    #[test]
    fn a_cliff_is_taken_as_a_whole() {
        let smooth = claimant("smooth", 100, &[(10, 0.1), (20, 0.2), (30, 0.3)]);
        let cliff = claimant("cliff", 100, &[(19, 0.0), (20, 0.9)]);
        let shares = divide(&[smooth, cliff], 25, 1);
        assert_eq!((shares[0].bytes, shares[1].bytes), (5, 20));
        assert!((shares[1].hit_ratio - 0.9).abs() < 1e-12);
    }

    #[test]
    fn memory_that_nobody_gains_from_is_not_given_out() {
        let one = claimant("one", 10, &[(10, 0.5), (20, 0.5)]);
        let never = claimant("never", 0, &[]);
        let shares = divide(&[one, never], 1000, 1);
        assert_eq!((shares[0].bytes, shares[1].bytes), (10, 0));
    }

    #[test]
    fn shares_are_whole_pages() {
        let one = claimant("one", 10, &[(8192, 0.5)]);
        assert_eq!(divide(&[one], 5000, 4096)[0].bytes, 4096);
    }
}
