//! Tests of MIN against all choices of victims, and against the policies.

use super::*;
use crate::random::Random;
use crate::sim::testing::{random_references, reference};
use larder_core::policy::PolicyKind;
use larder_core::replace::{IndexKind, cache};

fn min(references: &[Reference], capacity: u32) -> MinCounts {
    let mut future = Future::new();
    references.chunks(100).for_each(|batch| future.add(batch).unwrap());
    future.known().run(capacity)
}

/// Returns the minimum number of misses of the remaining references, over all choices of victims.
fn least_misses(references: &[Reference], resident: &mut Vec<u64>, capacity: usize) -> u64 {
    let Some((first, rest)) = references.split_first() else { return 0 };
    if resident.contains(&first.page) {
        return least_misses(rest, resident, capacity);
    }
    let mut least = u64::MAX;
    if resident.len() < capacity {
        resident.push(first.page);
        least = least_misses(rest, resident, capacity);
        resident.pop();
    } else {
        for victim in 0..resident.len() {
            let page = std::mem::replace(&mut resident[victim], first.page);
            least = least.min(least_misses(rest, resident, capacity));
            resident[victim] = page;
        }
    }
    least + 1
}

#[test]
fn no_choice_of_victims_misses_less() {
    for seed in 0..300 {
        let mut random = Random::from_seed(seed);
        let capacity = u32::try_from(1 + random.below(3)).unwrap();
        let references: Vec<Reference> = (0..14).map(|_| reference(random.below(6))).collect();
        let least = least_misses(&references, &mut Vec::new(), capacity as usize);
        let found = min(&references, capacity).counts.misses().references;
        assert_eq!(found, least, "seed {seed}");
    }
}

#[test]
fn no_policy_misses_less() {
    for seed in 0..10 {
        let references = random_references(&mut Random::from_seed(seed), 6_000, 300);
        for capacity in [1, 5, 40, 150, 299, 300, 1_000] {
            let bound = min(&references, capacity).counts;
            assert_eq!(bound.all().references, 6_000);
            for kind in PolicyKind::ALL {
                let mut simulated = cache(kind, capacity, IndexKind::Page);
                simulated.run(&references, &[]);
                let simulated = simulated.counts();
                assert!(bound.misses().references <= simulated.misses().references);
                assert_eq!(bound.all(), simulated.all(), "the same bytes");
            }
        }
    }
}

#[test]
fn the_stated_memory_is_enough() {
    for pages in [1_000, 3_000, 4_097, 300_000] {
        let references: Vec<_> = (0..pages).map(reference).collect();
        let mut future = Future::new();
        future.add(&references).unwrap();
        let taken = future.steps.len() * size_of::<Step>() + future.interner.bytes();
        let stated = memory_bytes(pages, pages);
        assert!(taken as u64 <= stated, "{taken} bytes for {pages} pages, {stated} stated");
        assert_eq!(future.known().run(u32::MAX).counts.evictions, 0);
    }
}

#[test]
fn a_dirty_page_is_written_back_when_it_leaves_and_at_the_end() {
    let write = |page| Reference { write: true, ..reference(page) };
    // The cache evicts page 1 dirty for page 2 and reads it again clean; then it evicts pages 2 and
    // 3, of which 3 is dirty.
    let references = [write(1), reference(2), reference(1), write(3), reference(1)];
    let found = min(&references, 1);
    assert_eq!((found.write_backs, found.write_backs_least), (2, 2));
    // With room for all pages, each dirty page is written back once, at the end.
    let found = min(&[write(1), write(1), write(2), reference(3)], 3);
    assert_eq!((found.write_backs, found.write_backs_least), (2, 2));
    assert_eq!(min(&[], 1), MinCounts::default());
}
