//! Tests of mappings for change: their visibility, the frames that they hold, and refusals.

use super::rig::{Plain, TestBench, options};
use crate::clock::SECOND;
use crate::completion::Completion;
use crate::counters::{Counter, Gauge, Interface};
use crate::mapping::{Access, Mapping};
use crate::mode::WriteMode;
use crate::request::{ReadRequest, Status};
use crate::store::{Fault, StoreErrorKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeHandle;
use crate::volume::VolumeOptions;

fn new_mapping(rig: &mut TestBench, blocks: [u64; 2], access: Access) -> Mapping<Plain> {
    let len = u32::try_from(blocks[1] * BLOCK).unwrap();
    Mapping::new(rig.token(), blocks[0] * BLOCK, len, access)
}

/// Maps a range, until it is mapped or there is no progress.
fn map(
    rig: &mut TestBench,
    handle: &mut VolumeHandle<Plain>,
    mapping: &mut Mapping<Plain>,
) -> Status {
    let mut status = rig.cache.map(handle, rig.now, mapping);
    while status == Status::Pending {
        rig.run();
        let mut completions = Vec::new();
        handle.completions.collect(&mut completions);
        for completion in completions {
            status = rig.cache.map_completed(handle, rig.now, mapping, completion);
        }
    }
    status
}

fn unpin(rig: &mut TestBench, handle: &mut VolumeHandle<Plain>, mapping: &mut Mapping<Plain>) {
    let mut status = rig.cache.unpin(handle, rig.now, mapping);
    while status == Status::Pending {
        rig.run();
        let mut completions = Vec::new();
        handle.completions.collect(&mut completions);
        for completion in completions {
            status = match completion {
                Completion::Unstalled => continue,
                Completion::Continue { pins, .. } => {
                    rig.unpin(pins);
                    rig.cache.unpin(handle, rig.now, mapping)
                }
                other => rig.cache.write_completed(handle, rig.now, &mut mapping.write, other),
            };
        }
    }
    assert!(matches!(status, Status::Done | Status::DoneAt(_)), "{status:?}");
    assert!(!mapping.is_held(), "over");
}

fn bytes_at(rig: &TestBench, handle: &VolumeHandle<Plain>, offset: u64) -> [u8; 4] {
    let mut found = [0; 4];
    assert!(rig.cache.read_hit(handle, offset, &mut found), "resident");
    found
}

#[test]
fn a_change_is_seen_at_the_unpin_and_keeps_what_others_wrote_beside_it() {
    let mut rig = TestBench::new(32, [options(16)]);
    let [mut one, two] = [rig.handle(0), rig.handle(0)];
    rig.write(&mut one, 1, 7);
    let mut mapping = new_mapping(&mut rig, [1, 2], Access::Change);
    assert_eq!(map(&mut rig, &mut one, &mut mapping), Status::Done);
    mapping.write(rig.cache.frames(), BLOCK, b"mine");
    mapping.write(rig.cache.frames(), 2 * BLOCK + 512, b"also");
    assert_eq!(bytes_at(&rig, &two, BLOCK), [7; 4], "it is not unpinned yet");
    rig.write(&mut one, 1, 8);
    rig.run_until(rig.now + 20 * SECOND);
    assert_eq!(rig.stored(0, 1), 8, "what was there before goes to the store");
    unpin(&mut rig, &mut one, &mut mapping);
    assert_eq!(&bytes_at(&rig, &two, BLOCK), b"mine");
    assert_eq!(bytes_at(&rig, &two, BLOCK + 512), [8; 4], "a sector that was not marked");
    assert_eq!(&bytes_at(&rig, &two, 2 * BLOCK + 512), b"also");
    assert_eq!(rig.gauge(Gauge::Dirty), 2 * BLOCK);
    assert_eq!(rig.flush(&mut one), Some(Ok(())));
    assert_eq!(rig.stored(0, 1), b'm');
    rig.cache.check(rig.now);
}

#[test]
fn what_is_not_marked_and_what_is_given_up_has_not_happened() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    for marked in [false, true] {
        let mut mapping = new_mapping(&mut rig, [0, 4], Access::Change);
        assert_eq!(map(&mut rig, &mut handle, &mut mapping), Status::Done);
        if marked {
            mapping.write(rig.cache.frames(), 0, &[9; 100]);
            rig.cache.unmap(&rig.disks[0].volume, &mut mapping);
        } else {
            unpin(&mut rig, &mut handle, &mut mapping);
        }
        assert_eq!(rig.gauge(Gauge::Dirty), 0);
        assert_eq!(bytes_at(&rig, &handle, 0), [0; 4]);
        rig.cache.check(rig.now);
    }
    assert_eq!(rig.gauge(Gauge::Resident), 4 * BLOCK, "nothing is kept for mappings");
}

