//! Tests of write-order groups with failing stores, and of the triggers that write blocks held
//! back.

use super::rig::{Plain, TestBench, options};
use crate::clock::SECOND;
use crate::counters::{Counter, Gauge};
use crate::mapping::{Access, Mapping};
use crate::mode::{FlushMode, WriteMode};
use crate::request::{Status, WriteRequest};
use crate::store::{Fault, StoreOpKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use crate::volume::VolumeOptions;
use crate::write_order::{GroupId, OrderError};
use std::sync::Arc;

fn write(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    group: GroupId,
    block: u64,
    byte: u8,
) -> Status {
    let len = u32::try_from(BLOCK).unwrap();
    let data = vec![byte; len as usize];
    let mut write = WriteRequest::new(rig.token(), block * BLOCK, len, false);
    write.group = Some(group);
    let status = rig.cache.write(&Arc::clone(&handle.volume), handle, rig.now, &mut write, &data);
    rig.finish_write(handle, &mut write, &data, status)
}

fn groups(rig: &TestBench) -> [GroupId; 2] {
    [rig.cache.group(&rig.disks[0].volume), rig.cache.group(&rig.disks[0].volume)]
}

fn order(rig: &TestBench, [before, after]: [GroupId; 2]) -> Result<(), OrderError> {
    rig.cache.order(&rig.disks[0].volume, before, after)
}

fn kinds(rig: &TestBench) -> Vec<(StoreOpKind, u64)> {
    rig.ops.iter().map(|&(_, kind, block, _)| (kind, block)).collect()
}

const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };

#[test]
fn the_lazy_writer_writes_the_first_group_flushes_and_writes_the_second() {
    for flush_mode in [FlushMode::Keep, FlushMode::Ignore] {
        let mut rig = TestBench::new(64, [VolumeOptions { flush_mode, ..options(64) }]);
        let mut handle = rig.handle(0);
        let [a, b] = groups(&rig);
        // The page of the second group precedes that of the first one and became dirty earlier.
        assert_eq!(write(&mut rig, &mut handle, b, 3, 2), Status::Done);
        assert_eq!(write(&mut rig, &mut handle, a, 40, 1), Status::Done);
        order(&rig, [a, b]).unwrap();
        assert_eq!(rig.gauge(Gauge::Held), BLOCK);
        rig.run_until(rig.now + 20 * SECOND);
        assert_eq!(kinds(&rig)[..3], [(WRITE, 40), (StoreOpKind::Flush, 0), (WRITE, 3)]);
        assert_eq!((rig.gauge(Gauge::Held), rig.gauge(Gauge::Dirty)), (0, 0));
        let flushes = rig.disks[0].volume.totals().get(Counter::OrderFlushes);
        assert!(flushes <= 1, "{flushes} flushes for one order");
    }
}

#[test]
fn a_flush_and_a_write_through_push_what_they_wait_for() {
    for mode in [WriteMode::Back, WriteMode::Through] {
        let mut rig = TestBench::new(64, [options(64)]);
        let mut handle = rig.handle(0);
        let [a, b] = groups(&rig);
        assert_eq!(write(&mut rig, &mut handle, a, 40, 1), Status::Done);
        order(&rig, [a, b]).unwrap();
        if mode == WriteMode::Through {
            rig.disks[0].volume.begin_stop();
        }
        assert_eq!(write(&mut rig, &mut handle, b, 3, 2), Status::Done);
        let through = mode == WriteMode::Through;
        assert_eq!(rig.stored(0, 3), if through { 2 } else { 0 });
        assert_eq!(rig.flush(&mut handle), Some(Ok(())));
        assert_eq!(kinds(&rig)[..3], [(WRITE, 40), (StoreOpKind::Flush, 0), (WRITE, 3)]);
    }
}

