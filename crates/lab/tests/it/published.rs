//! The simulator against published hit ratios, on the traces for which they were published. Without
//! the traces next to the repository, the tests are skipped.

use larder_core::policy::PolicyKind;
use larder_core::replace::{IndexKind, cache};
use larder_lab::sim::curve::Exact;
use larder_lab::sim::min::Future;
use larder_lab::sim::references::{Batch, Reference, References, Split};
use larder_lab::trace::{OpenOptions, open};

fn references(name: &str, split: Option<Split>) -> Option<Vec<Reference>> {
    let path = larder_testing::shared_trace(name)?;
    let source = open(&path, &OpenOptions::default()).unwrap();
    let split = split.unwrap_or_else(|| Split::native(source.addressing()));
    let mut references = References::new(source, split);
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    loop {
        references.read_batch(&mut batch).unwrap();
        if batch.references.is_empty() {
            return Some(all);
        }
        all.append(&mut batch.references);
    }
}

fn miss_ratio(references: &[Reference], policy: &str, pages: u32) -> f64 {
    let mut value = cache(PolicyKind::from_name(policy).unwrap(), pages, IndexKind::Page);
    value.run(references, &[]);
    ratio(value.counts().misses().references, value.counts().all().references)
}

fn ratio(part: u64, whole: u64) -> f64 {
    larder_schema::share(part, whole).unwrap()
}

fn assert_close(value: f64, published: f64, within: f64, what: &str) {
    assert!((value - published).abs() <= within, "{what}: {value:.5}, published {published}");
}

/// Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST '03.
#[test]
fn lru_and_arc_on_the_traces_of_arc() {
    let half_a_digit = 0.000_05;
    if let Some(oltp) = references("arc_OLTP.lis.zst", None) {
        assert_eq!(oltp.len(), 914_145);
        let mut exact = Exact::new();
        exact.run(&oltp);
        let curve = exact.curve();
        assert_eq!(curve.footprint(), 186_880);
        let published = [
            (1_000, 0.3283, 0.3895),
            (2_000, 0.4247, 0.4608),
            (5_000, 0.5365, 0.5525),
            (10_000, 0.6070, 0.6187),
            (15_000, 0.6463, 0.6540),
        ];
        for (pages, lru, arc) in published {
            assert_close(1.0 - miss_ratio(&oltp, "lru", pages), lru, half_a_digit, "lru");
            assert_close(curve.hit_ratio(pages.into()).unwrap(), lru, half_a_digit, "the curve");
            assert_close(1.0 - miss_ratio(&oltp, "arc", pages), arc, 0.000_55, "arc");
        }
    }
    if let Some(p3) = references("arc_P3.lis.zst", None) {
        assert_close(1.0 - miss_ratio(&p3, "lru", 32_768), 0.0357, half_a_digit, "lru on P3");
        assert_close(1.0 - miss_ratio(&p3, "arc", 32_768), 0.1711, 0.000_55, "arc on P3");
    }
}

/// Results of `libCacheSim`, request by request, for a cache of 10 % of the 48,974 objects.
#[test]
fn requests_without_splitting_as_other_simulators_count_them() {
    let Some(all) = references("cloudPhysicsIO.vscsi", Some(Split::Requests)) else { return };
    assert_eq!(all.len(), 113_872);
    let mut future = Future::new();
    future.add(&all).unwrap();
    let known = future.known();
    assert_eq!(known.footprint(), 48_974);
    let found = known.run(4_897).counts;
    assert_close(ratio(found.misses().references, 113_872), 0.6290, 0.000_1, "min");
    for (policy, published, within) in [
        ("lru", 0.8049, 0.000_05),
        ("fifo", 0.8054, 0.000_05),
        ("arc", 0.7728, 0.000_5),
        ("s3fifo", 0.7553, 0.005),
        ("lirs", 0.7518, 0.005),
        ("sieve", 0.7907, 0.005),
    ] {
        assert_close(miss_ratio(&all, policy, 4_897), published, within, policy);
    }
}

#[test]
fn pages_of_a_block_trace_at_one_gibibyte() {
    for (page_bytes, published) in [(4_096, 0.236), (512, 0.259)] {
        let split = Some(Split::Pages(page_bytes));
        let Some(all) = references("cloudPhysicsIO.vscsi", split) else { return };
        let pages = (1 << 30) / page_bytes;
        assert_close(miss_ratio(&all, "lru", pages), published, 0.000_5, "lru at 1 GiB");
    }
}
