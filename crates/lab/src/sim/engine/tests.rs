//! Tests of the simulation of the whole cache.

use super::*;
use crate::model::{DeviceRates, RateLimits};
use crate::random::Random;
use crate::sim::references::{References, Split};
use crate::sim::sweep::{self, SweepItem};
use larder_core::counters::{Counter, Latency};
use larder_core::policy::PolicyKind;
use std::num::NonZero;

/// A trace of records in memory.
#[derive(Debug)]
struct RecordList(Vec<Record>);

impl Source for RecordList {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        batch.append(&mut self.0);
        Ok(())
    }

    fn name(&self, _of: crate::trace::NameKind, _number: u32) -> Option<&str> {
        None
    }
}

/// Returns requests of up to `blocks` whole blocks at random offsets, more often at low ones.
fn records(count: usize, seed: u64, blocks: u64) -> Vec<Record> {
    let mut random = Random::from_seed(seed);
    let request = |_| {
        let block = random.below(64) * random.below(64);
        let len = (1 + random.below(blocks)) * BLOCK_BYTES_U64;
        let op = if random.below(3) == 0 { Op::Write } else { Op::Read };
        Record { op, offset: block * BLOCK_BYTES_U64, len, ..Record::default() }
    };
    (0..count).map(request).collect()
}

/// Returns options without read-ahead: then nothing depends on time.
fn options(frames: u32, policy: impl Into<PolicyChoice>) -> CacheSimulationOptions {
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0).unwrap();
    CacheSimulationOptions {
        frames,
        shards: 1,
        page_blocks: 1,
        policy: policy.into(),
        write_mode: WriteMode::Through,
        store: StoreModel::Instant,
        clients: Clients::synchronous(1),
        pace: Pace::CLOSED,
        wake: 0,
        reply: 0,
        hint: Hint::Normal,
        tunables,
        page_cache: None,
    }
}

fn rated(operations_per_s: u64, latency: Nanos) -> StoreModel {
    let total = RateLimits { operations_per_s: Some(operations_per_s), bytes_per_s: None };
    StoreModel::rated(DeviceRates { total, ..DeviceRates::fixed(latency) })
}

fn run(records: &[Record], options: &CacheSimulationOptions) -> CacheSimulationResult {
    let lengths = VolumeLengths::of(&mut RecordList(records.to_vec())).unwrap();
    simulate(&mut RecordList(records.to_vec()), &lengths, options, |_| ()).unwrap()
}

/// Returns the number of 4 KiB pages that operations of kind `op` touch.
fn pages(records: &[Record], op: Op) -> u64 {
    records.iter().filter(|record| record.op == op).map(|record| record.len / 4096).sum()
}

#[test]
fn single_pages_hit_exactly_as_in_the_simulation_of_replacement() {
    let records = records(20_000, 5, 1);
    for policy in PolicyKind::ALL {
        let plan = [SweepItem { policy: policy.into(), capacity: 700 }];
        let references = References::new(Box::new(RecordList(records.clone())), Split::Pages(4096));
        let counts = sweep::run(references, &plan, None, NonZero::<usize>::MIN, |_| ()).unwrap()[0];
        let totals = run(&records, &options(700, policy)).totals;
        let whole = [
            totals.get(Counter::ReadHit),
            totals.get(Counter::ReadMiss),
            totals.get(Counter::EvictedPages),
        ];
        let simple = [counts.read_hits.references, counts.read_misses.references, counts.evictions];
        assert_eq!(whole, simple, "{}", policy.name());
    }
}

#[test]
fn a_page_that_a_request_touches_counts_once_however_often_the_request_stalls() {
    let records = records(3_000, 6, 100);
    let busy = CacheSimulationOptions {
        write_mode: WriteMode::Back,
        store: StoreModel::DISK,
        clients: Clients::synchronous(8),
        ..options(2_500, PolicyKind::Lru)
    };
    let outcome = run(&records, &busy);
    assert!(outcome.totals.get(Counter::Stalls) > 0, "the test wants requests that stall");
    assert_eq!(outcome.totals.read_pages(), pages(&records, Op::Read));
    let written =
        outcome.totals.get(Counter::WriteAbsorbed) + outcome.totals.get(Counter::WriteNewDirty);
    assert_eq!(written, pages(&records, Op::Write));
    assert!(outcome.elapsed > 0);
}