#[test]
fn a_failed_write_of_the_first_group_holds_the_second_back_and_flushes_say_so() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    let [a, b] = groups(&rig);
    assert_eq!(write(&mut rig, &mut handle, a, 40, 1), Status::Done);
    order(&rig, [a, b]).unwrap();
    assert_eq!(write(&mut rig, &mut handle, b, 3, 2), Status::Done);
    rig.disks[0].plan.set(vec![Fault::Writes(40 * BLOCK..41 * BLOCK)]);
    let error = rig.flush(&mut handle).unwrap().unwrap_err();
    assert!(error.message.contains("1 blocks are held back"), "{error}");
    rig.run_until(rig.now + 30 * SECOND);
    assert_eq!((rig.stored(0, 3), rig.gauge(Gauge::Held)), (0, BLOCK));
    let tries = rig.writes().len();
    assert!((3..20).contains(&tries), "{tries} tries in 30 s: it backs off");
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 30 * SECOND);
    assert_eq!((rig.stored(0, 40), rig.stored(0, 3)), (1, 2));
    assert_eq!(rig.gauge(Gauge::Held), 0);
    rig.cache.check(rig.now);
}

#[test]
fn after_a_failed_flush_of_the_store_the_second_group_is_held_for_ever() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    let [a, b] = groups(&rig);
    assert_eq!(write(&mut rig, &mut handle, a, 40, 1), Status::Done);
    order(&rig, [a, b]).unwrap();
    assert_eq!(write(&mut rig, &mut handle, b, 3, 2), Status::Done);
    assert!(!rig.cache.is_held_for_ever(&rig.disks[0].volume));
    rig.disks[0].plan.set(vec![Fault::Flushes]);
    rig.run_until(rig.now + 30 * SECOND);
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 30 * SECOND);
    assert_eq!((rig.stored(0, 40), rig.stored(0, 3)), (1, 0));
    assert!(rig.cache.is_held_for_ever(&rig.disks[0].volume));
}

#[test]
fn a_write_on_a_page_that_must_be_stable_before_it_waits_for_that_page() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    let [a, b] = groups(&rig);
    assert_eq!(write(&mut rig, &mut handle, a, 5, 1), Status::Done);
    order(&rig, [a, b]).unwrap();
    assert_eq!(write(&mut rig, &mut handle, b, 5, 2), Status::Done, "once the first is out");
    assert_eq!(rig.stored(0, 5), 1);
    assert_eq!(rig.disks[0].volume.totals().get(Counter::OrderStalls), 1);
    rig.run_until(rig.now + 20 * SECOND);
    assert_eq!(rig.stored(0, 5), 2);
    assert_eq!(order(&rig, [b, a]), Ok(()), "nothing of the first one is left");
}

#[test]
fn a_mapping_keeps_the_order_of_its_group() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    let [a, b] = groups(&rig);
    let mut mapping = Mapping::new(1, 40 * BLOCK, 4096, Access::Overwrite);
    mapping.set_group(a);
    assert_eq!(rig.cache.map(&mut handle, rig.now, &mut mapping), Status::Done);
    mapping.write(rig.cache.frames(), 40 * BLOCK, &[1; 4096]);
    assert_eq!(rig.cache.unpin(&mut handle, rig.now, &mut mapping), Status::Done);
    order(&rig, [a, b]).unwrap();
    let mut mapping = Mapping::new(1, 3 * BLOCK, 4096, Access::Overwrite);
    mapping.set_group(b);
    assert_eq!(rig.cache.map(&mut handle, rig.now, &mut mapping), Status::Done);
    mapping.write(rig.cache.frames(), 3 * BLOCK, &[2; 4096]);
    assert_eq!(rig.cache.unpin(&mut handle, rig.now, &mut mapping), Status::Done);
    assert_eq!(rig.flush(&mut handle), Some(Ok(())));
    assert_eq!(kinds(&rig)[..3], [(WRITE, 40), (StoreOpKind::Flush, 0), (WRITE, 3)]);
    rig.cache.check(rig.now);
}
