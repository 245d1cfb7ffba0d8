//! Tests of pinned ranges: they are read in, never evicted, limited, and restored after failures
//! and discards.

use super::rig::{TestBench, options, tuned};
use crate::clock::SECOND;
use crate::counters::Gauge;
use crate::mode::WriteMode;
use crate::pinned::PinError;
use crate::policy::PolicyKind;
use crate::request::Status;
use crate::store::{Fault, StoreOpKind};
use crate::units::BLOCK_BYTES_U64 as BLOCK;
use crate::volume::VolumeOptions;
use std::ops::Range;
use std::sync::Arc;

fn pin(rig: &TestBench, blocks: Range<u64>) -> Result<(), PinError> {
    let bytes = blocks.start * BLOCK..blocks.end * BLOCK;
    rig.cache.pin_range(&rig.disks[0].volume, bytes, rig.now)
}

fn unpin(rig: &TestBench, blocks: Range<u64>) {
    let bytes = blocks.start * BLOCK..blocks.end * BLOCK;
    rig.cache.unpin_range(&rig.disks[0].volume, bytes, rig.now).unwrap();
}

/// Returns the resident ones of `blocks`.
fn resident(rig: &TestBench, blocks: Range<u64>) -> Vec<u64> {
    let handle = rig.handle(0);
    let found = blocks.filter(|block| rig.cache.read_hit(&handle, block * BLOCK, &mut [0; 8]));
    let found = found.collect();
    rig.cache.close_handle(handle);
    found
}

#[test]
fn pinned_pages_are_read_in_and_stay_whatever_else_is_read() {
    for policy in PolicyKind::ALL {
        for page_blocks in [1, 4] {
            let mut rig =
                TestBench::new(64, [VolumeOptions { page_blocks, policy, ..options(512) }]);
            let mut handle = rig.handle(0);
            assert_eq!(rig.read(&mut handle, 17), Ok(0), "there before it is pinned");
            pin(&rig, 16..32).unwrap();
            rig.run();
            for block in 40..400 {
                assert_eq!(rig.read(&mut handle, block), Ok(0));
            }
            let found = resident(&rig, 16..32);
            assert_eq!(found, (16..32).collect::<Vec<_>>(), "{} {page_blocks}", policy.name());
            rig.cache.check(rig.now);
            rig.cache.drop_clean(&rig.disks[0].volume, rig.now);
            assert_eq!(resident(&rig, 0..512), (16..32).collect::<Vec<_>>(), "after a drop");
            unpin(&rig, 16..32);
            for block in 40..400 {
                assert_eq!(rig.read(&mut handle, block), Ok(0));
            }
            let left = resident(&rig, 16..32).len();
            assert!(left < 16, "{} keeps {left} blocks that are not pinned", policy.name());
            rig.cache.check(rig.now);
        }
    }
}

#[test]
fn half_of_the_memory_can_be_pinned_and_the_refusal_says_so() {
    let mut rig = TestBench::new(64, [options(512), options(512)]);
    pin(&rig, 0..32).unwrap();
    let error = pin(&rig, 100..101).unwrap_err();
    assert!(matches!(error, PinError::TooMuch { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("132 KiB would be pinned; the limit is 128 KiB"), "{text}");
    pin(&rig, 10..20).unwrap();
    let volume = &rig.disks[1].volume;
    let other = rig.cache.pin_range(volume, 0..BLOCK, rig.now).unwrap_err();
    assert!(matches!(other, PinError::TooMuch { .. }), "all volumes together");
    let outside = rig.cache.pin_range(volume, 0..513 * BLOCK, rig.now).unwrap_err();
    assert!(matches!(outside, PinError::Range { .. }), "{outside}");
    assert_eq!(rig.gauge(Gauge::Pinned), 32 * BLOCK);
    unpin(&rig, 8..16);
    let listed = rig.cache.pinned(&rig.disks[0].volume);
    assert_eq!(listed, [0..8 * BLOCK, 16 * BLOCK..32 * BLOCK]);
    rig.run();
    assert_eq!(resident(&rig, 0..64).len(), 24);
}

#[test]
fn other_reads_go_on_where_all_that_may_be_is_pinned() {
    let mut rig = TestBench::new(32, [tuned(512, &[("dirty-limit", 900)])]);
    let mut handle = rig.handle(0);
    pin(&rig, 0..16).unwrap();
    for block in 0..200 {
        assert!(matches!(
            rig.try_write(&mut handle, [block, 2], 3, false),
            Status::Done | Status::DoneAt(_)
        ));
        assert_eq!(rig.read(&mut handle, 300 + block), Ok(0));
    }
    assert_eq!(rig.flush(&mut handle), Some(Ok(())));
    rig.run_until(rig.now + 60 * SECOND);
    assert_eq!(resident(&rig, 0..16).len(), 16);
    rig.cache.check(rig.now);
}

#[test]
fn what_could_not_be_read_or_was_discarded_is_read_again() {
    let around = VolumeOptions { write_mode: WriteMode::Around, ..options(64) };
    let mut rig = TestBench::new(32, [around]);
    let mut handle = rig.handle(0);
    rig.disks[0].plan.set(vec![Fault::Reads(2 * BLOCK..3 * BLOCK)]);
    pin(&rig, 0..8).unwrap();
    rig.run();
    assert_eq!(resident(&rig, 0..8).len(), 7, "all but the bad block");
    let reads = rig.ops.len();
    rig.run_until(rig.now + 25 * SECOND);
    let tries = rig.ops.len() - reads;
    assert!((1..6).contains(&tries), "{tries} tries in 25 s: it backs off");
    rig.disks[0].plan.set(Vec::new());
    rig.run_until(rig.now + 25 * SECOND);
    assert_eq!(resident(&rig, 0..8).len(), 8);
    rig.write(&mut handle, 4, 9);
    assert_eq!(resident(&rig, 4..5).len(), 1, "write-around keeps what is pinned");
    let token = rig.token();
    let zero = StoreOpKind::Zero { keep_allocated: false };
    assert_eq!(rig.cache.discard_or_zero(&mut handle, rig.now, zero, 3..5, token), Status::Pending);
    rig.run_until(rig.now + SECOND);
    assert_eq!(resident(&rig, 0..8).len(), 8, "read in again");
    assert_eq!(rig.read(&mut handle, 4), Ok(0));
    rig.cache.check(rig.now);
}

#[test]
fn a_closed_volume_reads_no_pinned_pages() {
    let mut rig = TestBench::new(64, [options(64)]);
    pin(&rig, 0..16).unwrap();
    let volume = Arc::clone(&rig.disks[0].volume);
    rig.cache.close_volume(&volume).unwrap();
    rig.run();
    assert_eq!(rig.ops, [], "a read would be under way when the volume is removed");
    rig.cache.remove_volume(&volume, rig.now);
}
