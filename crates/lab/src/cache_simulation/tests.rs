//! Tests of the cache simulation.

use super::*;
use crate::model::{DeviceRates, Disk, ModeledStore, NullStore, RatedDevice};
use crate::random::Random;
use crate::workload::probe::Probe;
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::counters::Counter;
use larder_core::curve::report::Finding;
use larder_core::policy::PolicyKind;
use larder_core::store::{Geometry, MemoryStore};
use larder_core::tunables::Tunables;
use std::num::NonZero;

const ONE: Clients = Clients::synchronous(1);

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
    let mut simulation = CacheSimulation::new(frames, 1, [(options, store)], ONE);
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
        let mut simulation = CacheSimulation::new(4_000, 1, [(options, store)], ONE);
        for block in (0..6_000).cycle().take(400_000) {
            let client = simulation.wait_for_client(RequestTime::default()).unwrap();
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
        let mut simulation = CacheSimulation::new(pages * 4, 1, [(options, store)], ONE);
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

/// Returns the virtual time of reads of 4 KiB, each of another page, and the operations of the
/// store.
fn time_of_reads(clients: Clients, offsets: impl Iterator<Item = u64>) -> (Nanos, u64) {
    let geometry = Geometry { length: 64 << 20, granule: 512, read_only: true };
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0).unwrap();
    let options = VolumeOptions { tunables, ..VolumeOptions::new("reads", geometry) };
    let device = RatedDevice::new(DeviceRates::fixed(10 * MILLISECOND), 0);
    let store = ModeledStore::new(NullStore::new(geometry), device);
    let mut simulation = CacheSimulation::new(8_192, 1, [(options, store)], clients);
    simulation.set_wake_time(MILLISECOND);
    let begin = simulation.now();
    for offset in offsets {
        let client = simulation.wait_for_client(RequestTime::default()).unwrap();
        simulation.begin(client, &Request { volume: 0, op: Op::Read, offset, len: 4096 }).unwrap();
    }
    simulation.wait_for_all().unwrap();
    let time = simulation.now() - begin;
    (time, simulation.finish().remove(0).get(Counter::StoreReads))
}

#[test]
fn a_client_keeps_as_many_requests_in_flight_as_its_depth() {
    let scattered = || (0..80).map(|number| number * 65_536);
    for (number, depth) in [(1, 1), (1, 8), (4, 2), (8, 1), (1, 16), (2, 10)] {
        let (time, reads) = time_of_reads(Clients { number, depth }, scattered());
        let rounds = 80 / (number * depth) as u64;
        assert_eq!((time, reads), (rounds * 11 * MILLISECOND, 80), "{number} of depth {depth}");
    }
}

#[test]
fn the_time_of_replies_is_that_of_requests_that_have_waited() {
    let geometry = Geometry { length: 1 << 20, granule: 512, read_only: true };
    let options = VolumeOptions::new("replies", geometry);
    let device = RatedDevice::new(DeviceRates::fixed(10 * MILLISECOND), 0);
    let store = ModeledStore::new(NullStore::new(geometry), device);
    let mut simulation = CacheSimulation::new(1_024, 1, [(options, store)], ONE);
    simulation.set_reply_time(2 * MILLISECOND);
    let begin = simulation.now();
    let mut sent_at = Vec::new();
    for _ in 0..3 {
        let client = simulation.wait_for_client(RequestTime::default()).unwrap();
        sent_at.push((simulation.now() - begin) / MILLISECOND);
        simulation
            .begin(client, &Request { volume: 0, op: Op::Read, offset: 0, len: 512 })
            .unwrap();
    }
    // The first one misses, the others hit.
    assert_eq!(sent_at, [0, 12, 12]);
    let totals = simulation.finish().remove(0);
    assert_eq!(totals.get(Counter::ReadRequests), 3);
}

fn simulation_of_misses(
    clients: Clients,
) -> CacheSimulation<ModeledStore<NoFrames, NullStore<NoFrames>, RatedDevice>> {
    let geometry = Geometry { length: 64 << 20, granule: 512, read_only: false };
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0).unwrap();
    let options = VolumeOptions { tunables, ..VolumeOptions::new("misses", geometry) };
    let device = RatedDevice::new(DeviceRates::fixed(10 * MILLISECOND), 0);
    let store = ModeledStore::new(NullStore::new(geometry), device);
    CacheSimulation::new(8_192, 1, [(options, store)], clients)
}

