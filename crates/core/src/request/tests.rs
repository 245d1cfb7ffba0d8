//! Tests of the failure rules of docs/ARCHITECTURE.md, one each, and of guarantees on frames, order
//! and throttling that are observable from outside.

mod ahead;
mod failing;
mod findings;
mod frozen;
mod limits;
mod mapping;
mod order;
mod pinned;
mod rig;
mod room;
mod warm;

use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::completion::Completion;
use crate::counters::{Counter, Gauge};
use crate::mode::{FlushMode, WriteMode};
use crate::request::{Payload, ReadRequest, Status, WriteRequest};
use crate::store::{Fault, SparseBytes, StoreError, StoreErrorKind, StoreOpKind};
use crate::sync::lock;
use crate::units::{BLOCK_BYTES, BLOCK_BYTES_U64 as BLOCK};
use crate::volume::{Volume, VolumeOptions};
use rig::{Plain, TestBench, options, tuned};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn kind(result: Option<Result<(), StoreError>>) -> Option<StoreErrorKind> {
    result.expect("the flush comes to an end").err().map(|error| error.kind)
}

#[test]
fn a_failed_read_fails_only_its_request_and_is_not_cached() {
    let mut rig = TestBench::new(32, [VolumeOptions { page_blocks: 4, ..options(16) }]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Reads(BLOCK..BLOCK + 1)]);
    let answers = rig.reads(&mut handle, &[[0, 1], [1, 1], [2, 2], [2, 2], [4, 1]]);
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, false, false], "the neighbors are readable");
    assert_eq!(rig.read(&mut handle, 1).unwrap_err().kind, StoreErrorKind::Io);
    rig.disks[0].plan.set(Vec::new());
    assert_eq!(rig.read(&mut handle, 1), Ok(0), "the failure was not cached");
    assert_eq!(rig.flush(&mut handle), Some(Ok(())), "a failed read is no matter of a flush");
    rig.cache.check(rig.now);
}

#[test]
fn a_failed_write_back_stays_dirty_is_retried_and_told_to_every_lane() {
    let mut rig = TestBench::new(32, [options(16)]);
    let [mut one, mut two] = [rig.handle(0), rig.handle(0)];
    rig.write(&mut one, 3, 7);
    rig.disks[0].plan.set(vec![Fault::Writes(0..16 * BLOCK)]);
    let begin = rig.now;
    rig.run_until(begin + 20 * SECOND);
    let tries = rig.writes().len();
    assert!((4..12).contains(&tries), "{tries} tries in 20 s: it backs off");
    assert_eq!(rig.gauge(Gauge::Failing), 1);
    assert_eq!(rig.gauge(Gauge::Dirty), BLOCK);
    assert_eq!(rig.read(&mut one, 3), Ok(7));
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(begin + 40 * SECOND);
    assert_eq!((rig.gauge(Gauge::Failing), rig.gauge(Gauge::Dirty)), (0, 0));
    assert_eq!(rig.stored(0, 3), 7);
    for handle in [&mut one, &mut two] {
        assert_eq!(kind(rig.flush(handle)), Some(StoreErrorKind::Io), "told once");
        assert_eq!(rig.flush(handle), Some(Ok(())), "and only once");
    }
    let mut three = rig.handle(0);
    assert_eq!(rig.flush(&mut three), Some(Ok(())), "made good before this session was opened");
}

