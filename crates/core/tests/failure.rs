//! The failure rules of docs/ARCHITECTURE.md, one test each, and the promises about room, order and
//! pace that are easiest to see from outside.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]

use larder_core::cache::Cache;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::counters::{Counter, Gauge, Recorder};
use larder_core::frames::PlainFrames;
use larder_core::lane::{Completion, Lane, Silent};
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::{
    CrashDisk, CrashStore, DelayStore, Fault, FaultPlan, FaultyStore, Geometry, SparseBytes, Store,
    StoreError, StoreErrorKind, StoreOpKind,
};
use larder_core::units::BLOCK_BYTES_U64 as BLOCK;
use larder_core::volume::{Volume, VolumeOptions};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

type Plain = PlainFrames;

struct Disk {
    volume: Arc<Volume<Plain>>,
    store: Box<dyn Store<Plain>>,
    platter: Arc<Mutex<CrashDisk>>,
    plan: FaultPlan,
    stall: Arc<AtomicBool>,
    recorder: Arc<Recorder>,
}

/// A cache over one or two volumes whose stores fail, stall and remember.
struct Rig {
    cache: Cache<Plain>,
    disks: Vec<Disk>,
    now: Nanos,
    tokens: u64,
    /// What the stores were asked to do: volume, kind, first block, blocks.
    ops: Vec<(usize, StoreOpKind, u64, u64)>,
}

fn options(blocks: u64) -> VolumeOptions {
    let geometry = Geometry { length: blocks * BLOCK, granule: 512, read_only: false };
    VolumeOptions::new("v", geometry)
}

fn tuned(blocks: u64, values: &[(&str, u64)]) -> VolumeOptions {
    let mut options = options(blocks);
    for (name, value) in values {
        options.tunables.set(name, *value).unwrap();
    }
    options
}

impl Rig {
    fn new(frames: u32, volumes: impl IntoIterator<Item = VolumeOptions>) -> Self {
        let cache = Cache::new(PlainFrames::new(frames), 1);
        let disk = |options: VolumeOptions| {
            let crash = CrashStore::new(options.geometry, SparseBytes::default(), 1);
            let platter = crash.disk();
            let delay = DelayStore::new(crash, 0);
            let (stall, plan) = (delay.stall_switch(), FaultPlan::default());
            let store = Box::new(FaultyStore::new(delay, plan.clone()));
            let volume = cache.add_volume(options, Box::new(Silent));
            let recorder = cache.recorder(&volume);
            Disk { volume, store, platter, plan, stall, recorder }
        };
        let disks = volumes.into_iter().map(disk).collect();
        Rig { cache, disks, now: SECOND, tokens: 0, ops: Vec::new() }
    }

