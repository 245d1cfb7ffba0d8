//! Tests of stores that fail writes while the dirty limit is reached: full, partly broken, or only
//! slow.

use super::rig::{Plain, TestBench, tuned};
use crate::clock::{MILLISECOND, SECOND};
use crate::counters::Gauge;
use crate::request::{Status, WriteRequest};
use crate::store::{Fault, StoreErrorKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Frames of the cache. The default dirty limit is 160 of them, and up to 20 blocks that cannot be
/// written go beyond it.
const FRAMES: u32 = 200;
const BLOCKS_MAX: u64 = 180;

/// Writes one block and waits for up to `seconds` while the write is stalled.
fn write_within(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    block: u64,
    seconds: u64,
) -> Status {
    let data = vec![1; usize::try_from(BLOCK).unwrap()];
    let len = u32::try_from(BLOCK).unwrap();
    let mut write = WriteRequest::new(rig.token(), block * BLOCK, len, false);
    let volume = Arc::clone(&handle.volume);
    let mut status = rig.cache.write(&volume, handle, rig.now, &mut write, &data);
    let end = rig.now + seconds * SECOND;
    loop {
        status = rig.finish_write(handle, &mut write, &data, status);
        if !matches!(status, Status::Pending | Status::Stalled) || rig.now >= end {
            return status;
        }
        rig.run_until(rig.now + 10 * MILLISECOND);
    }
}

fn is_done(status: &Status) -> bool {
    matches!(status, Status::Done | Status::DoneAt(_))
}

/// Writes every other block, so that no two are joined into one write of the store, until a write
/// does not complete within a minute. Returns the number of completed writes, and the last status.
fn fill(rig: &mut TestBench, handle: &mut VolumeHandle<Plain>) -> (u64, Status) {
    let written = (0..).map(|count| (count, write_within(rig, handle, 2 * count, 60)));
    written.into_iter().find(|(_, status)| !is_done(status)).unwrap()
}

fn is_full(status: &Status) -> bool {
    matches!(status, Status::Failed(error) if error.kind == StoreErrorKind::NoSpace)
}

#[test]
fn writes_to_a_full_store_fail_though_most_of_the_data_was_never_tried_before() {
    let mut rig = TestBench::new(FRAMES, [tuned(1024, &[])]);
    let mut handle = rig.handle(0);
    for block in 1000..1010 {
        rig.write(&mut handle, block, 1);
    }
    assert_eq!(rig.flush(&mut handle), Some(Ok(())), "there was space once");
    rig.disks[0].plan.set(vec![Fault::NoSpace]);
    let (count, status) = fill(&mut rig, &mut handle);
    assert_eq!(count, BLOCKS_MAX);
    assert!(handle.volume.is_refusing_writes());
    assert!(is_full(&status), "{status:?}");
    // Each further write fails immediately, except that a write of a dirty block needs no frame.
    for block in 500..600 {
        let status = rig.try_write(&mut handle, [block, 1], 1, false);
        assert!(is_full(&status), "{status:?}");
    }
    let status = rig.try_write(&mut handle, [8, 1], 9, false);
    assert!(is_done(&status), "{status:?}");
    assert_eq!(rig.read(&mut handle, 8), Ok(9));
    assert_eq!(rig.gauge(Gauge::Dirty), BLOCKS_MAX * BLOCK, "nothing that was accepted is lost");
    let risk = rig.cache.at_risk(&rig.disks[0].volume, 0);
    assert_eq!((risk.blocks, risk.blocks_max), (BLOCKS_MAX, BLOCKS_MAX));
    rig.disks[0].plan.set(Vec::new());
    let status = write_within(&mut rig, &mut handle, 600, 0);
    assert!(is_full(&status), "the next attempt is not due: {status:?}");
    rig.run_until(rig.now + 11 * SECOND);
    assert_eq!(rig.gauge(Gauge::Failing), 0, "the store has space again and was tried");
    assert!(!handle.volume.is_refusing_writes());
    rig.write(&mut handle, 600, 1);
    rig.flush(&mut handle);
    assert_eq!(rig.flush(&mut handle), Some(Ok(())), "after the report of the error");
    assert_eq!((rig.stored(0, 8), rig.stored(0, 600)), (9, 1));
    rig.cache.check(rig.now);
}

#[test]
fn a_range_that_cannot_be_written_does_not_keep_the_rest_from_being_written() {
    let mut rig = TestBench::new(FRAMES, [tuned(4096, &[])]);
    let mut handle = rig.handle(0);
    // More than one burst of the lazy writer, and more than the blocks allowed beyond the limit.
    rig.disks[0].plan.set(vec![Fault::Writes(0..200 * BLOCK)]);
    for block in (0..200).step_by(2) {
        rig.write(&mut handle, block, 1);
    }
    rig.run_until(rig.now + 20 * SECOND);
    assert_eq!(rig.gauge(Gauge::Failing), 100);
    for block in (1000..2000).step_by(2) {
        let status = write_within(&mut rig, &mut handle, block, 12);
        assert!(is_done(&status), "block {block}: {status:?}");
    }
    assert_eq!(rig.gauge(Gauge::Failing), 100, "they are kept");
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 30 * SECOND);
    assert_eq!((rig.gauge(Gauge::Failing), rig.gauge(Gauge::Dirty)), (0, 0));
    assert_eq!((rig.stored(0, 198), rig.stored(0, 1998)), (1, 1));
    rig.cache.check(rig.now);
}

