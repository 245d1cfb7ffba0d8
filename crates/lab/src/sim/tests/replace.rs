//! Tests of caches against simple models, and of both lookup methods against each other.

use crate::random::Random;
use crate::sim::interner::Interner;
use crate::sim::testing::{numbered, random_references, reference};
use larder_core::policy::PolicyKind;
use larder_core::replace::*;

#[test]
fn lru_hits_what_a_list_in_order_of_use_holds() {
    for seed in 0..60 {
        let mut random = Random::from_seed(seed);
        let capacity = u32::try_from(1 + random.below(40)).unwrap();
        let references = random_references(&mut random, 2_000, 80);
        let mut list: Vec<u64> = Vec::new();
        let mut expected = Counts::default();
        for reference in &references {
            let index = list.iter().position(|&page| page == reference.page);
            expected.count(reference, index.is_some());
            if let Some(index) = index {
                list.remove(index);
            } else if list.len() == capacity as usize {
                list.pop();
                expected.evictions += 1;
            }
            list.insert(0, reference.page);
        }
        for (find_by, numbers) in
            [(IndexKind::Page, Vec::new()), (IndexKind::Number, numbered(&references))]
        {
            let mut simulated = cache(PolicyKind::Lru, capacity, find_by);
            simulated.run(&references, &numbers);
            simulated.check();
            assert_eq!(simulated.counts(), expected, "seed {seed}, {find_by:?}");
        }
    }
}

#[test]
fn a_page_found_by_number_is_the_page_found_by_page_under_every_policy() {
    for kind in PolicyKind::ALL {
        for seed in 0..20 {
            let mut random = Random::from_seed(seed);
            let capacity = u32::try_from(1 + random.below(100)).unwrap();
            let references = random_references(&mut random, 3_000, 150);
            let mut caches =
                [IndexKind::Page, IndexKind::Number].map(|by| cache(kind, capacity, by));
            let mut interner = Interner::new();
            let mut numbers = Vec::new();
            for batch in references.chunks(700) {
                interner.numbers(batch, &mut numbers);
                for cache in &mut caches {
                    cache.run(batch, &numbers);
                }
            }
            for cache in &caches {
                cache.check();
            }
            assert_eq!(caches[0].counts(), caches[1].counts(), "{}, seed {seed}", kind.name());
        }
    }
}

#[test]
fn reads_and_writes_hits_and_misses_and_their_bytes_are_kept_apart() {
    let mut simulated = cache(PolicyKind::Lru, 1, IndexKind::Page);
    let write = |page, bytes| Reference { write: true, bytes, ..reference(page) };
    simulated.run(&[reference(1), write(1, 512), write(2, 100), reference(2), reference(1)], &[]);
    let counts = simulated.counts();
    assert_eq!(counts.read_misses, ReferenceTotals { references: 2, bytes: 2 * 4096 });
    assert_eq!(counts.read_hits, ReferenceTotals { references: 1, bytes: 4096 });
    assert_eq!(counts.write_hits, ReferenceTotals { references: 1, bytes: 512 });
    assert_eq!(counts.write_misses, ReferenceTotals { references: 1, bytes: 100 });
    assert_eq!(counts.evictions, 2);
    assert_eq!(counts.all().references, 5);
}

#[test]
fn a_cache_as_large_as_the_footprint_misses_each_page_once() {
    let references = random_references(&mut Random::from_seed(1), 5_000, 300);
    let mut interner = Interner::new();
    interner.numbers(&references, &mut Vec::new());
    for kind in PolicyKind::ALL {
        let footprint = u32::try_from(interner.len()).unwrap();
        let mut simulated = cache(kind, footprint, IndexKind::Page);
        simulated.run(&references, &[]);
        assert_eq!(simulated.counts().misses().references, u64::from(footprint), "{}", kind.name());
        assert_eq!(simulated.counts().evictions, 0);
    }
}
