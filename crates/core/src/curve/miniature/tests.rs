//! Unit tests of miniatures. The tests of the laboratory compare them with caches of full size.

use super::*;
use crate::curve::testing::reference;

#[test]
fn each_miniature_sees_its_part_of_the_pages() {
    let pages = 400_000;
    let mut miniature = Miniature::new(&[PolicyKind::Lru], &[20_000, 200_000], pages, 7);
    let references: Vec<Reference> = (0..pages).map(reference).collect();
    miniature.run(&references);
    for size in &miniature.sizes {
        let Caches::Sampled { groups, bounds } = &size.caches[0] else { panic!("too few pages") };
        let seen = |cache: &dyn Replace| as_f64(cache.counts().all().references) / as_f64(pages);
        for cache in groups {
            let part = seen(&**cache) * as_f64(GROUPS as u64);
            assert!((part / size.rate - 1.0).abs() < 0.15, "{part} of the pages at {}", size.rate);
        }
        for cache in bounds {
            let part = seen(&**cache);
            assert!((part / size.rate - 1.0).abs() < 0.05, "{part} of the pages at {}", size.rate);
        }
    }
    assert_eq!(Miniature::new(&[PolicyKind::Lru], &[10], 10, 1).hit_ratio(0, 0), None);
}

#[test]
fn every_sample_has_the_pages_and_slots_that_it_needs_or_is_the_whole() {
    for (pages, footprint) in [(1, 1), (700, 1 << 30), (5_000, 1 << 20), (1 << 20, 1 << 22)] {
        let size = Size::new(pages, &[PolicyKind::Lru], footprint, SAMPLE_PAGES);
        let slots = size.rate * f64::from(pages);
        assert!(size.is_whole() || slots >= as_f64(SLOTS_MIN) * 0.999, "{pages}: {slots} slots");
        let sampled = size.rate * as_f64(footprint);
        let wanted = as_f64(SAMPLE_PAGES.min(footprint));
        assert!(sampled >= wanted * 0.999, "{pages}: {sampled} sampled pages");
    }
}
