//! Tests of limits on pinned ranges and concurrent writes, and of batches of hits.

use super::rig::{TestBench, options, tuned};
use crate::cache::HitRead;
use crate::clock::SECOND;
use crate::completion::{Completion, NoWaker};
use crate::counters::{Counter, Gauge};
use crate::mapping::{Access, Mapping};
use crate::mode::WriteMode;
use crate::pinned::PinError;
use crate::request::{ReadRequest, Status};
use crate::settings::SettingError;
use crate::store::{Fault, StoreErrorKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::{LENGTH_MAX, VolumeOptions};
use std::ops::Range;
use std::sync::atomic::Ordering;

fn pin(rig: &TestBench, disk: usize, bytes: Range<u64>) -> Result<(), PinError> {
    rig.cache.pin_range(&rig.disks[disk].volume, bytes, rig.now)
}

fn bytes(blocks: Range<u64>) -> Range<u64> {
    blocks.start * BLOCK..blocks.end * BLOCK
}

#[test]
fn a_volume_has_1024_pinned_ranges_at_most() {
    let rig = TestBench::new(4096, [options(4096)]);
    for range in 0..1024 {
        pin(&rig, 0, bytes(range * 2..range * 2 + 1)).unwrap();
    }
    let error = pin(&rig, 0, bytes(4000..4001)).unwrap_err();
    assert!(matches!(error, PinError::TooMany { .. }), "{error:?}");
    assert_eq!(rig.gauge(Gauge::Pinned), 1024 * BLOCK, "nothing changed");
    pin(&rig, 0, bytes(0..3)).unwrap();
    pin(&rig, 0, bytes(4000..4001)).unwrap();
}

#[test]
fn a_refused_pin_names_the_limit_that_it_exceeds() {
    let small = VolumeOptions { max_frames: 20, ..options(512) };
    let rig = TestBench::new(64, [small, options(512), options(512)]);
    let limit = |error: PinError| match error {
        PinError::TooMuch { volume, asked_bytes, wanted_bytes, most_bytes } => {
            assert_eq!(volume, "v");
            (asked_bytes, wanted_bytes / BLOCK, most_bytes / BLOCK)
        }
        other => panic!("{other:?}"),
    };
    pin(&rig, 0, bytes(10..15)).unwrap();
    let of_volume = pin(&rig, 0, 0..6 * BLOCK - 100).unwrap_err();
    assert_eq!(limit(of_volume), (6 * BLOCK - 100, 11, 10), "half of the volume's ceiling");
    pin(&rig, 1, bytes(0..20)).unwrap();
    let of_all = pin(&rig, 2, bytes(3..11)).unwrap_err();
    assert_eq!(limit(of_all), (8 * BLOCK, 33, 32), "half of the pool, all volumes together");
    pin(&rig, 2, bytes(3..10)).unwrap();
}

#[test]
fn the_lazy_writer_keeps_background_depth_writes_in_the_store() {
    let values = [("background-depth", 3), ("dirty-threshold", 900), ("dirty-limit", 900)];
    let mut rig = TestBench::new(64, [tuned(64, &values)]);
    let mut handle = rig.handle(0);
    for block in (0..40).step_by(2) {
        rig.write(&mut handle, block, 1);
    }
    rig.disks[0].stall.store(true, Ordering::Release);
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.writes(), [(0, 1), (2, 1), (4, 1)], "three, however often it is polled");
    // The pending read of a client does not start another write.
    let mut read = ReadRequest::new(1000, 63 * BLOCK, 4096);
    assert_eq!(rig.cache.read(&mut handle, rig.now, &mut read), Status::Pending);
    rig.run();
    assert_eq!(rig.writes().len(), 3);
    rig.disks[0].stall.store(false, Ordering::Release);
    rig.run_until(rig.now + 10 * SECOND);
    assert_eq!(rig.writes().len(), 20, "all is written once the store continues");
    let mut completions = Vec::new();
    assert!(handle.completions.has_completions());
    handle.completions.collect(&mut completions);
    assert!(!handle.completions.has_completions());
    for completion in completions {
        if matches!(completion, Completion::Filled { token: 1000, .. }) {
            assert_eq!(read.apply_completion(rig.cache.frames(), completion), Status::Done);
        }
    }
    read.release(rig.cache.frames());
    rig.cache.check(rig.now);
}

#[test]
fn each_of_many_reads_at_once_gets_the_bytes_of_its_own_block() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    let is_resident = |block: u64| block % 3 != 1;
    for block in (0..40).filter(|&block| is_resident(block)) {
        rig.write(&mut handle, block, 100 + u8::try_from(block).unwrap());
    }
    let mut bytes = [[0; 4]; 40];
    let read =
        |(block, to): (u64, _)| HitRead { offset: block * BLOCK + 8, to, hit: !is_resident(block) };
    let mut reads: Vec<_> =
        (0..).zip(bytes.iter_mut().map(<[u8; 4]>::as_mut_slice)).map(read).collect();
    let hits = rig.cache.read_hits(&handle, &mut reads);
    let reported: Vec<_> = reads.iter().map(|read| read.hit).collect();
    let expected: Vec<_> = (0..40).map(is_resident).collect();
    assert_eq!(reported, expected);
    assert_eq!(hits, expected.iter().filter(|&&hit| hit).count());
    for (block, bytes) in (0..40).zip(bytes) {
        let byte = if is_resident(block) { 100 + u8::try_from(block).unwrap() } else { 0 };
        assert_eq!(bytes, [byte; 4], "block {block}");
    }
    let counted = rig.disks[0].volume.totals().get(Counter::FastReads);
    assert_eq!(counted, hits as u64);
}

