//! Unit tests of the tracker: its memory, its curve of loops and scans, and its reaction to changes
//! of the volume. The tests of the laboratory compare it with exact curves of traces.

use super::*;
use crate::curve::candidates::CANDIDATES;
use crate::curve::testing::Random;
use crate::replace::SwitchableCache;
use larder_testing::budget;

fn tracker(pages: u64) -> Tracker {
    Tracker::new(Tracker::bytes_max(), pages, PolicyKind::Lru, 1).unwrap()
}

/// Runs page references through an LRU cache, and records them in the tracker.
fn run_lru(tracker: &mut Tracker, capacity: u32, pages: impl Iterator<Item = u64>) -> u64 {
    let mut cache = SwitchableCache::new(PolicyKind::Lru, capacity);
    let mut hits = 0;
    for page in pages {
        let hit = cache.touch(page);
        hits += u64::from(hit);
        tracker.reference(page, !hit);
    }
    hits
}

fn at(points: &[CurvePoint], pages: u64) -> f64 {
    crate::curve::report::hit_ratio(points, pages)
}

#[test]
fn less_memory_means_fewer_slots_and_too_little_means_none() {
    let small = Tracker::new(256 << 10, 1 << 20, PolicyKind::Lru, 1).unwrap();
    assert!(small.bytes() <= 256 << 10 && small.slots < SLOTS_MAX && small.slots >= SLOTS_MIN);
    assert_eq!(tracker(1 << 20).slots, SLOTS_MAX);
    assert!(tracker(1 << 20).bytes() <= Tracker::bytes_max());
    assert!(Tracker::new(64 << 10, 1 << 20, PolicyKind::Lru, 1).is_none());
}

#[test]
fn a_loop_larger_than_the_cache_is_a_cliff_in_the_curve() {
    let mut tracker = tracker(4_000);
    let hits = run_lru(&mut tracker, 4_000, (0..400_000).map(|n| n % 6_000));
    assert_eq!(hits, 0);
    let curve = tracker.curve(1);
    assert!(at(&curve, 4_000) < 0.1, "{curve:?}");
    assert!(at(&curve, 8_000) > 0.9, "{curve:?}");
    let (references, hit_ratio) = tracker.recent();
    assert!(references > 100_000.0 && hit_ratio.abs() < 1e-9);
    // LIRS keeps most of a loop, and the tracker reports this after a few windows.
    assert_eq!(tracker.better_policy().map(|(kind, _)| kind), Some(PolicyKind::Lirs));
    assert_eq!(tracker.candidates().len(), CANDIDATES.len());
}

#[test]
fn what_was_long_ago_counts_ever_and_not_lately() {
    let mut tracker = tracker(2_000);
    run_lru(&mut tracker, 2_000, (0..300_000).map(|n| n % 1_000));
    run_lru(&mut tracker, 2_000, (0..1_500_000).map(|n| 1_000_000 + n));
    assert!(at(&tracker.curve(1), 2_000) < 0.02);
    let lifetime = at(&tracker.lifetime_curve(1), 2_000);
    assert!((lifetime - 299_000.0 / 1_800_000.0).abs() < 0.02, "{lifetime}");
    // The scan did not thin the sample out permanently.
    assert!(tracker.sample_rate() > rate(tracker.sampler.threshold()) / 8.0);
}

