//! Unit tests of miniatures. The tests of the laboratory compare them with caches of full size.

use super::*;
use crate::curve::testing::reference;

#[test]
fn each_miniature_sees_its_part_of_the_pages() {
    let mut miniature = Miniature::new(&[PolicyKind::Lru], &[10_000, 100_000], 200_000, 7);
    let references: Vec<Reference> = (0..200_000).map(reference).collect();
    miniature.run(&references);
    for size in &miniature.sizes {
        for cache in &size.caches[0] {
            let part = as_f64(cache.counts().all().references) / 200_000.0;
            assert!((part / size.rate - 1.0).abs() < 0.2, "{part} of the pages at {}", size.rate);
        }
    }
    assert_eq!(Miniature::new(&[PolicyKind::Lru], &[10], 10, 1).hit_ratio(0, 0), None);
}

#[test]
fn the_interval_is_that_of_the_mean_of_the_groups() {
    assert_eq!(mean_and_half_interval(&[7.0], 1.0), (7.0, 0.0), "one group is everything");
    // Deviations of 3, 1, 1 and 3 from 10: the variance is 20 / 3, that of the mean is a fourth of
    // it.
    let (mean, half) = mean_and_half_interval(&[7.0, 9.0, 11.0, 13.0], 0.0);
    assert!((mean - 10.0).abs() < 1e-9);
    assert!((half - STUDENT * (20.0_f64 / 12.0).sqrt()).abs() < 1e-9, "{half}");
    // Half of all pages were sampled: only the other half is uncertain.
    let (_, less) = mean_and_half_interval(&[7.0, 9.0, 11.0, 13.0], 0.125);
    assert!((less - half * 0.5_f64.sqrt()).abs() < 1e-9, "{less}");
}
