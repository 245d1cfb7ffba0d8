//! Unit tests of the sample: its size, its groups, its bins. The tests of the laboratory compare it
//! with exact curves.

use super::*;
use crate::curve::testing::reference;

#[test]
fn the_sample_stays_within_its_size() {
    let mut sampled = SampledCurve::new(256, 1);
    let references: Vec<Reference> = (0..100_000).map(reference).collect();
    sampled.run(&references);
    assert_eq!((sampled.members.len(), sampled.members.numbers()), (256, 257));
    assert_eq!(sampled.stack.len(), 256);
    let made = sampled.hit_ratio(50_000).unwrap();
    assert!(made.holds(0.0), "nothing is referenced twice: {made:?}");
    assert_eq!(SampledCurve::new(256, 1).hit_ratio(1), None);
}

#[test]
fn the_footprint_is_about_the_number_of_different_pages() {
    let mut sampled = SampledCurve::new(1024, 1);
    let references: Vec<Reference> = (0..300_000).map(|n| reference(n % 100_000)).collect();
    sampled.run(&references);
    let footprint = sampled.footprint();
    // Three standard deviations of a sample of 1,024 pages.
    assert!((90_000.0..110_000.0).contains(&footprint), "{footprint} of 100,000 pages");
}