#[test]
fn what_is_at_risk_is_told_exactly() {
    let options = VolumeOptions { page_blocks: 2, ..tuned(64, &[("first-delay", 60_000)]) };
    let mut rig = TestBench::new(64, [options]);
    let mut handle = rig.handle(0);
    let at_risk = |rig: &TestBench, ranges| rig.cache.at_risk(&rig.disks[0].volume, ranges);
    let nothing = at_risk(&rig, 8);
    assert_eq!((nothing.blocks, nothing.oldest, nothing.blocks_max), (0, None, 57));
    let begin = rig.now;
    for block in [0, 2, 10] {
        rig.now += SECOND;
        rig.write(&mut handle, block, 1);
    }
    let three = at_risk(&rig, 8);
    assert_eq!((three.blocks, three.oldest), (3, Some(begin + SECOND)));
    assert_eq!((three.failing_blocks, three.error), (0, None));
    // While the store writes the pages, they are still at risk.
    rig.disks[0].stall.store(true, Ordering::Release);
    assert_eq!(rig.flush(&mut handle), None);
    let writing = at_risk(&rig, 8);
    assert_eq!((writing.blocks, writing.writing_blocks), (3, 3));
    assert_eq!(writing.oldest, Some(begin + SECOND));
    // One of them fails: the result contains its whole page, joined with that of its neighbor.
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run();
    assert_eq!(TestBench::finished(&handle), Some(Ok(())));
    assert_eq!(at_risk(&rig, 8).oldest, None);
    rig.disks[0].plan.set(vec![Fault::Writes(0..12 * BLOCK)]);
    for block in [0, 3, 10, 20] {
        rig.write(&mut handle, block, 2);
    }
    assert_eq!(kind(rig.flush(&mut handle)), Some(StoreErrorKind::Io));
    let failing = at_risk(&rig, 8);
    assert_eq!((failing.blocks, failing.failing_blocks), (3, 3), "block 20 was written");
    assert_eq!(failing.failing, [0..4 * BLOCK, 10 * BLOCK..12 * BLOCK]);
    assert_eq!(failing.error.map(|error| error.kind), Some(StoreErrorKind::Io));
    assert_eq!(at_risk(&rig, 1).failing, vec![0..4 * BLOCK]);
    rig.disks[0].plan.set(Vec::new());
    rig.flush(&mut handle);
    assert_eq!(at_risk(&rig, 8).failing, vec![]);
}

#[test]
fn a_full_store_is_named_and_its_data_is_kept_until_there_is_space() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::NoSpace]);
    rig.write(&mut handle, 0, 1);
    assert_eq!(kind(rig.flush(&mut handle)), Some(StoreErrorKind::NoSpace));
    let status = rig.try_write(&mut handle, [1, 1], 2, true);
    assert!(matches!(status, Status::Failed(e) if e.kind == StoreErrorKind::NoSpace));
    assert_eq!(rig.read(&mut handle, 0), Ok(1));
    rig.disks[0].plan.set(Vec::new());
    rig.flush(&mut handle);
    assert_eq!(rig.flush(&mut handle), Some(Ok(())));
    assert_eq!(rig.stored(0, 0), 1);
}

#[test]
fn a_store_that_shrinks_is_named_and_what_is_cached_stays() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 9, 9);
    rig.disks[0].plan.set(vec![Fault::Shrunk(8 * BLOCK)]);
    assert_eq!(rig.read(&mut handle, 12).unwrap_err().kind, StoreErrorKind::Short);
    assert_eq!(kind(rig.flush(&mut handle)), Some(StoreErrorKind::Short));
    assert_eq!(rig.read(&mut handle, 9), Ok(9));
    assert_eq!(rig.read(&mut handle, 2), Ok(0));
}

#[test]
fn a_store_that_stalls_stops_neither_hits_nor_other_volumes_and_loses_nothing() {
    let mut rig = TestBench::new(64, [options(16), options(16)]);
    let [mut one, mut other] = [rig.handle(0), rig.handle(1)];
    rig.write(&mut one, 1, 11);
    rig.disks[0].stall.store(true, Ordering::Release);
    assert_eq!(rig.flush(&mut one), None, "the store does not answer");
    assert_eq!(rig.read(&mut one, 1), Ok(11), "a hit while a write of it hangs");
    rig.write(&mut one, 1, 12);
    rig.write(&mut other, 1, 21);
    assert_eq!(rig.flush(&mut other), Some(Ok(())));
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run();
    assert_eq!(TestBench::finished(&one), Some(Ok(())));
    assert_eq!(rig.flush(&mut one), Some(Ok(())));
    assert_eq!((rig.stored(0, 1), rig.stored(1, 1)), (12, 21));
}

#[test]
fn a_failed_flush_fails_every_later_one() {
    let mut rig = TestBench::new(32, [options(16)]);
    let [mut one, mut two] = [rig.handle(0), rig.handle(0)];
    rig.write(&mut one, 0, 1);
    rig.disks[0].plan.set(vec![Fault::Flushes]);
    assert_eq!(kind(rig.flush(&mut one)), Some(StoreErrorKind::Io));
    rig.disks[0].plan.set(Vec::new());
    for handle in [&mut one, &mut two] {
        for _ in 0..3 {
            assert_eq!(kind(rig.flush(handle)), Some(StoreErrorKind::Io));
        }
    }
}

