//! Tests of the cache simulation.

use super::*;
use crate::model::{Disk, ModeledStore, NullStore};
use crate::workload::probe::Probe;
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::counters::Counter;
use larder_core::curve::report::Finding;
use larder_core::policy::PolicyKind;
use larder_core::store::{Geometry, MemoryStore};
use larder_core::tunables::Tunables;

fn scenario(seconds: u64) -> (Totals, Vec<u64>) {
    let cache_bytes = 26 << 20;
    let mut probe = Probe::scenario_1(cache_bytes);
    probe.think.mean = 1.36e6;
    let geometry = Geometry { length: probe.file_bytes, granule: 512, read_only: false };
    let mut options = VolumeOptions::new("probe", geometry);
    options.tunables = Tunables::nt();
    let disk = Disk::seven_thousand_two_hundred(geometry.length);
    let store = ModeledStore::new(MemoryStore::new(geometry), disk);
    let frames = u32::try_from(cache_bytes / 4096).unwrap();
    let mut simulation = CacheSimulation::new(frames, 1, [(options, store)], 1);
    let mut dirty = Vec::new();
    for request in probe.requests(7) {
        simulation.serve(&request).unwrap();
        dirty.push(simulation.unclean_blocks(0));
        if simulation.now() > seconds * SECOND {
            break;
        }
    }
    assert!(simulation.now() > MILLISECOND);
    (simulation.finish().remove(0), dirty)
}

#[test]
fn scenario_1_hits_and_absorbs_and_writes_in_bursts() {
    let (totals, dirty) = scenario(120);
    // The only misses are the cold misses of a working set that fits.
    assert!(totals.read_hit_ratio().unwrap() > 0.9, "{:?}", totals.read_hit_ratio());
    let absorbed = totals.get(Counter::WriteAbsorbed);
    assert!(absorbed > totals.get(Counter::WriteNewDirty) / 4, "{absorbed} absorbed");
    let peak = *dirty.iter().max().unwrap();
    let late = &dirty[dirty.len() / 2..];
    assert!(*late.iter().min().unwrap() < peak / 2, "no saw-tooth: {peak} at the peak");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(scenario(20).1, scenario(20).1);
}

#[test]
fn a_volume_whose_policy_is_wrong_for_it_gets_another_one() {
    let geometry = Geometry { length: 6_000 * 4096, granule: 512, read_only: true };
    // A loop is sequential, so read-ahead is off: then hits depend on the policy alone.
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0).unwrap();
    let run = |policy_auto| {
        let options = VolumeOptions {
            policy: PolicyKind::Lru,
            policy_auto,
            tunables: tunables.clone(),
            ..VolumeOptions::new("loop", geometry)
        };
        let store = NullStore::new(geometry);
        let mut simulation = CacheSimulation::new(4_000, 1, [(options, store)], 1);
        for block in (0..6_000).cycle().take(400_000) {
            let client = simulation.wait_for_idle(RequestTime::default()).unwrap();
            let request = Request { volume: 0, op: Op::Read, offset: block * 4096, len: 4096 };
            simulation.begin(client, &request).unwrap();
        }
        simulation.wait_for_all().unwrap();
        let report = simulation.curve(0).unwrap();
        let hits = simulation.totals(0).read_hit_ratio().unwrap();
        simulation.finish();
        (report, hits)
    };
    let (report, hits) = run(false);
    assert!(hits < 0.01 && report.policy == PolicyKind::Lru);
    assert_eq!(report.recommended_policy, Some(PolicyKind::Lirs));
    let thrashes = |finding: &Finding| matches!(finding, Finding::TooSmall { .. });
    assert!(report.findings.iter().any(thrashes), "{:?}", report.findings);
    let (report, hits) = run(true);
    assert_eq!(report.policy, PolicyKind::Lirs);
    assert!(hits > 0.3, "{hits}");
    assert!((report.hit_ratio - 0.66).abs() < 0.05, "{}", report.hit_ratio);
}

/// Such a read needs the frames that its own earlier piece holds until the client takes it.
#[test]
fn a_read_as_large_as_the_cache_continues_when_its_earlier_pieces_are_released() {
    let geometry = Geometry { length: 32 << 20, granule: 512, read_only: true };
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0).unwrap();
    for pages in 66..=80 {
        let options = VolumeOptions {
            policy: PolicyKind::Lru,
            page_blocks: 4,
            tunables: tunables.clone(),
            ..VolumeOptions::new("large", geometry)
        };
        let store = NullStore::new(geometry);
        let mut simulation = CacheSimulation::new(pages * 4, 1, [(options, store)], 1);
        for (offset, len) in [(131_072, 1 << 20), (0, 16 << 20), (512, 16 << 20)] {
            let request = Request { volume: 0, op: Op::Read, offset, len };
            simulation.begin(0, &request).unwrap();
            simulation.wait_for_all().unwrap();
        }
        let totals = simulation.finish().remove(0);
        let missed = totals.get(Counter::ReadMiss) + totals.get(Counter::ReadPartialHit);
        assert!(missed > 1_024, "{pages} pages: {missed} misses");
    }
}