    fn lane(&self, disk: usize) -> Lane<Plain> {
        self.cache.open_lane(&self.disks[disk].volume, Box::new(Silent))
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Gives to the stores, and takes from them, until nothing moves.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            for (index, disk) in self.disks.iter_mut().enumerate() {
                let (mut ops, mut done) = (Vec::new(), Vec::new());
                self.cache.poll(&disk.volume, &disk.recorder, self.now, 16, &mut ops);
                for op in ops {
                    self.ops.push((index, op.kind, op.offset / BLOCK, op.len / BLOCK));
                    disk.store.submit(self.now, self.cache.frames(), op);
                }
                disk.store.reap(self.now, self.cache.frames(), &mut done);
                for done in done {
                    moved = true;
                    self.cache.complete(&disk.volume, &disk.recorder, self.now, done);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while self.now < end {
            self.now += 10 * MILLISECOND;
            self.run();
        }
    }

    /// Writes `byte` all over `blocks`; where that stands when nothing moves any more.
    fn try_write(
        &mut self,
        lane: &mut Lane<Plain>,
        blocks: [u64; 2],
        byte: u8,
        fua: bool,
    ) -> Status {
        let len = u32::try_from(blocks[1] * BLOCK).unwrap();
        let data = vec![byte; len as usize];
        let mut task = WriteTask::new(self.token(), blocks[0] * BLOCK, len, fua);
        let mut status = self.cache.write(lane, self.now, &mut task, &data);
        while matches!(status, Status::Pending | Status::Stalled) {
            self.run();
            let mut mail = Vec::new();
            lane.collect(&mut mail);
            if mail.is_empty() {
                return status;
            }
            for completion in mail {
                status = match completion {
                    Completion::Unstalled if status != Status::Stalled => continue,
                    Completion::Unstalled | Completion::Continue { .. } => {
                        self.cache.write(lane, self.now, &mut task, &data)
                    }
                    other => self.cache.write_completed(lane, self.now, &mut task, other),
                };
            }
        }
        status
    }

    fn write(&mut self, lane: &mut Lane<Plain>, block: u64, byte: u8) {
        let status = self.try_write(lane, [block, 1], byte, false);
        assert!(matches!(status, Status::Done | Status::DoneAt(_)), "{status:?}");
    }

    /// Begins reads, then lets the stores work; the first byte of each, or its error.
    fn reads(
        &mut self,
        lane: &mut Lane<Plain>,
        blocks: &[[u64; 2]],
    ) -> Vec<Result<u8, StoreError>> {
        let mut pending = HashMap::new();
        let mut ended = Vec::new();
        for (index, [block, count]) in blocks.iter().enumerate() {
            let len = u32::try_from(count * BLOCK).unwrap();
            let mut assembly = Assembly::new(self.token(), block * BLOCK, len);
            let status = self.cache.read(lane, self.now, &mut assembly);
            ended.push((index, status, assembly.token));
            pending.insert(assembly.token, assembly);
        }
        self.run();
        let mut mail = Vec::new();
        lane.collect(&mut mail);
        for completion in mail {
            let (Completion::Filled { token, .. } | Completion::Failed { token, .. }) = &completion
            else {
                continue;
            };
            let token = *token;
            let status = pending.get_mut(&token).unwrap().absorb(self.cache.frames(), completion);
            ended.iter_mut().find(|end| end.2 == token).unwrap().1 = status;
        }
        let mut answer = |(_, status, token)| {
            let mut assembly = pending.remove(&token).unwrap();
            match status {
                Status::Failed(error) => Err(error),
                Status::Done => {
                    let mut bytes = vec![0; assembly.len as usize];
                    assembly.copy_to(self.cache.frames(), &mut bytes);
                    assembly.release(self.cache.frames());
                    Ok(bytes[0])
                }
                other => panic!("a read is {other:?}"),
            }
        };
        ended.into_iter().map(&mut answer).collect()
    }

    fn read(&mut self, lane: &mut Lane<Plain>, block: u64) -> Result<u8, StoreError> {
        self.reads(lane, &[[block, 1]]).remove(0)
    }

    /// Flushes; none if it does not come to an end.
    fn flush(&mut self, lane: &mut Lane<Plain>) -> Option<Result<(), StoreError>> {
        let token = self.token();
        assert_eq!(self.cache.flush(lane, self.now, token), Status::Pending);
        self.run();
        Self::finished(lane)
    }

    fn finished(lane: &Lane<Plain>) -> Option<Result<(), StoreError>> {
        let mut mail = Vec::new();
        lane.collect(&mut mail);
        mail.into_iter().find_map(|completion| match completion {
            Completion::Finished { result, .. } => Some(result),
            _ => None,
        })
    }

    fn stored(&self, disk: usize, block: u64) -> u8 {
        let mut byte = [0];
        self.disks[disk].platter.lock().unwrap().current().read(block * BLOCK, &mut byte);
        byte[0]
    }

    fn gauge(&self, gauge: Gauge) -> u64 {
        self.cache.gauge(&self.disks[0].volume, gauge)
    }

    fn writes(&self) -> Vec<(u64, u64)> {
        let is_write = |kind| matches!(kind, StoreOpKind::Write { .. });
        let writes = self.ops.iter().filter(|op| is_write(op.1));
        writes.map(|&(_, _, block, count)| (block, count)).collect()
    }
}

fn kind(result: Option<Result<(), StoreError>>) -> Option<StoreErrorKind> {
    result.expect("the flush comes to an end").err().map(|error| error.kind)
}

#[test]
fn a_failed_read_fails_only_its_request_and_is_not_cached() {
    let mut rig = Rig::new(32, [VolumeOptions { page_blocks: 4, ..options(16) }]);
    let mut lane = rig.lane(0);
    rig.disks[0].plan.set(vec![Fault::Reads(BLOCK..BLOCK + 1)]);
    let answers = rig.reads(&mut lane, &[[0, 1], [1, 1], [2, 2], [2, 2], [4, 1]]);
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, false, false], "the neighbours are readable");
    assert_eq!(rig.read(&mut lane, 1).unwrap_err().kind, StoreErrorKind::Io);
    rig.disks[0].plan.set(Vec::new());
    assert_eq!(rig.read(&mut lane, 1), Ok(0), "the failure was not cached");
    assert_eq!(rig.flush(&mut lane), Some(Ok(())), "a failed read is no matter of a flush");
    rig.cache.check(rig.now);
}