#[test]
fn the_bars_hold_what_lru_really_hits() {
    let (mut held, mut intervals) = (0, 0);
    let seeds = budget(4_u32, 24);
    for seed in (0..seeds).map(u64::from) {
        let mut random = Random::from_seed(seed);
        let pages: Vec<u64> =
            (0..300_000).map(|_| random.below(40_000) * random.below(40_000) / 40_000).collect();
        let mut tracker =
            Tracker::new(Tracker::bytes_max(), 10_000, PolicyKind::Lru, seed).unwrap();
        run_lru(&mut tracker, 10_000, pages.iter().copied());
        for point in tracker.lifetime_curve(1) {
            if point.bytes < 1_000 || point.bytes > 40_000 || point.bytes % 3 != 0 {
                continue;
            }
            let capacity = u32::try_from(point.bytes).unwrap();
            let mut cache = SwitchableCache::new(PolicyKind::Lru, capacity);
            let hits = pages.iter().filter(|&&page| cache.touch(page)).count();
            let truth = as_f64(hits as u64) / as_f64(pages.len() as u64);
            intervals += 1;
            held += u32::from(point.estimate.holds(truth));
            let off = (point.estimate.hit_ratio - truth).abs();
            assert!(off < 0.03, "seed {seed}: {point:?}, {truth}");
        }
    }
    assert!(
        intervals >= 2 * seeds && held * 100 >= intervals * 85,
        "{held} of {intervals} intervals hold"
    );
}

#[test]
fn miniatures_follow_the_size_of_the_volume() {
    let mut tracker = tracker(100_000);
    tracker.note_pages(110_000);
    assert_eq!(tracker.pages, 100_000, "too little to restart");
    tracker.note_pages(25_000);
    assert_eq!(tracker.pages, 25_000);
    run_lru(&mut tracker, 25_000, (0..200_000).map(|n| n % 20_000));
    assert!(tracker.candidates().iter().all(|one| one.hit_ratio > 0.5));
    assert!(tracker.curve(4096).iter().all(|point| point.bytes % 4096 == 0));
}

#[test]
fn the_curve_of_the_policy_is_what_caches_of_other_sizes_hit() {
    let mut random = Random::from_seed(5);
    let pages: Vec<u64> =
        (0..400_000).map(|_| random.below(40_000) * random.below(40_000) / 40_000).collect();
    let hits = |kind, capacity: u64, tracker: &mut Option<Tracker>| {
        let mut cache = SwitchableCache::new(kind, u32::try_from(capacity).unwrap());
        let mut hits = 0_u64;
        for &page in &pages {
            let hit = cache.touch(page);
            hits += u64::from(hit);
            if let Some(tracker) = tracker {
                tracker.reference(page, !hit);
            }
        }
        as_f64(hits) / as_f64(pages.len() as u64)
    };
    for kind in [PolicyKind::S3Fifo, PolicyKind::Sieve] {
        let mut tracker = Tracker::new(Tracker::bytes_max(), 8_000, kind, 1);
        let present = hits(kind, 8_000, &mut tracker);
        let points = tracker.unwrap().lifetime_policy_points(1);
        let sizes: Vec<u64> = points.iter().map(|point| point.bytes).collect();
        assert_eq!(sizes, [2_000, 4_000, 8_000, 16_000, 32_000]);
        assert!((points[2].estimate.hit_ratio - present).abs() < 1e-9, "it is counted");
        for point in points {
            let off = point.estimate.hit_ratio - hits(kind, point.bytes, &mut None);
            assert!(off.abs() < 0.03, "{kind:?}: {point:?} is off by {off}");
        }
    }
}

#[test]
fn another_policy_or_size_has_no_estimate_yet() {
    let mut tracker = tracker(2_000);
    run_lru(&mut tracker, 2_000, (0..999).map(|n| n % 1_500));
    assert_eq!(tracker.policy_points(1), [], "too few references");
    run_lru(&mut tracker, 2_000, (0..10_000).map(|n| n % 1_500));
    assert_eq!(tracker.policy_points(1).len(), 5);
    tracker.note_policy(PolicyKind::Lru);
    assert_eq!(tracker.policy_points(1).len(), 5, "the same policy");
    tracker.note_policy(PolicyKind::Arc);
    assert_eq!(tracker.policy_points(1), []);
    run_lru(&mut tracker, 2_000, (0..10_000).map(|n| n % 1_500));
    tracker.note_pages(500);
    assert_eq!(tracker.policy_points(1), []);
    tracker.note_policy(PolicyKind::WTinyLfu);
    run_lru(&mut tracker, 500, (0..10_000).map(|n| n % 400));
    assert_eq!(tracker.policy_points(1), [], "its small caches differ from large ones");
}
