//! Tests of the warm restart: the list of resident blocks by heat, and its read-back.

use super::rig::{Plain, TestBench, options};
use crate::completion::NoWaker;
use crate::counters::{Counter, Gauge};
use crate::hint::Hint;
use crate::request::{ReadRequest, Request, RequestOp, Session, SessionLimit, Status};
use crate::store::{Fault, StoreOp, StoreOpKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use crate::volume::VolumeOptions;
use std::ops::Range;

fn count(rig: &TestBench, counter: Counter) -> u64 {
    rig.disks[0].volume.totals().get(counter)
}

fn read_all(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    blocks: impl IntoIterator<Item = u64>,
) {
    for block in blocks {
        assert!(rig.read(handle, block).is_ok(), "block {block}");
        rig.now += 1000;
    }
}

fn random_rig(frames: u32, blocks: u64) -> TestBench {
    TestBench::new(frames, [VolumeOptions { hint: Hint::Random, ..options(blocks) }])
}

fn residents(rig: &TestBench, most: usize) -> Vec<Range<u64>> {
    rig.cache.residents(&rig.disks[0].volume, rig.now, most)
}

#[test]
fn residents_are_the_hottest_first_and_in_order_within_a_part() {
    let mut rig = random_rig(4096, 4096);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, (0..2048).rev());
    // The last references are to the hottest eighth, and to a single page among the cold ones.
    read_all(&mut rig, &mut handle, (1024..1280).chain([2000]));
    let all = residents(&rig, 10_000);
    assert_eq!(all[0], 1024..1280);
    let mut blocks: Vec<u64> = all.iter().cloned().flatten().collect();
    blocks.sort_unstable();
    assert_eq!(blocks, (0..2048).collect::<Vec<_>>(), "each once");
    let few = residents(&rig, 257);
    let mut blocks: Vec<u64> = few.into_iter().flatten().collect();
    blocks.sort_unstable();
    assert_eq!(blocks, (1024..1280).chain([2000]).collect::<Vec<_>>(), "the hottest ones");
    rig.cache.close_handle(handle);
}

#[test]
fn neighbors_are_read_back_together_however_their_own_heat_is_mixed() {
    let mut rig = random_rig(4096, 1 << 20);
    let mut handle = rig.handle(0);
    // Extents at many positions, with their blocks in a permuted order: 7 and 2048 are coprime.
    let block = |i: u64| i * 7 % 2048 / 64 * 1024 + i * 7 % 64;
    read_all(&mut rig, &mut handle, (0..2048).map(block));
    let all = residents(&rig, 10_000);
    assert_eq!(all.len(), 32, "one range for each extent: {all:?}");
    rig.cache.close_handle(handle);
}

#[test]
fn what_was_resident_comes_back_in_large_reads_and_is_hit() {
    let mut before = random_rig(4096, 100_000);
    let mut handle = before.handle(0);
    let hot = || (0..2000_u64).map(|i| i / 50 * 1000 + i % 50);
    read_all(&mut before, &mut handle, hot());
    let list = residents(&before, 1 << 20);
    before.cache.close_handle(handle);

    let mut rig = random_rig(4096, 100_000);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    // As from the list of a longer volume.
    rig.cache.warm(&volume, list.into_iter().chain([200_000..200_010, 99_999..200_000]));
    assert!(rig.cache.is_warming(&volume));
    assert_eq!(rig.gauge(Gauge::Warming), 2001 * BLOCK);
    rig.run();
    assert!(!rig.cache.is_warming(&volume));
    assert_eq!((rig.gauge(Gauge::Warming), rig.gauge(Gauge::Resident)), (0, 2001 * BLOCK));
    let reads = rig.ops.iter().filter(|op| op.1 == StoreOpKind::Read).count();
    assert!(reads <= 100, "{reads} reads");
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, hot());
    assert_eq!(count(&rig, Counter::ReadMiss), 0);
    assert_eq!(count(&rig, Counter::ReadAheadHit), 2000);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

#[test]
fn nothing_is_evicted_for_what_is_read_back() {
    let mut rig = random_rig(512, 100_000);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, 50_000..50_400);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    rig.cache.warm(&volume, std::iter::once(0..5000));
    rig.run();
    assert!(!rig.cache.is_warming(&volume), "it is given up when the memory is full");
    assert_eq!(rig.gauge(Gauge::Warming), 0);
    assert_eq!(count(&rig, Counter::EvictedPages), 0);
    assert!(rig.gauge(Gauge::Resident) <= 512 * BLOCK);
    let hits = count(&rig, Counter::ReadHit);
    read_all(&mut rig, &mut handle, 50_000..50_400);
    assert_eq!(count(&rig, Counter::ReadHit), hits + 400);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