#[test]
fn a_failed_write_back_stays_dirty_is_retried_and_told_to_every_lane() {
    let mut rig = Rig::new(32, [options(16)]);
    let [mut one, mut two] = [rig.lane(0), rig.lane(0)];
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
    for lane in [&mut one, &mut two] {
        assert_eq!(kind(rig.flush(lane)), Some(StoreErrorKind::Io), "told once");
        assert_eq!(rig.flush(lane), Some(Ok(())), "and only once");
    }
    let mut three = rig.lane(0);
    assert_eq!(rig.flush(&mut three), Some(Ok(())), "made good before this lane came");
}

#[test]
fn a_full_store_is_named_and_its_data_is_kept_until_there_is_space() {
    let mut rig = Rig::new(32, [options(16)]);
    let mut lane = rig.lane(0);
    rig.disks[0].plan.set(vec![Fault::NoSpace]);
    rig.write(&mut lane, 0, 1);
    assert_eq!(kind(rig.flush(&mut lane)), Some(StoreErrorKind::NoSpace));
    let status = rig.try_write(&mut lane, [1, 1], 2, true);
    assert!(matches!(status, Status::Failed(e) if e.kind == StoreErrorKind::NoSpace));
    assert_eq!(rig.read(&mut lane, 0), Ok(1));
    rig.disks[0].plan.set(Vec::new());
    rig.flush(&mut lane);
    assert_eq!(rig.flush(&mut lane), Some(Ok(())));
    assert_eq!(rig.stored(0, 0), 1);
}

#[test]
fn a_store_that_shrinks_is_named_and_what_is_cached_stays() {
    let mut rig = Rig::new(32, [options(16)]);
    let mut lane = rig.lane(0);
    rig.write(&mut lane, 9, 9);
    rig.disks[0].plan.set(vec![Fault::Shrunk(8 * BLOCK)]);
    assert_eq!(rig.read(&mut lane, 12).unwrap_err().kind, StoreErrorKind::Short);
    assert_eq!(kind(rig.flush(&mut lane)), Some(StoreErrorKind::Short));
    assert_eq!(rig.read(&mut lane, 9), Ok(9));
    assert_eq!(rig.read(&mut lane, 2), Ok(0));
}

#[test]
fn a_store_that_stalls_stops_neither_hits_nor_other_volumes_and_loses_nothing() {
    let mut rig = Rig::new(64, [options(16), options(16)]);
    let [mut one, mut other] = [rig.lane(0), rig.lane(1)];
    rig.write(&mut one, 1, 11);
    rig.disks[0].stall.store(true, Ordering::Release);
    assert_eq!(rig.flush(&mut one), None, "the store does not answer");
    assert_eq!(rig.read(&mut one, 1), Ok(11), "a hit while a write of it hangs");
    rig.write(&mut one, 1, 12);
    rig.write(&mut other, 1, 21);
    assert_eq!(rig.flush(&mut other), Some(Ok(())));
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run();
    assert_eq!(Rig::finished(&one), Some(Ok(())));
    assert_eq!(rig.flush(&mut one), Some(Ok(())));
    assert_eq!((rig.stored(0, 1), rig.stored(1, 1)), (12, 21));
}