#[test]
fn a_flush_that_finds_the_store_away_fails_those_who_wait_and_no_later_one() {
    let mut rig = TestBench::new(32, [options(16)]);
    let [mut one, mut two] = [rig.handle(0), rig.handle(0)];
    rig.write(&mut one, 0, 1);
    rig.run_until(rig.now + 60 * SECOND);
    assert_eq!(rig.disks[0].volume.unclean_blocks(), 0, "the lazy writer has written it");
    rig.disks[0].plan.set(vec![Fault::Away]);
    for _ in 0..2 {
        assert_eq!(kind(rig.flush(&mut one)), Some(StoreErrorKind::Away));
    }
    rig.disks[0].plan.set(Vec::new());
    // The other client is not affected: all written data is in the store.
    assert_eq!(kind(rig.flush(&mut two)), None);
    assert_eq!(kind(rig.flush(&mut one)), None);
    // A write that fails because the store is unreachable is reported to every client.
    rig.write(&mut one, 1, 2);
    rig.disks[0].plan.set(vec![Fault::Away]);
    assert_eq!(kind(rig.flush(&mut one)), Some(StoreErrorKind::Away));
    rig.disks[0].plan.set(Vec::new());
    assert_eq!(kind(rig.flush(&mut two)), Some(StoreErrorKind::Away));
    assert_eq!(kind(rig.flush(&mut two)), None);
    assert_eq!(kind(rig.flush(&mut one)), None);
}

#[test]
fn at_the_dirty_limit_of_a_failing_store_writes_fail_instead_of_hanging() {
    let mut rig = TestBench::new(50, [tuned(64, &[("dirty-limit", 200)])]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Writes(0..64 * BLOCK)]);
    let statuses: Vec<_> = (0..20)
        .map(|block| {
            let status = rig.try_write(&mut handle, [block, 1], 1, false);
            rig.run_until(rig.now + SECOND);
            status
        })
        .collect();
    // The limit is 10 blocks, and 5 that cannot be written do not count.
    assert!(statuses[..15].iter().all(|s| matches!(s, Status::Done)), "{statuses:?}");
    assert!(statuses[15..].iter().all(|s| matches!(s, Status::Failed(_))), "{statuses:?}");
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 30 * SECOND);
    rig.write(&mut handle, 11, 5);
}

#[test]
fn blocks_that_cannot_be_written_do_not_keep_others_from_being_written() {
    let mut rig = TestBench::new(50, [tuned(256, &[("dirty-limit", 200)])]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Writes(0..10 * BLOCK)]);
    for block in 0..10 {
        rig.write(&mut handle, block, 1);
    }
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.gauge(Gauge::Failing), 10, "blocks, the whole limit");
    let (mut done, mut failed) = (0, 0);
    for block in 20..120 {
        match rig.try_write(&mut handle, [block, 1], 1, false) {
            Status::Done | Status::DoneAt(_) => done += 1,
            Status::Failed(_) => failed += 1,
            Status::Pending | Status::Stalled => {}
        }
        rig.run_until(rig.now + 10 * SECOND);
    }
    assert_eq!((done, failed), (100, 0));
    assert_eq!(rig.gauge(Gauge::Failing), 10, "nothing is lost");
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 30 * SECOND);
    assert_eq!(rig.gauge(Gauge::Failing), 0);
}

#[test]
fn reads_that_copy_hits_find_nothing_once_an_internal_error_has_ended_the_volume() {
    let mut rig = TestBench::new(16, [options(16)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 0, 1);
    let mut bytes = [0; 8];
    assert!(rig.cache.read_hit(&handle, 0, &mut bytes));
    let error = StoreError::new(StoreErrorKind::Io, "an internal error".to_owned());
    rig.cache.break_volume(&rig.disks[0].volume, error);
    assert!(!rig.cache.read_hit(&handle, 0, &mut bytes));
}

#[test]
fn a_slow_reader_does_not_hold_up_a_writer_and_its_frame_comes_back() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 5, 1);
    let mut slow = ReadRequest::new(1000, 5 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut slow), Status::Done);
    rig.write(&mut handle, 5, 2);
    let mut bytes = vec![0; 4096];
    slow.copy_to(rig.cache.frames(), &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 1), "what the slow reader holds does not change");
    assert_eq!(rig.read(&mut handle, 5), Ok(2));
    assert_eq!(handle.volume.totals().get(Counter::ReplacedBlocks), 1);
    assert_eq!(rig.gauge(Gauge::Resident), 2 * BLOCK, "held memory counts");
    slow.release(rig.cache.frames());
    rig.cache.check(rig.now);
    assert_eq!(rig.gauge(Gauge::Resident), BLOCK);
}