#[test]
fn adjacent_blocks_are_mapped_at_the_same_time_and_the_same_block_once() {
    let rig = TestBench::new(32, [options(16)]);
    let mut handle = rig.handle(0);
    let mut mappings: Vec<_> =
        [4, 3, 5].map(|block| Mapping::new(block, block * BLOCK, 4096, Access::Overwrite)).into();
    for mapping in &mut mappings {
        assert_eq!(rig.cache.map(&mut handle, rig.now, mapping), Status::Done);
    }
    let mut again = Mapping::new(9, 3 * BLOCK, 8192, Access::Overwrite);
    let status = rig.cache.map(&mut handle, rig.now, &mut again);
    assert!(matches!(status, Status::Failed(e) if e.kind == StoreErrorKind::Busy));
    for mapping in &mut mappings {
        assert_eq!(rig.cache.unpin(&mut handle, rig.now, mapping), Status::Done);
    }
    rig.cache.check(rig.now);
}

#[test]
fn a_failed_write_fails_the_flushes_of_the_ranges_that_it_is_in() {
    let values = [("dirty-threshold", 900), ("dirty-limit", 900)];
    let mut rig = TestBench::new(64, [tuned(64, &values)]);
    let mut handle = rig.handle(0);
    for block in [10, 20, 40] {
        rig.write(&mut handle, block, 1);
    }
    rig.disks[0].plan.set(vec![Fault::Writes(20 * BLOCK..21 * BLOCK)]);
    let ranges = [(0..30, false), (20..21, false), (0..20, true), (21..64, true)];
    let tokens: Vec<u64> = ranges.iter().map(|_| rig.token()).collect();
    for ((blocks, _), token) in ranges.iter().zip(&tokens) {
        let status = rig.cache.flush_range(&mut handle, rig.now, blocks.clone(), false, *token);
        assert_eq!(status, Status::Pending);
    }
    rig.run();
    let mut completions = Vec::new();
    handle.completions.collect(&mut completions);
    let mut ended: Vec<(u64, bool)> = completions
        .into_iter()
        .filter_map(|completion| match completion {
            Completion::Finished { token, result } => Some((token, result.is_ok())),
            _ => None,
        })
        .collect();
    ended.sort_unstable();
    let expected: Vec<_> = tokens.into_iter().zip(ranges.iter().map(|it| it.1)).collect();
    assert_eq!(ended, expected);
    rig.disks[0].plan.set(Vec::new());
    assert!(rig.flush(&mut handle).unwrap().is_err(), "the next flush also reports it");
    assert_eq!(rig.flush(&mut handle), Some(Ok(())), "the write was tried again");
    rig.cache.check(rig.now);
}

#[test]
fn a_store_that_became_short_fails_beyond_its_end_only() {
    let mut rig = TestBench::new(64, [options(64)]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Shrunk(10 * BLOCK)]);
    assert!(rig.read(&mut handle, 9).is_ok(), "the last block that it has");
    assert_eq!(rig.read(&mut handle, 10).unwrap_err().kind, StoreErrorKind::Short);
}

/// An upstream server may announce any length.
#[test]
fn a_store_with_more_bytes_than_a_volume_can_have_is_refused() {
    let rig = TestBench::new(64, [options(64)]);
    let add = |length| {
        let mut wanted = options(64);
        wanted.geometry.length = length;
        rig.cache.try_add_volume(wanted, Box::new(NoWaker)).map(drop)
    };
    for length in [0, LENGTH_MAX + 1, 1 << 63, u64::MAX] {
        let refused = add(length).unwrap_err();
        assert!(matches!(refused, SettingError::Length { .. }), "{length}: {refused}");
    }
    add(LENGTH_MAX).unwrap();
    rig.cache.check(rig.now);
}

#[test]
fn the_write_mode_can_be_changed_unless_the_store_takes_no_writes() {
    let mut read_only = options(64);
    read_only.geometry.read_only = true;
    let rig = TestBench::new(64, [options(64), read_only]);
    let volumes = [0, 1].map(|disk| &rig.disks[disk].volume);
    for mode in [WriteMode::Through, WriteMode::ReadOnly, WriteMode::Back] {
        volumes[0].set_write_mode(mode).unwrap();
        assert_eq!(volumes[0].write_mode(), mode);
    }
    volumes[1].set_write_mode(WriteMode::ReadOnly).unwrap();
    let refused = volumes[1].set_write_mode(WriteMode::Back).unwrap_err();
    assert!(matches!(refused, SettingError::ReadOnlyStore { .. }), "{refused:?}");
}