#[test]
fn a_failed_flush_fails_every_later_one() {
    let mut rig = Rig::new(32, [options(16)]);
    let [mut one, mut two] = [rig.lane(0), rig.lane(0)];
    rig.write(&mut one, 0, 1);
    rig.disks[0].plan.set(vec![Fault::Flushes]);
    assert_eq!(kind(rig.flush(&mut one)), Some(StoreErrorKind::Io));
    rig.disks[0].plan.set(Vec::new());
    for lane in [&mut one, &mut two] {
        for _ in 0..3 {
            assert_eq!(kind(rig.flush(lane)), Some(StoreErrorKind::Io));
        }
    }
}

#[test]
fn at_the_dirty_limit_of_a_failing_store_writes_fail_instead_of_hanging() {
    let mut rig = Rig::new(50, [tuned(64, &[("dirty-limit", 200)])]);
    let mut lane = rig.lane(0);
    rig.disks[0].plan.set(vec![Fault::Writes(0..64 * BLOCK)]);
    let statuses: Vec<_> = (0..20)
        .map(|block| {
            let status = rig.try_write(&mut lane, [block, 1], 1, false);
            rig.run_until(rig.now + SECOND);
            status
        })
        .collect();
    assert!(statuses[..10].iter().all(|s| matches!(s, Status::Done)), "{statuses:?}");
    assert!(statuses[10..].iter().all(|s| matches!(s, Status::Failed(_))), "{statuses:?}");
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 30 * SECOND);
    rig.write(&mut lane, 11, 5);
}

#[test]
fn a_slow_reader_does_not_hold_up_a_writer_and_its_frame_comes_back() {
    let mut rig = Rig::new(32, [options(16)]);
    let mut lane = rig.lane(0);
    rig.write(&mut lane, 5, 1);
    let mut slow = Assembly::new(1000, 5 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut lane, rig.now, &mut slow), Status::Done);
    rig.write(&mut lane, 5, 2);
    let mut bytes = vec![0; 4096];
    slow.copy_to(rig.cache.frames(), &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 1), "what the slow reader holds does not change");
    assert_eq!(rig.read(&mut lane, 5), Ok(2));
    assert_eq!(lane.volume().totals().get(Counter::ReplacedBlocks), 1);
    assert_eq!(rig.gauge(Gauge::Resident), 2 * BLOCK, "held memory counts");
    slow.release(rig.cache.frames());
    rig.cache.check(rig.now);
    assert_eq!(rig.gauge(Gauge::Resident), BLOCK);
}

#[test]
fn frames_that_are_held_for_long_do_not_hide_others_that_are_free_again() {
    let mut rig = Rig::new(40, [options(64)]);
    let mut lane = rig.lane(0);
    let mut slow: Vec<_> = (0..20).map(|i| Assembly::new(1000 + i, i * BLOCK, 4096)).collect();
    for (block, slow) in (0..).zip(&mut slow) {
        rig.write(&mut lane, block, 1);
        assert_eq!(rig.cache.read(&mut lane, rig.now, slow), Status::Done);
        rig.write(&mut lane, block, 2);
    }
    // The first and the last one stay; the others are free to be used again.
    slow[1..19].iter_mut().for_each(|slow| slow.release(rig.cache.frames()));
    for block in 20..38 {
        rig.write(&mut lane, block, 3);
    }
    assert_eq!(lane.volume().totals().get(Counter::EvictedPages), 0, "nothing had to go");
    [0, 19].into_iter().for_each(|i: usize| slow[i].release(rig.cache.frames()));
    rig.cache.check(rig.now);
}

#[test]
fn floors_and_ceilings_hold_between_two_volumes() {
    let ceiling = VolumeOptions { min_frames: 10, max_frames: 12, ..options(64) };
    let mut rig = Rig::new(40, [ceiling, options(64)]);
    let [mut one, mut other] = [rig.lane(0), rig.lane(1)];
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
    let mut rig = Rig::new(32, [options(16)]);
    let mut lane = rig.lane(0);
    rig.write(&mut lane, 0, 1);
    assert_eq!(rig.stored(0, 0), 0, "lazy");
    rig.disks[0].volume.begin_stop();
    rig.write(&mut lane, 1, 2);
    assert_eq!(rig.stored(0, 1), 2, "through");
    assert_eq!(rig.flush(&mut lane), Some(Ok(())));
    assert!(rig.cache.is_at_rest(&rig.disks[0].volume));
    assert_eq!(rig.stored(0, 0), 1);
}