/// Polls for operations of the store. Returns them, with the first block and the number of blocks
/// of each.
fn poll(rig: &TestBench) -> (Vec<StoreOp<Plain>>, Vec<(u64, u64)>) {
    let mut ops = Vec::new();
    rig.cache.poll(&rig.disks[0].volume, &rig.disks[0].recorder, rig.now, 32, &mut ops);
    let order = ops.iter().map(|op| (op.offset / BLOCK, op.len / BLOCK)).collect();
    (ops, order)
}

fn submit(rig: &mut TestBench, ops: Vec<StoreOp<Plain>>) {
    for op in ops {
        rig.disks[0].store.submit(rig.now, rig.cache.frames(), op);
    }
}

/// Starts a read of a block that is not resident.
fn begin_read(rig: &TestBench, handle: &mut VolumeHandle<Plain>, block: u64) -> ReadRequest<Plain> {
    let mut read = ReadRequest::new(7, block * BLOCK, 4096);
    assert_eq!(rig.cache.read(handle, rig.now, &mut read), Status::Pending);
    read
}

/// Closes the handle of a completed read, abandons the read, and checks the cache.
fn abandon_read(mut rig: TestBench, handle: VolumeHandle<Plain>, mut read: ReadRequest<Plain>) {
    rig.cache.close_handle(handle);
    read.abandon(rig.cache.frames());
    rig.run();
    rig.cache.check(rig.now);
}

#[test]
fn nothing_is_begun_while_a_client_waits() {
    let mut rig = random_rig(4096, 100_000);
    let mut handle = rig.handle(0);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    rig.cache.warm(&volume, std::iter::once(0..2000));
    let read = begin_read(&rig, &mut handle, 90_000);
    let (ops, order) = poll(&rig);
    assert_eq!(order, [(90_000, 1)]);
    assert_eq!(poll(&rig).1, [], "it waits still");
    submit(&mut rig, ops);
    // A stop drops the blocks whose reads have not started.
    volume.begin_stop();
    rig.run();
    assert!(!rig.cache.is_warming(&volume));
    assert!(rig.gauge(Gauge::Resident) <= 40 * BLOCK);
    abandon_read(rig, handle, read);
}

#[test]
fn what_lies_beside_a_missed_page_comes_with_it() {
    let mut rig = random_rig(4096, 100_000);
    let mut handle = rig.handle(0);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    // Two runs with a gap at 150, and a page in the second one that is already resident.
    read_all(&mut rig, &mut handle, [180]);
    rig.cache.warm(&volume, [1000..1010, 130..150, 151..300]);
    let read = begin_read(&rig, &mut handle, 160);
    let (ops, order) = poll(&rig);
    assert_eq!(order, [(151, 29)], "as far as the run goes, and one read");
    submit(&mut rig, ops);
    rig.run();
    assert!(!rig.cache.is_warming(&volume), "the others come in order");
    assert_eq!(rig.gauge(Gauge::Resident), (10 + 20 + 149) * BLOCK);
    assert_eq!(count(&rig, Counter::ReadMiss), 2);
    let mut other = rig.handle(0);
    read_all(&mut rig, &mut other, 151..180);
    rig.cache.close_handle(other);
    // The first client has not collected its completion yet, but its page has no read-ahead flag.
    assert_eq!((count(&rig, Counter::ReadMiss), count(&rig, Counter::ReadAheadHit)), (2, 28));
    abandon_read(rig, handle, read);
}

#[test]
fn a_miss_reads_its_neighbors_from_the_64_blocks_around_it() {
    let mut rig = random_rig(4096, 100_000);
    let mut handle = rig.handle(0);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    rig.cache.warm(&volume, std::iter::once(0..1000));
    let read = begin_read(&rig, &mut handle, 200);
    let (ops, order) = poll(&rig);
    assert_eq!(order, [(192, 64)]);
    submit(&mut rig, ops);
    rig.run();
    abandon_read(rig, handle, read);
}

