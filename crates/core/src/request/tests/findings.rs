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