fn read_at(offset: u64, len: u64) -> Request {
    Request { volume: 0, op: Op::Read, offset, len }
}

#[test]
fn a_client_that_pauses_does_not_delay_others() {
    let mut simulation = simulation_of_misses(Clients::synchronous(2));
    let begin = simulation.now();
    simulation.pause(0, begin + 100 * MILLISECOND);
    let mut sent = Vec::new();
    for number in 0..12 {
        let client = simulation.wait_for_client(RequestTime::default()).unwrap();
        sent.push((client, (simulation.now() - begin) / MILLISECOND));
        simulation.begin(client, &read_at(number << 16, 4096)).unwrap();
    }
    let mut expected: Vec<_> = (0..10).map(|number| (1, number * 10)).collect();
    expected.extend([(0, 100), (1, 100)]);
    assert_eq!(sent, expected);
    simulation.finish();
}

#[test]
fn each_request_waits_for_the_think_time_of_its_own_place() {
    let mut simulation = simulation_of_misses(Clients { number: 1, depth: 2 });
    let begin = simulation.now();
    // 1 MiB takes a second, 4 KiB take 4 ms.
    let think = RequestTime { fixed: 0, bytes_per_s: NonZero::new(1 << 20) };
    let mut sent_at = Vec::new();
    for (number, len) in [1 << 20, 4096, 4096, 4096].into_iter().enumerate() {
        let client = simulation.wait_for_client(think).unwrap();
        sent_at.push((simulation.now() - begin) / MILLISECOND);
        simulation.begin(client, &read_at((number as u64) << 21, len)).unwrap();
    }
    assert_eq!(sent_at, [0, 0, 13, 27]);
    simulation.wait_for_all().unwrap();
    simulation.finish();
}

#[test]
fn adjacent_reads_that_a_client_sends_together_are_one_operation() {
    let adjacent = || (0..80).map(|number| number * 4096);
    assert_eq!(time_of_reads(Clients { number: 1, depth: 8 }, adjacent()).1, 10);
    assert_eq!(time_of_reads(ONE, adjacent()).1, 80);
}

#[test]
fn clients_with_many_large_requests_in_little_memory_all_end() {
    let geometry = Geometry { length: 64 << 20, granule: 512, read_only: false };
    for (number, depth) in [(1, 2), (1, 64), (3, 16)] {
        let frames = u32::try_from(number * 512 + 8).unwrap();
        let volumes = ["a", "b"].map(|name| {
            let options = VolumeOptions { page_blocks: 4, ..VolumeOptions::new(name, geometry) };
            let disk = Disk::seven_thousand_two_hundred(geometry.length);
            (options, ModeledStore::new(NullStore::new(geometry), disk))
        });
        let mut simulation = CacheSimulation::new(frames, 1, volumes, Clients { number, depth });
        let mut random = Random::from_seed(3);
        for _ in 0..400 {
            let op = [Op::Read, Op::Read, Op::Write, Op::Flush, Op::Discard]
                [usize::try_from(random.below(5)).unwrap()];
            let len = (1 + random.below(1_024)) * 4096;
            let offset = random.below((64 << 20) - len) / 512 * 512;
            let client = simulation.wait_for_client(RequestTime::default()).unwrap();
            simulation
                .begin(
                    client,
                    &Request { volume: usize::try_from(random.below(2)).unwrap(), op, offset, len },
                )
                .unwrap();
        }
        simulation.wait_for_all().unwrap();
        let requests: u64 = simulation
            .finish()
            .iter()
            .map(|totals| {
                let counters = [
                    Counter::ReadRequests,
                    Counter::WriteRequests,
                    Counter::FlushRequests,
                    Counter::DiscardRequests,
                ];
                counters.iter().map(|counter| totals.get(*counter)).sum::<u64>()
            })
            .sum();
        assert_eq!(requests, 400);
    }
}
