//! Tests of frozen volumes and of dropped pages.

use super::rig::{TestBench, tuned};
use crate::clock::SECOND;
use crate::counters::{Counter, Gauge};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeOptions;

/// Returns options without read-ahead: only requested blocks become resident.
fn options(blocks: u64) -> VolumeOptions {
    tuned(blocks, &[("read-ahead-max", 0)])
}

#[test]
fn a_frozen_volume_keeps_what_it_has_and_takes_nothing_in() {
    let mut rig = TestBench::new(32, [VolumeOptions { page_blocks: 2, ..options(64) }]);
    let mut handle = rig.handle(0);
    for block in 0..8 {
        assert_eq!(rig.read(&mut handle, block), Ok(0));
    }
    rig.cache.freeze(&rig.disks[0].volume, true);
    for block in 16..64 {
        assert_eq!(rig.read(&mut handle, block), Ok(0));
    }
    // The frames of reads that bypassed the cache are released.
    rig.cache.check(rig.now);
    assert_eq!(rig.gauge(Gauge::Resident), 8 * BLOCK, "nothing has entered or left");
    // A written block stays if it was resident; otherwise it is dropped when the store has it.
    rig.write(&mut handle, 3, 7);
    rig.write(&mut handle, 40, 8);
    assert_eq!((rig.read(&mut handle, 3), rig.read(&mut handle, 40)), (Ok(7), Ok(8)));
    let now = rig.now;
    rig.run_until(now + 20 * SECOND);
    assert_eq!((rig.stored(0, 3), rig.stored(0, 40)), (7, 8));
    rig.cache.check(rig.now);
    assert_eq!(rig.gauge(Gauge::Resident), 8 * BLOCK, "what was written has gone again");
    let totals = rig.disks[0].volume.totals();
    assert_eq!(totals.get(Counter::ReadMiss), 4, "pages before it was frozen");
    assert_eq!(totals.get(Counter::BypassFrozen), 48 + 1, "each with its reason");
    assert_eq!((totals.get(Counter::ReadBypass), totals.get(Counter::WriteBypass)), (48, 1));
    assert_eq!(totals.get(Counter::BypassWriteAround) + totals.get(Counter::BypassPressure), 0);
    rig.cache.freeze(&rig.disks[0].volume, false);
    assert_eq!(rig.read(&mut handle, 40), Ok(8));
    rig.cache.check(rig.now);
    assert_eq!(rig.gauge(Gauge::Resident), 10 * BLOCK, "its page is in again");
    rig.cache.check(rig.now);
}

#[test]
fn a_frozen_volume_that_fills_the_memory_gives_up_no_more_than_its_misses_need() {
    let mut rig = TestBench::new(16, [options(64)]);
    let mut handle = rig.handle(0);
    for block in 0..16 {
        assert_eq!(rig.read(&mut handle, block), Ok(0));
    }
    rig.cache.freeze(&rig.disks[0].volume, true);
    for block in 16..64 {
        assert_eq!(rig.read(&mut handle, block), Ok(0));
    }
    let evicted = rig.disks[0].volume.totals().get(Counter::EvictedBlocks);
    assert_eq!(evicted, 1, "one frame for all of them, one after the other");
}

#[test]
fn others_take_the_room_of_a_frozen_volume_last() {
    let mut rig = TestBench::new(32, [options(64), options(64)]);
    let [mut frozen, mut other] = [rig.handle(0), rig.handle(1)];
    for block in 0..16 {
        assert_eq!(rig.read(&mut frozen, block), Ok(0));
    }
    rig.cache.freeze(&rig.disks[0].volume, true);
    for block in 0..64 {
        assert_eq!(rig.read(&mut other, block), Ok(0));
    }
    assert_eq!(rig.gauge(Gauge::Resident), 16 * BLOCK, "though it is the coldest of all");
}

#[test]
fn dropping_forgets_what_is_clean_and_keeps_what_is_not() {
    let mut rig = TestBench::new(32, [options(64)]);
    let mut handle = rig.handle(0);
    for block in 0..8 {
        assert_eq!(rig.read(&mut handle, block), Ok(0));
    }
    rig.write(&mut handle, 3, 7);
    assert_eq!(rig.cache.drop_clean(&rig.disks[0].volume, rig.now), 7);
    assert_eq!(rig.gauge(Gauge::Resident), BLOCK);
    let free = rig.gauge(Gauge::Free);
    assert_eq!(free, 31 * BLOCK, "the frames are free at once");
    assert_eq!(rig.read(&mut handle, 3), Ok(7));
    assert_eq!(rig.disks[0].volume.totals().get(Counter::ReadMiss), 8);
    assert_eq!(rig.read(&mut handle, 4), Ok(0));
    assert_eq!(rig.disks[0].volume.totals().get(Counter::ReadMiss), 9, "it had to be read again");
    rig.cache.check(rig.now);
}