#[test]
fn frames_that_are_held_for_long_do_not_hide_others_that_are_free_again() {
    let mut rig = TestBench::new(40, [options(64)]);
    let mut handle = rig.handle(0);
    let mut slow: Vec<_> = (0..20).map(|i| ReadRequest::new(1000 + i, i * BLOCK, 4096)).collect();
    for (block, slow) in (0..).zip(&mut slow) {
        rig.write(&mut handle, block, 1);
        assert_eq!(rig.cache.read(&mut handle, rig.now, slow), Status::Done);
        rig.write(&mut handle, block, 2);
    }
    // The first and the last one stay pinned; the other frames are free again.
    slow[1..19].iter_mut().for_each(|slow| slow.release(rig.cache.frames()));
    for block in 20..38 {
        rig.write(&mut handle, block, 3);
    }
    assert_eq!(handle.volume.totals().get(Counter::EvictedPages), 0, "nothing had to go");
    for index in [0, 19] {
        slow[index].release(rig.cache.frames());
    }
    rig.cache.check(rig.now);
}

#[test]
fn floors_and_ceilings_hold_between_two_volumes() {
    let ceiling = VolumeOptions { min_frames: 10, max_frames: 12, ..options(64) };
    let mut rig = TestBench::new(40, [ceiling, options(64)]);
    let [mut one, mut other] = [rig.handle(0), rig.handle(1)];
    for block in 0..64 {
        rig.read(&mut one, block).unwrap();
        assert!(rig.gauge(Gauge::Resident) <= 12 * BLOCK, "above its ceiling");
    }
    for block in (0..64).chain(0..64) {
        rig.now += MILLISECOND;
        rig.read(&mut other, block).unwrap();
        assert!(rig.gauge(Gauge::Resident) >= 10 * BLOCK, "pushed below its floor");
    }
    let resident = rig.cache.gauge(&rig.disks[1].volume, Gauge::Resident);
    assert!(resident >= 28 * BLOCK, "it takes what the other one leaves: {resident}");
    rig.cache.check(rig.now);
}

#[test]
fn a_stop_drains_while_new_writes_go_through() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 0, 1);
    assert_eq!(rig.stored(0, 0), 0, "lazy");
    rig.disks[0].volume.begin_stop();
    rig.write(&mut handle, 1, 2);
    assert_eq!(rig.stored(0, 1), 2, "through");
    assert_eq!(rig.flush(&mut handle), Some(Ok(())));
    assert!(rig.cache.is_at_rest(&rig.disks[0].volume));
    assert_eq!(rig.stored(0, 0), 1);
}

/// A payload of one block; a stop begins during its copy.
struct StoppingPayload(Arc<Volume<Plain>>);

impl Payload for StoppingPayload {
    fn len(&self) -> usize {
        BLOCK_BYTES
    }

    fn copy_to(&self, _at: usize, to: &mut [u8]) {
        to.fill(9);
        self.0.begin_stop();
    }
}

#[test]
fn a_write_that_a_stop_overtakes_goes_through() {
    for is_dirty_before in [false, true] {
        let mut rig = TestBench::new(32, [options(16)]);
        let mut handle = rig.handle(0);
        if is_dirty_before {
            rig.write(&mut handle, 3, 1);
        }
        let volume = Arc::clone(&rig.disks[0].volume);
        let mut write = WriteRequest::new(rig.token(), 3 * BLOCK, 4096, false);
        let payload = StoppingPayload(Arc::clone(&volume));
        let status = rig.cache.write(&volume, &mut handle, rig.now, &mut write, &payload);
        assert_eq!(status, Status::Pending, "it could be acknowledged after all has been written");
        assert_eq!(
            rig.finish_write(&mut handle, &mut write, &[9; BLOCK_BYTES], status),
            Status::Done
        );
        assert_eq!(rig.stored(0, 3), 9);
    }
}

#[test]
fn the_lazy_writer_joins_neighbors_in_the_order_of_the_disk() {
    let mut rig = TestBench::new(64, [options(600)]);
    let mut handle = rig.handle(0);
    for block in [400, 5, 3, 9, 4, 401] {
        rig.write(&mut handle, block, 1);
    }
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.writes(), [(3, 3), (9, 1), (400, 2)]);
}

