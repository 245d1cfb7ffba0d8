//! Tests of miniatures against caches of full size.

use crate::random::Random;
use crate::sim::testing::skewed_references;
use larder_core::curve::miniature::*;
use larder_core::policy::PolicyKind;
use larder_core::replace::{self, IndexKind};
use larder_core::units::as_f64;

#[test]
fn miniatures_hit_about_as_often_as_caches_of_full_size() {
    let references = skewed_references(&mut Random::from_seed(4), 400_000, 60_000);
    let pages = [500, 2_000, 6_000, 20_000, 40_000];
    let mut exact = Vec::new();
    for policy in PolicyKind::ALL {
        for pages in pages {
            let mut cache = replace::cache(policy, pages, IndexKind::Page);
            cache.run(&references, &[]);
            let counts = cache.counts();
            exact.push(as_f64(counts.hits().references) / as_f64(counts.all().references));
        }
    }
    let (mut covered, mut total, mut error) = (0, 0, 0.0);
    for seed in 0..larder_testing::budget(2, 20) {
        let mut miniature = Miniature::new(&PolicyKind::ALL, &pages, 50_000, seed);
        references.chunks(5_000).for_each(|batch| miniature.run(batch));
        let mut truths = exact.iter();
        for policy in 0..PolicyKind::ALL.len() {
            for size in 0..pages.len() {
                let (truth, estimate) =
                    (*truths.next().unwrap(), miniature.hit_ratio(policy, size).unwrap());
                total += 1;
                covered += u32::from(estimate.holds(truth));
                error += (estimate.hit_ratio - truth).abs();
            }
        }
    }
    error /= f64::from(total);
    assert!(error < 0.01, "mean error {error}");
    assert!(f64::from(covered) >= 0.7 * f64::from(total), "{covered} of {total} bars hold");
}

#[test]
fn a_cache_too_small_for_miniatures_is_simulated_as_it_is() {
    let references = skewed_references(&mut Random::from_seed(5), 20_000, 2_000);
    let mut miniature = Miniature::new(&[PolicyKind::S3Fifo], &[100], 1_000_000, 1);
    miniature.run(&references);
    let mut cache = replace::cache(PolicyKind::S3Fifo, 100, IndexKind::Page);
    cache.run(&references, &[]);
    let truth = as_f64(cache.counts().hits().references) / 20_000.0;
    let estimate = miniature.hit_ratio(0, 0).unwrap();
    assert!(
        (estimate.hit_ratio - truth).abs() < 1e-12 && (estimate.high - estimate.low).abs() < 1e-12
    );
}