#[test]
fn all_that_failed_is_tried_again_in_turn_while_a_part_of_it_still_fails() {
    let mut rig = TestBench::new(FRAMES, [tuned(1024, &[])]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::NoSpace]);
    let (_, status) = fill(&mut rig, &mut handle);
    assert!(is_full(&status), "{status:?}");
    // Only a part can be written at a time, whatever was tried last.
    for fault in [Fault::Writes(180 * BLOCK..360 * BLOCK), Fault::Writes(0..20 * BLOCK)] {
        rig.disks[0].plan.set(vec![fault]);
        rig.run_until(rig.now + 60 * SECOND);
    }
    assert_eq!(rig.gauge(Gauge::Failing), 0, "each was written when it could be");
}

#[test]
fn at_the_dirty_limit_of_a_slow_store_writes_wait_though_others_have_failed() {
    let mut rig = TestBench::new(FRAMES, [tuned(4096, &[])]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Writes(0..20 * BLOCK)]);
    for block in (0..20).step_by(2) {
        rig.write(&mut handle, block, 1);
    }
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.gauge(Gauge::Failing), 10);
    // The store accepts the other writes, but completes none of them within a minute.
    rig.disks[0].stall.store(true, Ordering::Release);
    for block in (100..).step_by(2).take(160) {
        assert!(is_done(&rig.try_write(&mut handle, [block, 1], 1, false)), "block {block}");
    }
    let status = write_within(&mut rig, &mut handle, 1000, 60);
    assert_eq!(status, Status::Stalled);
    rig.disks[0].stall.store(false, Ordering::Release);
    let status = write_within(&mut rig, &mut handle, 1002, 12);
    assert!(is_done(&status), "{status:?}");
}

#[test]
fn full_stores_leave_room_to_the_other_volumes_also_when_the_memory_shrinks() {
    let frames = 1024;
    let mut rig = TestBench::new(frames, [tuned(4096, &[]), tuned(4096, &[]), tuned(4096, &[])]);
    let mut healthy = rig.handle(0);
    for full in [1, 2] {
        rig.disks[full].plan.set(vec![Fault::NoSpace]);
    }
    for full in [1, 2] {
        let mut handle = rig.handle(full);
        let (_, status) = fill(&mut rig, &mut handle);
        assert!(is_full(&status), "store {full}: {status:?}");
    }
    rig.run_until(rig.now + SECOND);
    let mut full = rig.handle(1);
    assert_eq!(rig.read(&mut full, 4000), Ok(0), "what is not dirty can be read");
    rig.cache.close_handle(full);
    let tries = rig.writes().len();
    for block in 1000..1100 {
        assert_eq!(rig.read(&mut healthy, block), Ok(0), "block {block}");
    }
    assert_eq!(rig.writes().len(), tries, "what failed is not tried again for each request");
    for memory in [frames, frames / 3] {
        rig.cache.set_memory(memory).unwrap();
        rig.run_until(rig.now + 20 * SECOND);
        for block in 0..50 {
            let status = write_within(&mut rig, &mut healthy, 4095 - block, 1);
            assert!(is_done(&status), "block {block}: {status:?}");
            // The lazy writer writes pages older than five seconds.
            rig.run_until(rig.now + 6 * SECOND);
            assert_eq!(rig.read(&mut healthy, block), Ok(0), "block {block}");
            rig.cache.drop_clean(&healthy.volume, rig.now);
            for _ in 0..10 {
                rig.cache.run_maintenance(rig.now);
            }
        }
    }
    assert_eq!(rig.flush(&mut healthy), Some(Ok(())));
    rig.cache.check(rig.now);
}