#[test]
fn reads_go_to_the_store_before_background_writes() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 0, 1);
    rig.now += 10 * SECOND;
    let mut read = ReadRequest::new(99, 40 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut read), Status::Pending);
    rig.run();
    let kinds: Vec<_> = rig.ops.iter().map(|op| op.1).collect();
    assert_eq!(kinds, [StoreOpKind::Read, StoreOpKind::Write { fua: false }]);
    rig.cache.close_handle(handle);
    read.abandon(rig.cache.frames());
}

#[test]
fn reads_without_end_do_not_keep_a_write_from_the_store() {
    let mut rig = TestBench::new(128, [options(600)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 0, 1);
    let mut ops = Vec::new();
    let token = rig.token();
    rig.cache.flush(&handle, rig.now, token, false);
    let mut reads: Vec<_> =
        (0..60).map(|i| ReadRequest::new(100 + i, (2 * i + 9) * BLOCK, 4096)).collect();
    for read in &mut reads {
        rig.cache.read(&mut handle, rig.now, read);
    }
    let disk = &mut rig.disks[0];
    rig.cache.poll(&disk.volume, &disk.recorder, rig.now, 32, &mut ops);
    assert!(ops.iter().any(|op| matches!(op.kind, StoreOpKind::Write { .. })), "32 reads only");
    for op in ops {
        disk.store.submit(rig.now, rig.cache.frames(), op);
    }
    rig.run();
    assert_eq!(TestBench::finished(&handle), Some(Ok(())));
    rig.cache.close_handle(handle);
    for read in &mut reads {
        read.abandon(rig.cache.frames());
    }
}

#[test]
fn a_discard_does_not_hang_the_lazy_writer() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    rig.write(&mut handle, 2, 1);
    let token = rig.token();
    rig.cache.discard_or_zero(&mut handle, rig.now, StoreOpKind::Discard, 0..4, token);
    rig.now += 10 * SECOND;
    rig.run();
    assert_eq!(TestBench::finished(&handle), Some(Ok(())));
    assert!(rig.cache.is_at_rest(&rig.disks[0].volume), "the discarded block need not be written");
}

#[test]
fn discards_that_wait_for_a_write_add_no_operation_to_a_poll() {
    let mut rig = TestBench::new(512, [options(1024)]);
    let [mut handle, mut other] = [rig.handle(0), rig.handle(0)];
    for block in 0..256 {
        rig.write(&mut handle, block, 1);
    }
    rig.disks[0].stall.store(true, Ordering::Release);
    assert_eq!(rig.flush(&mut handle), None, "the writes are in the store");
    let zero = StoreOpKind::Zero { keep_allocated: false };
    for block in 0..256 {
        let status =
            rig.cache.discard_or_zero(&mut handle, rig.now, zero, block..block + 1, 1000 + block);
        assert_eq!(status, Status::Pending);
    }
    rig.cache.check(rig.now);
    let before = rig.ops.len();
    let mut miss = ReadRequest::new(90, 700 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut other, rig.now, &mut miss), Status::Pending);
    rig.run();
    rig.run();
    assert_eq!(rig.ops[before..], [(0, StoreOpKind::Read, 700, 1)]);
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run();
    let zeroed = rig.ops.iter().filter(|op| op.1 == zero).count();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    let is_success = |completion: &Completion<_>| {
        matches!(completion, Completion::Finished { result: Ok(()), .. })
    };
    assert_eq!((zeroed, completions.iter().filter(|it| is_success(it)).count()), (256, 257));
    assert!((0..256).all(|block| rig.stored(0, block) == 0), "zeroed after they were written");
    miss.abandon(rig.cache.frames());
    rig.cache.close_handle(other);
    rig.cache.check(rig.now);
}

#[test]
fn near_the_dirty_limit_writes_are_acknowledged_later() {
    let values = [("dirty-threshold", 100), ("dirty-limit", 200)];
    let mut rig = TestBench::new(100, [tuned(600, &values)]);
    let mut handle = rig.handle(0);
    // First the speed of the store is measured: a block in 10 ms.
    for block in 0..100 {
        rig.now += 10 * MILLISECOND;
        rig.write(&mut handle, block, 1);
        rig.flush(&mut handle);
    }
    rig.disks[0].stall.store(true, Ordering::Release);
    let mut delays = Vec::new();
    for block in 200..219 {
        match rig.try_write(&mut handle, [block, 1], 1, false) {
            Status::Done => assert!(delays.is_empty(), "not every write near the limit is late"),
            Status::DoneAt(at) => delays.push(at - rig.now),
            other => panic!("{other:?}"),
        }
    }
    assert!(delays.len() >= 3 && delays.is_sorted() && delays[0] > 0, "{delays:?}");
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run();
}

