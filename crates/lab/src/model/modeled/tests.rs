//! Tests of a modeled store with several models. Times are nanoseconds.

use super::super::rig::{self, DelayedStore, instant, read, write};
use super::*;
use crate::model::{DeviceRates, Disk, RateLimits, RatedDevice};
use crate::random::Random;
use larder_core::frames::{NoFrames, PlainFrames};
use larder_core::store::{Buffer, MemoryStore, Segment};

/// A model that takes ten nanoseconds per operation, one at a time, in order of arrival.
#[derive(Debug)]
struct TenNanosModel;

impl Model for TenNanosModel {
    fn max_concurrency(&self) -> usize {
        1
    }
    fn serve(&mut self, now: Nanos, _access: &Access) -> Nanos {
        now + 10
    }
}

#[test]
fn operations_come_back_when_their_time_is_over_and_not_before() {
    let frames = NoFrames::new(0);
    let mut store = ModeledStore::new(instant(1 << 20), TenNanosModel);
    let mut done = Vec::new();
    store.submit(100, &frames, read(1, 0, 4096));
    store.submit(103, &frames, read(2, 4096, 4096));
    assert_eq!(Store::<NoFrames>::next_event(&store), Some(110));
    store.reap(109, &frames, &mut done);
    assert_eq!((done.len(), store.in_flight()), (0, 2));
    store.reap(500, &frames, &mut done);
    let times: Vec<_> = done.iter().map(|d| (d.op.tag, d.started_at, d.finished_at)).collect();
    assert_eq!(times, [(1, 100, 110), (2, 103, 120)]);
    assert_eq!(store.in_flight(), 0);
    assert_eq!(store.totals().queue_ns, 7);
    assert_eq!(store.totals().service_ns, 20);
}

#[test]
fn flush_waits_for_the_writes_before_it() {
    let frames = NoFrames::new(0);
    let mut store = ModeledStore::new(instant(1 << 20), TenNanosModel);
    let mut done = Vec::new();
    store.submit(0, &frames, write(1, 0, 4096));
    store.submit(0, &frames, write(2, 4096, 4096));
    store.submit(0, &frames, rig::flush(3));
    store.submit(0, &frames, write(4, 8192, 4096));
    store.reap(1_000, &frames, &mut done);
    let order: Vec<u64> = done.iter().map(|d| d.op.tag).collect();
    let index_of = |tag| order.iter().position(|t| *t == tag).unwrap();
    assert!(index_of(3) > index_of(1) && index_of(3) > index_of(2), "order {order:?}");
    assert_eq!(order.len(), 4);
}

#[test]
fn flush_waits_for_a_write_that_the_inner_store_still_holds() {
    let frames = NoFrames::new(0);
    let mut store = ModeledStore::new(DelayedStore::new(1 << 20, 500), TenNanosModel);
    let mut done = Vec::new();
    store.submit(0, &frames, write(1, 0, 4096));
    store.submit(0, &frames, rig::flush(2));
    store.reap(400, &frames, &mut done);
    assert!(done.is_empty(), "the inner store answers 500 later");
    assert_eq!(Store::<NoFrames>::next_event(&store), Some(510));
    rig::drain(&mut store, &frames, &mut done);
    let times: Vec<_> = done.iter().map(|d| (d.op.tag, d.finished_at)).collect();
    assert_eq!(times, [(1, 510), (2, 1_020)]);
}

#[test]
fn how_often_it_is_reaped_changes_nothing() {
    let frames = NoFrames::new(0);
    let run = |step: Nanos| {
        let mut store = ModeledStore::new(instant(1 << 20), TenNanosModel);
        let mut done = Vec::new();
        for tag in 0..20 {
            store.submit(tag * 7, &frames, read(tag, tag * 4096, 4096));
        }
        for now in (0..1_000).step_by(usize::try_from(step).unwrap()) {
            store.reap(now + 140, &frames, &mut done);
        }
        store.reap(2_000, &frames, &mut done);
        done.iter().map(|d| (d.op.tag, d.finished_at)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(333));
}

#[test]
fn every_operation_comes_back_once_and_no_flush_too_early() {
    let frames = NoFrames::new(0);
    for seed in 0..20 {
        let mut random = Random::from_seed(seed);
        let total = RateLimits { operations_per_s: Some(3_000), ..RateLimits::default() };
        let model = RatedDevice::new(DeviceRates { total, ..DeviceRates::fixed(800_000) }, 0);
        let mut store =
            ModeledStore::new(DelayedStore::new(1 << 30, random.below(3_000_000)), model);
        let (mut now, mut done) = (0, Vec::new());
        for tag in 0..300 {
            now += random.below(500_000);
            let offset = random.below(1 << 18) * 4096;
            let op = match random.below(8) {
                0 => rig::flush(tag),
                1..=4 => write(tag, offset, 4096),
                _ => read(tag, offset, 4096),
            };
            store.submit(now, &frames, op);
            store.reap(now, &frames, &mut done);
        }
        rig::drain(&mut store, &frames, &mut done);
        let mut tags: Vec<u64> = done.iter().map(|each| each.op.tag).collect();
        for flush in done.iter().filter(|each| each.op.kind == StoreOpKind::Flush) {
            let late = done.iter().any(|each| {
                each.op.tag < flush.op.tag
                    && changes(each.op.kind)
                    && each.finished_at > flush.finished_at
            });
            assert!(!late, "seed {seed}: flush {} before an earlier write", flush.op.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, (0..300).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// Returns an operation with frame 0 as its only segment.
fn block(tag: u64, kind: StoreOpKind, buffer: Buffer<PlainFrames>) -> StoreOp<PlainFrames> {
    let segments = vec![Segment { buffer, offset: 0, len: 4096 }];
    StoreOp { tag, kind, offset: 8192, len: 4096, segments, queued_at: 0 }
}

#[test]
fn what_was_written_through_a_slow_disk_is_read_back() {
    let frames = PlainFrames::new(1);
    let geometry = Geometry { length: 1 << 20, granule: 512, read_only: false };
    let disk = Disk::seven_thousand_two_hundred(geometry.length);
    let mut store = ModeledStore::new(MemoryStore::new(geometry), disk);
    let mut done = Vec::new();
    let mut write_pin = frames.try_write_pin(0).unwrap();
    frames.write(&mut write_pin, 0, &[7; 4096]);
    let pin = frames.downgrade(write_pin);
    let write = StoreOpKind::Write { fua: false };
    store.submit(0, &frames, block(1, write, Buffer::Pinned(pin)));
    let written_at = store.next_event().unwrap();
    store.reap(written_at, &frames, &mut done);
    let mut completed = done.pop().expect("it is done when it said");
    assert_eq!((completed.result, completed.finished_at), (Ok(()), written_at));
    let Buffer::Pinned(pin) = completed.op.segments.pop().unwrap().buffer else { panic!("a pin") };
    frames.unpin(pin);
    let mut write_pin = frames.try_write_pin(0).unwrap();
    frames.zero(&mut write_pin, 0, 4096);
    store.submit(written_at, &frames, block(2, StoreOpKind::Read, Buffer::Owned(write_pin)));
    store.reap(u64::MAX / 2, &frames, &mut done);
    let Buffer::Owned(write_pin) = done.pop().unwrap().op.segments.pop().unwrap().buffer else {
        panic!("an own")
    };
    let pin = frames.downgrade(write_pin);
    let mut bytes = [0; 4096];
    frames.read(&pin, 0, &mut bytes);
    assert_eq!(bytes, [7; 4096]);
    frames.unpin(pin);
}