#[test]
fn nothing_comes_along_for_which_something_must_go() {
    let mut rig = random_rig(512, 100_000);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, 50_000..50_500);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    rig.cache.warm(&volume, std::iter::once(0..200));
    let read = begin_read(&rig, &mut handle, 100);
    let (ops, order) = poll(&rig);
    assert_eq!(order, [(100, 1)]);
    assert_eq!(count(&rig, Counter::EvictedPages), 0);
    submit(&mut rig, ops);
    rig.run();
    abandon_read(rig, handle, read);
}

#[test]
fn what_comes_along_and_fails_is_no_matter_of_the_client() {
    let mut rig = random_rig(4096, 100_000);
    let mut handle = rig.handle(0);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    rig.cache.warm(&volume, std::iter::once(64..128));
    rig.disks[0].plan.set(vec![Fault::Reads(70 * BLOCK..71 * BLOCK)]);
    read_all(&mut rig, &mut handle, [100]);
    assert!(rig.read(&mut handle, 70).is_err());
    rig.cache.close_handle(handle);
    rig.run();
    rig.cache.check(rig.now);
}

#[test]
fn between_two_hits_of_clients_nothing_large_is_begun() {
    let mut rig = random_rig(4096, 100_000);
    let mut handle = rig.handle(0);
    let volume = std::sync::Arc::clone(&rig.disks[0].volume);
    read_all(&mut rig, &mut handle, [90_000]);
    rig.now += 1_000_000_000;
    // A hit: no client waits for the store, but the next request may arrive at any time.
    read_all(&mut rig, &mut handle, [90_000]);
    rig.cache.warm(&volume, std::iter::once(0..2000));
    let mut ops = Vec::new();
    rig.cache.poll(&volume, &rig.disks[0].recorder, rig.now, 32, &mut ops);
    let order: Vec<_> = ops.iter().map(|op| (op.offset / BLOCK, op.len / BLOCK)).collect();
    assert_eq!(order, [(0, 16)]);
    for op in ops.drain(..) {
        rig.disks[0].store.submit(rig.now, rig.cache.frames(), op);
    }
    // After some time without requests.
    rig.now += 1_000_000_000;
    rig.run();
    assert!(!rig.cache.is_warming(&volume));
    let largest = rig.ops.iter().map(|op| op.3).max();
    assert!(largest >= Some(128), "in large reads: {:?}", rig.ops);
    rig.cache.close_handle(handle);
    rig.cache.check(rig.now);
}

/// Populates ranges of blocks, one after the other.
fn populate(rig: &mut TestBench, ranges: impl IntoIterator<Item = Range<u64>>) {
    let volume = &rig.disks[0].volume;
    let mut session: Session<_, Vec<u8>, ()> =
        Session::open(&rig.cache, volume, Box::new(NoWaker), SessionLimit::Own(u64::MAX)).unwrap();
    for blocks in ranges {
        let bytes = blocks.start * BLOCK..blocks.end * BLOCK;
        let request = Request::new(RequestOp::Populate, bytes);
        session.submit(&rig.cache, rig.now, request, &[][..], || ());
        rig.run();
        session.advance(&rig.cache, rig.now);
        while session.poll_event().is_some() {}
    }
    session.close(&rig.cache);
}

#[test]
fn pages_that_are_populated_in_order_start_no_read_ahead() {
    let mut rig = TestBench::new(256, [options(256)]);
    populate(&mut rig, (0..4).map(|piece| piece * 8..(piece + 1) * 8));
    assert_eq!(count(&rig, Counter::ReadAheadBlocks), 0);
    assert_eq!(rig.gauge(Gauge::Resident), 32 * BLOCK);
}

/// No client has requested these pages, so they count neither as hits nor as misses.
#[test]
fn pages_that_are_populated_are_no_references_of_clients() {
    let mut rig = random_rig(64, 64);
    populate(&mut rig, [0..32, 0..32]);
    assert_eq!(rig.gauge(Gauge::Resident), 32 * BLOCK);
    let references = [Counter::ReadHit, Counter::ReadMiss, Counter::ReadAheadWait];
    assert_eq!(references.map(|counter| count(&rig, counter)), [0; 3]);
    let mut handle = rig.handle(0);
    read_all(&mut rig, &mut handle, 0..32);
    assert_eq!(references.map(|counter| count(&rig, counter)), [32, 0, 0]);
}
