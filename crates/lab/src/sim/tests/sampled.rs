//! Tests of samples against the exact curve.

use crate::random::Random;
use crate::sim::curve::{Exact, ExactCurve};
use crate::sim::testing::skewed_references;
use larder_core::curve::sampled::*;
use larder_core::replace::Reference;
use larder_core::units::as_f64;

fn exact(references: &[Reference]) -> ExactCurve {
    let mut exact = Exact::new();
    exact.run(references);
    exact.curve()
}

#[test]
fn a_sample_of_all_pages_is_exact_but_for_rounding() {
    let references = skewed_references(&mut Random::from_seed(1), 60_000, 2_000);
    let (exact, mut sampled) = (exact(&references), SampledCurve::new(SAMPLE_PAGES, 1));
    sampled.run(&references);
    assert!((sampled.rate() - 1.0).abs() < 1e-9);
    for pages in [1, 2, 10, 63, 100, 500, 1_000, 1_999, 5_000] {
        let (estimate, truth) =
            (sampled.hit_ratio(pages).unwrap(), exact.hit_ratio(pages).unwrap());
        assert!((estimate.hit_ratio - truth).abs() < 0.002, "{pages} pages: {estimate:?}, {truth}");
        assert!(
            estimate.holds(truth) || (estimate.hit_ratio - truth).abs() < 1e-9,
            "{pages} {estimate:?}"
        );
    }
}

#[test]
fn the_bars_hold_the_exact_curve_and_the_error_is_small() {
    let references = skewed_references(&mut Random::from_seed(2), 200_000, 40_000);
    let exact = exact(&references);
    let sizes: Vec<u64> = [2, 5, 10, 20, 40, 80].map(|part| exact.footprint() * part / 100).into();
    let (mut covered, mut total, mut error) = (0, 0, 0.0);
    for seed in 0..20 {
        let mut sampled = SampledCurve::new(4096, seed);
        references.chunks(5_000).for_each(|batch| sampled.run(batch));
        let relative = sampled.footprint() / as_f64(exact.footprint());
        assert!((relative - 1.0).abs() < 0.07, "seed {seed}: {relative} of the footprint");
        for &pages in &sizes {
            let truth = exact.hit_ratio(pages).unwrap();
            let estimate = sampled.hit_ratio(pages).unwrap();
            total += 1;
            covered += u32::from(estimate.holds(truth));
            error += (estimate.hit_ratio - truth).abs();
        }
    }
    error /= f64::from(total);
    assert!(error < 0.008, "mean error {error}");
    assert!(f64::from(covered) >= 0.93 * f64::from(total), "{covered} of {total} bars hold");
}

#[test]
fn the_same_seed_samples_the_same_pages() {
    let references = skewed_references(&mut Random::from_seed(3), 50_000, 20_000);
    let run = |seed| {
        let mut sampled = SampledCurve::new(512, seed);
        sampled.run(&references);
        sampled.hit_ratio(1_000).unwrap()
    };
    assert_eq!(run(1), run(1));
    assert!((run(1).hit_ratio - run(2).hit_ratio).abs() > 0.0);
}