#[test]
fn the_lazy_writer_joins_neighbours_in_the_order_of_the_disk() {
    let mut rig = Rig::new(64, [options(600)]);
    let mut lane = rig.lane(0);
    for block in [400, 5, 3, 9, 4, 401] {
        rig.write(&mut lane, block, 1);
    }
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.writes(), [(3, 3), (9, 1), (400, 2)]);
}

#[test]
fn reads_go_to_the_store_before_background_writes() {
    let mut rig = Rig::new(64, [options(64)]);
    let mut lane = rig.lane(0);
    rig.write(&mut lane, 0, 1);
    rig.now += 10 * SECOND;
    let mut assembly = Assembly::new(99, 40 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut lane, rig.now, &mut assembly), Status::Pending);
    rig.run();
    let kinds: Vec<_> = rig.ops.iter().map(|op| op.1).collect();
    assert_eq!(kinds, [StoreOpKind::Read, StoreOpKind::Write { fua: false }]);
    rig.cache.close_lane(lane);
    assembly.abandon(rig.cache.frames());
}

#[test]
fn reads_without_end_do_not_keep_a_write_from_the_store() {
    let mut rig = Rig::new(128, [options(600)]);
    let mut lane = rig.lane(0);
    rig.write(&mut lane, 0, 1);
    let mut ops = Vec::new();
    let token = rig.token();
    rig.cache.flush(&mut lane, rig.now, token);
    let mut reads: Vec<_> =
        (0..60).map(|i| Assembly::new(100 + i, (i + 9) * BLOCK, 4096)).collect();
    for read in &mut reads {
        rig.cache.read(&mut lane, rig.now, read);
    }
    let disk = &mut rig.disks[0];
    rig.cache.poll(&disk.volume, &disk.recorder, rig.now, 32, &mut ops);
    assert!(ops.iter().any(|op| matches!(op.kind, StoreOpKind::Write { .. })), "32 reads only");
    ops.into_iter().for_each(|op| disk.store.submit(rig.now, rig.cache.frames(), op));
    rig.run();
    assert_eq!(Rig::finished(&lane), Some(Ok(())));
    rig.cache.close_lane(lane);
    reads.iter_mut().for_each(|read| read.abandon(rig.cache.frames()));
}

#[test]
fn a_discard_does_not_hang_the_lazy_writer() {
    let mut rig = Rig::new(32, [options(16)]);
    let mut lane = rig.lane(0);
    rig.write(&mut lane, 2, 1);
    let token = rig.token();
    rig.cache.exclude(&mut lane, rig.now, StoreOpKind::Discard, 0..4, token);
    rig.now += 10 * SECOND;
    rig.run();
    assert_eq!(Rig::finished(&lane), Some(Ok(())));
    assert!(rig.cache.is_at_rest(&rig.disks[0].volume), "the discarded block need not be written");
}

#[test]
fn near_the_dirty_limit_writes_are_acknowledged_later() {
    let values = [("dirty-threshold", 100), ("dirty-limit", 200)];
    let mut rig = Rig::new(100, [tuned(600, &values)]);
    let mut lane = rig.lane(0);
    // The speed of the store is learnt first: a block in 10 ms.
    for block in 0..100 {
        rig.now += 10 * MILLISECOND;
        rig.write(&mut lane, block, 1);
        rig.flush(&mut lane);
    }
    rig.disks[0].stall.store(true, Ordering::Release);
    let mut late = Vec::new();
    for block in 200..219 {
        match rig.try_write(&mut lane, [block, 1], 1, false) {
            Status::Done => assert!(late.is_empty(), "not every write near the limit is late"),
            Status::DoneAt(at) => late.push(at - rig.now),
            other => panic!("{other:?}"),
        }
    }
    assert!(late.len() >= 3 && late.is_sorted() && late[0] > 0, "{late:?}");
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run();
}
