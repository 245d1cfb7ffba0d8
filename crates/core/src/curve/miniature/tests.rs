//! Miniatures from inside. Against caches of full size they are tried in the laboratory.

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