#[test]
fn a_page_that_is_mapped_is_not_evicted() {
    let mut rig = TestBench::new(16, [options(64)]);
    let mut handle = rig.handle(0);
    let mut mapping = new_mapping(&mut rig, [0, 2], Access::Change);
    assert_eq!(map(&mut rig, &mut handle, &mut mapping), Status::Done);
    let mut looked_at = ReadRequest::new(rig.token(), 60 * BLOCK, 100).through(Interface::Map);
    let status = rig.cache.read(&mut handle, rig.now, &mut looked_at);
    assert_eq!(status, Status::Pending);
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    let status = looked_at.apply_completion(rig.cache.frames(), completions.remove(0));
    assert_eq!(status, Status::Done);
    for block in 2..50 {
        assert_eq!(rig.read(&mut handle, block), Ok(0));
    }
    assert_eq!(bytes_at(&rig, &handle, 0), [0; 4]);
    assert_eq!(bytes_at(&rig, &handle, 60 * BLOCK), [0; 4]);
    looked_at.release(rig.cache.frames());
    mapping.write(rig.cache.frames(), BLOCK, &[5; 8]);
    unpin(&mut rig, &mut handle, &mut mapping);
    assert_eq!(rig.flush(&mut handle), Some(Ok(())));
    assert_eq!(rig.stored(0, 1), 5);
}

#[test]
fn one_mapping_at_a_time_has_a_block_and_all_together_a_quarter_of_the_memory() {
    let mut rig = TestBench::new(64, [options(64)]);
    let [mut one, mut two] = [rig.handle(0), rig.handle(0)];
    let mut first = new_mapping(&mut rig, [0, 8], Access::Overwrite);
    assert_eq!(map(&mut rig, &mut one, &mut first), Status::Done);
    let busy = |status| match status {
        Status::Failed(error) => assert_eq!(error.kind, StoreErrorKind::Busy, "{error}"),
        other => panic!("{other:?}"),
    };
    let mut again = new_mapping(&mut rig, [7, 2], Access::Change);
    busy(map(&mut rig, &mut one, &mut again));
    let mut other = new_mapping(&mut rig, [7, 9], Access::Change);
    assert_eq!(map(&mut rig, &mut two, &mut other), Status::Stalled, "it waits");
    let mut adjacent = new_mapping(&mut rig, [8, 9], Access::Change);
    busy(map(&mut rig, &mut one, &mut adjacent));
    let mut adjacent = new_mapping(&mut rig, [8, 9], Access::Change);
    assert_eq!(map(&mut rig, &mut two, &mut adjacent), Status::Stalled, "a quarter is 16 blocks");
    rig.cache.unmap(&rig.disks[0].volume, &mut first);
    let mut completions = Vec::new();
    two.completions.collect(&mut completions);
    assert_eq!(completions.len(), 1, "told that there may be room");
    assert_eq!(map(&mut rig, &mut two, &mut other), Status::Done);
    rig.cache.unmap(&rig.disks[0].volume, &mut other);
    rig.cache.check(rig.now);
}

#[test]
fn mapping_fails_where_the_store_does_and_where_nothing_may_be_written() {
    let read_only = VolumeOptions { write_mode: WriteMode::ReadOnly, ..options(16) };
    let mut rig = TestBench::new(32, [options(16), read_only]);
    let [mut handle, mut other] = [rig.handle(0), rig.handle(1)];
    rig.disks[0].plan.set(vec![Fault::Reads(0..BLOCK)]);
    let mut mapping = new_mapping(&mut rig, [0, 2], Access::Change);
    let failed = map(&mut rig, &mut handle, &mut mapping);
    assert!(matches!(&failed, Status::Failed(error) if error.kind == StoreErrorKind::Io));
    assert!(!mapping.is_held());
    let mut mapping = new_mapping(&mut rig, [0, 2], Access::Overwrite);
    assert_eq!(map(&mut rig, &mut handle, &mut mapping), Status::Done, "it needs no read");
    mapping.write(rig.cache.frames(), 0, &[3; 8192]);
    unpin(&mut rig, &mut handle, &mut mapping);
    assert_eq!(bytes_at(&rig, &handle, 4096), [3; 4]);
    let mut mapping = new_mapping(&mut rig, [0, 1], Access::Change);
    let failed = map(&mut rig, &mut other, &mut mapping);
    assert!(matches!(&failed, Status::Failed(error) if error.kind == StoreErrorKind::ReadOnly));
    rig.cache.check(rig.now);
}