#[test]
fn a_fua_write_is_stable_though_the_lazy_writer_took_a_part_of_it() {
    let mut rig = TestBench::new(32, [VolumeOptions { page_blocks: 2, ..options(16) }]);
    let [mut one, mut other] = [rig.handle(0), rig.handle(0)];
    // Block 1 enters the cache immediately; block 2, written in part, must be filled first.
    let data = vec![5; 5000];
    let mut write = WriteRequest::new(rig.token(), BLOCK, 5000, true);
    let volume = Arc::clone(&one.volume);
    assert_eq!(rig.cache.write(&volume, &mut one, rig.now, &mut write, &data), Status::Pending);
    let (mut reads, mut done) = (Vec::new(), Vec::new());
    let disk = &mut rig.disks[0];
    rig.cache.poll(&disk.volume, &disk.recorder, rig.now, 1, &mut reads);
    assert_eq!(reads[0].kind, StoreOpKind::Read);
    // During the fill the lazy writer writes block 1, and block 0 becomes dirty.
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.writes(), [(1, 1)]);
    rig.write(&mut other, 0, 6);
    let disk = &mut rig.disks[0];
    disk.store.submit(rig.now, rig.cache.frames(), reads.remove(0));
    disk.store.reap(rig.now, rig.cache.frames(), &mut done);
    rig.cache.complete(&disk.volume, &disk.recorder, rig.now, done.remove(0));
    let status = rig.finish_write(&mut one, &mut write, &data, Status::Pending);
    assert_eq!(status, Status::Done);
    for seed in 0..64 {
        let mut byte = [0];
        rig.disks[0].platter.lock().unwrap().after_crash(seed).read(BLOCK, &mut byte);
        assert_eq!(byte, [5], "a write that was forced is gone after a crash");
    }
}

#[test]
fn ignored_flushes_lose_nothing_older_than_the_bound_in_age_max() {
    const AGE_MAX: Nanos = SECOND;
    const STEP: Nanos = 20 * MILLISECOND;
    const BLOCKS: u64 = 61;
    let tuned = tuned(BLOCKS, &[("age-max", AGE_MAX / MILLISECOND)]);
    let ignoring = VolumeOptions { flush_mode: FlushMode::Ignore, ..tuned };
    let mut rig = TestBench::new(512, [ignoring]);
    let mut handle = rig.handle(0);
    let mut written: Vec<(Nanos, u64, u8)> = Vec::new();
    // The client is never idle: only their age causes the writeback of pages.
    for byte in 1..=250 {
        let block = u64::from(byte) * 7 % BLOCKS;
        let status = rig.try_write(&mut handle, [block, 1], byte, true);
        assert_eq!(status, Status::Done, "FUA is ignored");
        let (token, before) = (rig.token(), rig.ops.len());
        assert_eq!(rig.cache.flush(&handle, rig.now, token, false), Status::Done, "and a flush");
        assert_eq!(rig.ops.len(), before);
        written.push((rig.now, block, byte));
        rig.run_until(rig.now + STEP);
        let has_all = |bytes: &SparseBytes, age: Nanos, after: &str| {
            for block in 0..BLOCKS {
                let old = |write: &(Nanos, u64, u8)| write.1 == block && write.0 + age <= rig.now;
                let Some(least) = written.iter().rposition(old) else { continue };
                let mut found = [0];
                bytes.read(block * BLOCK, &mut found);
                let mut versions = written[least..].iter().filter(|write| write.1 == block);
                assert!(versions.any(|write| [write.2] == found), "block {block} after {after}");
            }
        };
        let platter = rig.disks[0].platter.lock().unwrap();
        has_all(platter.current(), AGE_MAX + STEP, "a kill");
        for seed in 0..8 {
            has_all(&platter.after_crash(seed), 2 * AGE_MAX + STEP, "a loss of power");
        }
    }
    let totals = rig.disks[0].volume.totals();
    let runs = [Counter::LazyAgeRuns, Counter::LazyIdleRuns, Counter::LazyThresholdRuns];
    let [by_age, others @ ..] = runs.map(|counter| totals.get(counter));
    assert!(by_age > 0 && others == [0, 0], "{by_age} runs by age, {others:?} others");
}

