//! The sample from inside: its size, its groups, its bins. Against exact curves it is tried where
//! these are, in the laboratory.

use super::*;
use crate::curve::testing::reference;

#[test]
fn the_sample_stays_within_its_size() {
    let mut sampled = Sampled::new(256, 1);
    let references: Vec<Reference> = (0..100_000).map(reference).collect();
    sampled.run(&references);
    assert_eq!((sampled.members.len(), sampled.members.numbers()), (256, 257));
    assert_eq!(sampled.whole.stack.len(), 256);
    let grouped: usize = sampled.without.iter().map(|other| other.stack.len()).sum();
    assert_eq!(grouped, 256 * (GROUPS - 1));
    let made = sampled.hit_ratio(50_000).unwrap();
    assert!(made.holds(0.0), "nothing is referenced twice: {made:?}");
    assert_eq!(Sampled::new(256, 1).hit_ratio(1), None);
}