#[test]
fn the_same_trace_gives_the_same_counters_and_clients_make_it_faster() {
    let records = records(2_000, 7, 8);
    let slow = |clients| CacheSimulationOptions {
        store: rated(3_000, 800_000),
        clients: Clients::synchronous(clients),
        ..options(3_000, PolicyKind::Lru)
    };
    let (one, again, eight) =
        (run(&records, &slow(1)), run(&records, &slow(1)), run(&records, &slow(8)));
    assert_eq!(one.elapsed, again.elapsed);
    assert!(Counter::ALL.iter().all(|&c| one.totals.get(c) == again.totals.get(c)));
    assert!(eight.elapsed < one.elapsed / 2, "{} against {}", eight.elapsed, one.elapsed);
}

#[test]
fn each_client_thinks_after_its_answers() {
    // Each block is read once, so none hits.
    let read = |block| Record {
        offset: block * BLOCK_BYTES_U64,
        len: BLOCK_BYTES_U64,
        ..Record::default()
    };
    let records: Vec<Record> = (0..2_000).map(read).collect();
    let thinking = |clients| CacheSimulationOptions {
        store: StoreModel::rated(DeviceRates::fixed(4_000_000)),
        clients: Clients::synchronous(clients),
        pace: Pace::Closed {
            gap: RequestTime::default(),
            think: RequestTime { fixed: 1_000_000, bytes_per_s: None },
        },
        ..options(100, PolicyKind::Lru)
    };
    // Each request takes 4 ms, and 1 ms of think time after each but the last.
    assert_eq!(run(&records, &thinking(1)).elapsed, 2_000 * 5_000_000 - 1_000_000);
    let four = run(&records, &thinking(4)).elapsed;
    assert!((500 * 5_000_000 - 1_000_000..500 * 5_000_000 + 2_000).contains(&four), "{four}");
}

#[test]
fn a_rate_bounds_any_number_of_clients_and_their_reads_wait_in_turn() {
    let read = |block| Record { offset: block * BLOCK_BYTES_U64, len: 4096, ..Record::default() };
    let records: Vec<Record> = (0..800).map(read).collect();
    for clients in [1, 8, 32] {
        let limited = CacheSimulationOptions {
            store: rated(100, 0),
            clients: Clients::synchronous(clients),
            ..options(33 * 256, PolicyKind::Lru)
        };
        let outcome = run(&records, &limited);
        // The first operation finds its token.
        assert!(outcome.elapsed.abs_diff(7_990_000_000) < 10_000, "{}", outcome.elapsed);
        let reads = outcome.totals.latency(Latency::Read);
        let (expected, p50) = (clients as u64 * 10_000_000, reads.quantile(0.5).unwrap());
        assert!(p50.abs_diff(expected) * 16 <= expected, "{p50} for {expected}");
        assert_eq!(reads.count(), 800);
    }
}

#[test]
fn a_hit_takes_no_time_and_is_counted() {
    let read = |_| Record { len: 4096, ..Record::default() };
    let records: Vec<Record> = (0..100).map(read).collect();
    let store = StoreModel::rated(DeviceRates::fixed(4_000_000));
    let outcome = run(&records, &CacheSimulationOptions { store, ..options(600, PolicyKind::Lru) });
    let reads = outcome.totals.latency(Latency::Read);
    let quantiles = [0.5, 0.99, 0.999].map(|q| reads.quantile(q));
    assert_eq!(quantiles, [Some(0), Some(0), Some(4_000_000)]);
}

#[test]
fn recorded_times_are_kept_where_the_store_can_keep_up() {
    let spread = |(i, record): (usize, Record)| Record { time_ns: i as u64 * 50_000_000, ..record };
    let records: Vec<_> = records(100, 8, 1).into_iter().enumerate().map(spread).collect();
    let paced = CacheSimulationOptions {
        pace: Pace::Recorded,
        store: StoreModel::DISK,
        ..options(1_000, PolicyKind::Lru)
    };
    let outcome = run(&records, &paced);
    assert!((99 * 50_000_000..101 * 50_000_000).contains(&outcome.elapsed), "{}", outcome.elapsed);
}