#[test]
fn where_flushes_are_ignored_a_busy_store_is_flushed_once_an_age_and_an_idle_one_at_once() {
    const AGE_MAX: Nanos = SECOND;
    const BLOCKS: u64 = 4096;
    let tuned = tuned(BLOCKS, &[("age-max", AGE_MAX / MILLISECOND)]);
    let ignoring = VolumeOptions { flush_mode: FlushMode::Ignore, ..tuned };
    let mut rig = TestBench::new(64, [ignoring]);
    let mut handle = rig.handle(0);
    let flushes = |rig: &TestBench| rig.ops.iter().filter(|op| op.1 == StoreOpKind::Flush).count();
    // The lazy writer finishes its batches again and again, but there are always further dirty
    // blocks.
    for block in 0..1000 {
        rig.write(&mut handle, block, 1);
        rig.run_until(rig.now + 10 * MILLISECOND);
    }
    assert!(rig.writes().len() > 20, "{:?}", rig.writes());
    assert!((8..=10).contains(&flushes(&rig)), "{} flushes in 10 s", flushes(&rig));
    rig.run_until(rig.now + 3 * AGE_MAX);
    assert_eq!(rig.gauge(Gauge::Dirty), 0);
    let (written, before) = (rig.writes().len(), flushes(&rig));
    rig.run_until(rig.now + 3 * AGE_MAX);
    assert_eq!(flushes(&rig), before, "nothing was written");
    rig.write(&mut handle, 7, 2);
    while rig.writes().len() == written {
        rig.run_until(rig.now + 10 * MILLISECOND);
    }
    assert_eq!(flushes(&rig), before + 1, "at once");
}

#[test]
fn runs_of_unclean_blocks_end_where_the_state_changes() {
    let mut rig = TestBench::new(64, [options(1024)]);
    let mut handle = rig.handle(0);
    // A region ends at block 256.
    for block in 250..260 {
        rig.write(&mut handle, block, 1);
    }
    let volume = Arc::clone(&rig.disks[0].volume);
    for (blocks, expected) in [
        (0..1024, (250, false)),
        (250..1024, (10, true)),
        (255..256, (1, true)),
        (258..259, (1, true)),
        (260..1024, (764, false)),
    ] {
        assert_eq!(rig.cache.unclean_run(&volume, blocks.clone()), expected, "{blocks:?}");
    }
    rig.flush(&mut handle).unwrap().unwrap();
    assert_eq!(rig.cache.unclean_run(&volume, 0..1024), (1024, false));
}

/// A page with a block that is being discarded waits; then the first writer that may start its
/// writeback starts it for all writers.
#[test]
fn a_round_is_stable_for_the_writers_that_wait_for_it_whoever_starts_it() {
    let mut rig = TestBench::new(32, [VolumeOptions { page_blocks: 4, ..options(16) }]);
    let [mut one, mut other] = [rig.handle(0), rig.handle(0)];
    let volume = Arc::clone(&one.volume);
    let token = rig.token();
    let status = rig.cache.discard_or_zero(&mut other, rig.now, StoreOpKind::Discard, 0..1, token);
    assert_eq!(status, Status::Pending);
    let mut forced = WriteRequest::new(rig.token(), BLOCK, 4096, true);
    let data = vec![5; 4096];
    let status = rig.cache.write(&volume, &mut one, rig.now, &mut forced, &data);
    assert_eq!(status, Status::Pending, "the round waits for the discard");
    // The discard ends, and another writer arrives before the cache continues with the page.
    lock(&volume.queue).remove_exclusive(0);
    volume.exclusives.fetch_sub(1, Ordering::AcqRel);
    volume.set_write_mode(WriteMode::Through).unwrap();
    let mut plain = WriteRequest::new(rig.token(), 2 * BLOCK, 4096, false);
    let status = rig.cache.write(&volume, &mut other, rig.now, &mut plain, &data);
    assert_eq!(status, Status::Pending);
    let queue = lock(&volume.queue);
    let kinds: Vec<_> = queue.forced.iter().map(|op| op.kind).collect();
    assert_eq!(kinds, [StoreOpKind::Write { fua: true }]);
}
