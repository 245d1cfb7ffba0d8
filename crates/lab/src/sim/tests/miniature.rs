//! Tests of miniatures against caches of full size.

use crate::random::Random;
use crate::sim::testing::{reference, skewed_references};
use larder_core::curve::miniature::*;
use larder_core::policy::PolicyKind;
use larder_core::replace::{self, IndexKind, Reference};
use larder_core::units::as_f64;

#[test]
fn intervals_hold_the_hit_ratios_of_caches_of_full_size() {
    let references = skewed_references(&mut Random::from_seed(4), 150_000, 40_000);
    let pages = [3_000, 8_000, 20_000];
    let policies: Vec<PolicyKind> =
        PolicyKind::ALL.into_iter().filter(|&kind| kind != NOT_ESTIMATED).collect();
    let hit_ratio = |policy, pages| {
        let mut cache = replace::cache(policy, pages, IndexKind::Page);
        cache.run(&references, &[]);
        let counts = cache.counts();
        as_f64(counts.hits().references) / as_f64(counts.all().references)
    };
    let exact: Vec<f64> =
        policies.iter().flat_map(|&policy| pages.map(|pages| hit_ratio(policy, pages))).collect();
    let (mut held, mut total, mut error, mut width) = (0, 0, 0.0, 0.0);
    for seed in 0..larder_testing::budget(4, 40) {
        let mut miniature = Miniature::with_sample(&policies, &pages, (30_000, 4_096), seed);
        references.chunks(5_000).for_each(|batch| miniature.run(batch));
        let mut truths = exact.iter();
        for policy in 0..policies.len() {
            for size in 0..pages.len() {
                let (truth, estimate) =
                    (*truths.next().unwrap(), miniature.hit_ratio(policy, size).unwrap());
                assert!(!miniature.is_whole(size));
                total += 1;
                held += u32::from(estimate.holds(truth));
                error += (estimate.hit_ratio - truth).abs();
                width += estimate.high - estimate.low;
            }
        }
    }
    let total = f64::from(total);
    assert!(f64::from(held) >= 0.93 * total, "{held} of {total} intervals hold");
    assert!(error / total < 0.01, "mean error {}", error / total);
    assert!(width / total < 0.04, "mean width {}", width / total);
}

#[test]
fn the_interval_is_wide_at_a_cliff() {
    // A loop that is slightly larger than the cache: lru hits nothing, a slightly larger cache all.
    let references: Vec<Reference> = (0..240_000).map(|n| reference(n % 60_000)).collect();
    let mut held = 0;
    for seed in 0..20 {
        let run = |capacity| {
            let mut miniature =
                Miniature::with_sample(&[PolicyKind::Lru], &[capacity], (60_000, 8_192), seed);
            references.chunks(5_000).for_each(|batch| miniature.run(batch));
            miniature.hit_ratio(0, 0).unwrap()
        };
        let at_cliff = run(59_900);
        held += u32::from(at_cliff.holds(0.0));
        assert!(at_cliff.high - at_cliff.low > 0.4, "seed {seed}: {at_cliff:?}");
        let below = run(40_000);
        assert!(below.holds(0.0) && below.high < 0.02, "seed {seed}: {below:?}");
    }
    assert!(held >= 18, "{held} of 20 intervals hold");
}

#[test]
fn a_policy_without_miniatures_is_not_estimated_from_a_sample() {
    let references = skewed_references(&mut Random::from_seed(6), 20_000, 60_000);
    let sizes = [500, 40_000];
    let mut miniature = Miniature::with_sample(&[NOT_ESTIMATED], &sizes, (50_000, 8_192), 1);
    miniature.run(&references);
    assert!(miniature.is_whole(0) && miniature.hit_ratio(0, 0).is_some());
    assert_eq!((miniature.is_whole(1), miniature.hit_ratio(0, 1)), (false, None));
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
