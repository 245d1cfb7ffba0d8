//! Tests of the findings that a running cache reports about a volume.

use super::rig::{TestBench, options};
use crate::curve::report::Finding;
use crate::hint::Hint;
use crate::volume::VolumeOptions;

/// Frames of the cache.
const FRAMES: u32 = 4096;

/// Returns true if a volume with pages of `page_blocks` blocks is reported as too small after
/// `rounds` cycles over its first `pages` pages.
fn is_too_small(page_blocks: u16, pages: u64) -> bool {
    let blocks = u64::from(FRAMES) * 4;
    let volume =
        VolumeOptions { page_blocks: page_blocks.into(), hint: Hint::Random, ..options(blocks) };
    let mut rig = TestBench::new(FRAMES, [volume]);
    let mut handle = rig.handle(0);
    for _ in 0..40 {
        for page in 0..pages {
            rig.now += 1000;
            rig.read(&mut handle, page * u64::from(page_blocks)).unwrap();
        }
    }
    let report = rig.cache.curve(&rig.disks[0].volume, rig.now).unwrap();
    report.findings.iter().any(|finding| matches!(finding, Finding::TooSmall { .. }))
}

#[test]
fn a_volume_that_cannot_grow_by_one_page_is_reported_as_too_small() {
    for page_blocks in [1, 16, 128, 256] {
        let fitting = u64::from(FRAMES / u32::from(page_blocks));
        assert!(is_too_small(page_blocks, fitting * 3 / 2), "{page_blocks} blocks per page");
        assert!(!is_too_small(page_blocks, fitting / 2), "{page_blocks} blocks per page");
    }
}

/// Returns the findings of a volume of `blocks` blocks after one pass over its first `read` blocks.
fn findings_after_one_pass(blocks: u64, read: u64) -> Vec<Finding> {
    let volume = VolumeOptions { hint: Hint::Random, ..options(blocks) };
    let mut rig = TestBench::new(FRAMES, [volume]);
    let mut handle = rig.handle(0);
    for block in 0..read {
        rig.now += 1000;
        rig.read(&mut handle, block).unwrap();
    }
    rig.cache.curve(&rig.disks[0].volume, rig.now).unwrap().findings
}

#[test]
fn a_first_fill_is_no_scan_and_an_endless_one_is() {
    let frames = u64::from(FRAMES);
    // Of a volume within reach of the curve, and of one beyond it.
    for blocks in [2 * frames, 4 * frames, 64 * frames] {
        assert_eq!(findings_after_one_pass(blocks, blocks.min(8 * frames)), [], "{blocks}");
    }
    let found = findings_after_one_pass(64 * frames, 17 * frames);
    let is_scan = |it: &Finding| matches!(it, Finding::Scanned { share } if *share > 0.9);
    assert!(found.iter().any(is_scan), "{found:?}");
}

#[test]
fn memory_that_a_first_fill_does_not_use_is_not_spare() {
    let frames = u64::from(FRAMES);
    let is_spare = |passes: u64| {
        let volume = VolumeOptions { hint: Hint::Random, ..options(64 * frames) };
        let mut rig = TestBench::new(FRAMES, [volume]);
        let mut handle = rig.handle(0);
        // A few hot blocks, and others around them.
        for block in 0..passes * frames {
            rig.now += 1000;
            rig.read(&mut handle, if block % 2 == 0 { block } else { block % 8 }).unwrap();
        }
        let findings = rig.cache.curve(&rig.disks[0].volume, rig.now).unwrap().findings;
        findings.iter().any(|it| matches!(it, Finding::TooLarge { .. }))
    };
    assert!(!is_spare(4));
    assert!(is_spare(17));
}

#[test]
fn the_first_use_of_a_page_that_was_read_ahead_is_a_hit_of_the_policy_and_a_miss_of_lru() {
    let frames = u64::from(FRAMES);
    let volume = VolumeOptions { hint: Hint::Sequential, ..options(16 * frames) };
    let mut rig = TestBench::new(FRAMES, [volume]);
    let mut handle = rig.handle(0);
    for block in 0..12 * frames {
        rig.now += 1000;
        rig.read(&mut handle, block).unwrap();
    }
    let report = rig.cache.curve(&rig.disks[0].volume, rig.now).unwrap();
    assert!(report.hit_ratio > 0.9, "{}", report.hit_ratio);
    assert_eq!(report.policy_points.len(), 3, "smaller ones have too few slots");
    // Larger sizes hit at least as much.
    assert!(report.policy_points.iter().all(|point| point.estimate.hit_ratio > 0.8));
    assert!(report.points.iter().all(|point| point.estimate.hit_ratio < 0.01));
    assert!(report.references <= 12 * frames, "read-ahead is no reference");
}