#[test]
fn objects_have_no_place_in_a_volume() {
    #[derive(Debug)]
    struct Objects;
    impl Source for Objects {
        fn read_batch(&mut self, _batch: &mut Vec<Record>) -> Result<(), TraceError> {
            Ok(())
        }
        fn name(&self, _of: crate::trace::NameKind, _number: u32) -> Option<&str> {
            None
        }
        fn addressing(&self) -> Addressing {
            Addressing::Objects
        }
    }
    assert!(matches!(VolumeLengths::of(&mut Objects), Err(CacheSimulationError::Objects)));
    let at = |offset| vec![Record { offset, len: 1, ..Record::default() }];
    for far in [(1 << 60) - (1 << 20), (1 << 60) - 1, 1 << 60, u64::MAX] {
        let error = VolumeLengths::of(&mut RecordList(at(far))).unwrap_err();
        assert!(matches!(error, CacheSimulationError::TooFar { .. }), "{error}");
    }
    let last = at((1 << 60) - (1 << 20) - 1);
    let totals = run(&last, &options(700, PolicyKind::Lru)).totals;
    assert_eq!(totals.read_pages(), 1);
}

#[test]
fn every_page_that_is_asked_for_is_in_one_class() {
    let mut random = Random::from_seed(8);
    // Many granules are never read: a write to one of them waits for the rest of its granule, or
    // not, depending on the write mode.
    let sector = |_| {
        let op = if random.below(2) == 0 { Op::Write } else { Op::Read };
        Record { op, offset: random.below(40_000) * 512 + 100, len: 50, ..Record::default() }
    };
    let records: Vec<Record> = (0..5_000).map(sector).collect();
    for &write_mode in WriteMode::ALL.iter().filter(|&&mode| mode != WriteMode::ReadOnly) {
        let options = CacheSimulationOptions { write_mode, ..options(700, PolicyKind::S3Fifo) };
        let totals = run(&records, &options).totals;
        let name = write_mode.name();
        let requested = |op| records.iter().filter(|record| record.op == op).count() as u64;
        assert_eq!(totals.read_pages(), requested(Op::Read), "read, {name}");
        assert_eq!(totals.write_pages(), requested(Op::Write), "written, {name}");
        let partial = totals.get(Counter::WritePartial);
        assert_eq!(partial > 0, write_mode == WriteMode::Back, "{partial} partial, {name}");
    }
}

#[test]
fn a_cache_in_parts_hits_nearly_as_often_as_one_of_a_piece() {
    // Low offsets are more frequent, so that the pages differ; they cover 64 regions, so that no
    // shard has all hot ones.
    let mut random = Random::from_seed(9);
    let request = |_| {
        let block = random.below(128) * random.below(128);
        Record { offset: block * BLOCK_BYTES_U64, len: BLOCK_BYTES_U64, ..Record::default() }
    };
    let records: Vec<Record> = (0..60_000).map(request).collect();
    for policy in [PolicyKind::Lru, PolicyKind::S3Fifo, PolicyKind::Arc, PolicyKind::Sieve] {
        let hits = |shards| {
            let options = CacheSimulationOptions { shards, ..options(2_000, policy) };
            run(&records, &options).totals.read_hit_ratio().unwrap()
        };
        let (whole, parts) = (hits(1), hits(4));
        assert!(parts > whole - 0.01, "{}: {parts:.3} in parts, {whole:.3} whole", policy.name());
    }
}

#[test]
fn a_read_only_cache_gets_no_request_that_changes_data() {
    let mut records = records(2_000, 3, 2);
    records.push(Record { op: Op::Discard, len: BLOCK_BYTES_U64, ..Record::default() });
    records.push(Record { op: Op::Zero, len: BLOCK_BYTES_U64, ..Record::default() });
    let options =
        CacheSimulationOptions { write_mode: WriteMode::ReadOnly, ..options(256, PolicyKind::Lru) };
    let outcome = run(&records, &options);
    assert_eq!(outcome.totals.read_pages(), pages(&records, Op::Read));
    assert_eq!((outcome.totals.write_pages(), outcome.unclean_blocks), (0, 0));
}