#[test]
fn a_mapping_writes_through_where_the_volume_does() {
    for granule in [512, 4096] {
        let mut through = VolumeOptions { write_mode: WriteMode::Through, ..options(16) };
        through.geometry.granule = granule;
        let mut rig = TestBench::new(32, [through]);
        let mut handle = rig.handle(0);
        let mut mapping = new_mapping(&mut rig, [2, 1], Access::Overwrite);
        assert_eq!(map(&mut rig, &mut handle, &mut mapping), Status::Done);
        mapping.write(rig.cache.frames(), 2 * BLOCK, &[6; 512]);
        unpin(&mut rig, &mut handle, &mut mapping);
        assert_eq!((rig.stored(0, 2), rig.gauge(Gauge::Dirty)), (6, 0));
        rig.cache.check(rig.now);
    }
}

#[test]
fn pages_that_grow_while_an_unpin_waits_do_not_get_a_block_twice() {
    let mut volume = options(16);
    // The store must fill the rest of a block that is written in part.
    volume.geometry.granule = 4096;
    let mut rig = TestBench::new(32, [volume]);
    let mut handle = rig.handle(0);
    let mut mapping = new_mapping(&mut rig, [2, 2], Access::Overwrite);
    assert_eq!(map(&mut rig, &mut handle, &mut mapping), Status::Done);
    mapping.write(rig.cache.frames(), 2 * BLOCK, &[6; 4096]);
    mapping.write(rig.cache.frames(), 3 * BLOCK, &[7; 512]);
    let status = rig.cache.unpin(&mut handle, rig.now, &mut mapping);
    assert_eq!(
        status,
        Status::Pending,
        "the first block is in the cache, the second needs its rest"
    );
    assert_eq!(bytes_at(&rig, &handle, 2 * BLOCK), [6; 4]);
    rig.cache.set_page_blocks(&rig.disks[0].volume, 4).unwrap();
    rig.cache.run_maintenance(rig.now);
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    let Some(Completion::Continue { pins, .. }) = completions.pop() else {
        panic!("{completions:?}")
    };
    assert!(completions.is_empty(), "{completions:?}");
    rig.unpin(pins);
    unpin(&mut rig, &mut handle, &mut mapping);
    assert_eq!(rig.flush(&mut handle), Some(Ok(())));
    assert_eq!([2, 3].map(|block| rig.stored(0, block)), [6, 7]);
    rig.cache.check(rig.now);
}

#[test]
fn each_interface_counts_its_calls_and_hits() {
    let mut rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    for interface in Interface::ALL {
        for _ in 0..3 {
            let mut read = ReadRequest::new(rig.token(), 0, 9000).through(interface);
            if rig.cache.read(&mut handle, rig.now, &mut read) == Status::Pending {
                rig.run();
                let mut completions = Vec::new();
                handle.completions.collect(&mut completions);
                for completion in completions {
                    read.apply_completion(rig.cache.frames(), completion);
                }
            }
            read.release(rig.cache.frames());
        }
        let totals = rig.disks[0].volume.totals();
        let (calls, hits) = interface.counters();
        let missed = u64::from(interface == Interface::Copy);
        assert_eq!((totals.get(calls), totals.get(hits)), (3, 3 - missed), "{interface:?}");
    }
    bytes_at(&rig, &handle, 4096);
    let mut mapping = new_mapping(&mut rig, [0, 1], Access::Overwrite);
    assert_eq!(map(&mut rig, &mut handle, &mut mapping), Status::Done);
    rig.cache.unmap(&rig.disks[0].volume, &mut mapping);
    let totals = rig.disks[0].volume.totals();
    assert_eq!((totals.get(Counter::FastReads), totals.get(Counter::PinOverwrites)), (1, 1));
    assert_eq!(totals.get(Counter::CopyReads), 3, "the fast one is not among them");
}
