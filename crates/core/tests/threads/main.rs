//! Threads on one cache: readers, writers that own a block each, and one that drives the store.
//! Every block holds one number over and over, which only grows, and is of this block.
//!
//! They are real threads for a while. The package `larder-core-shuttle` runs the same under a
//! scheduler that tries interleavings.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

mod shared;

use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use shared::{CASES, Scale, hammer};

#[test]
fn threads_see_whole_blocks_that_never_go_back() {
    let scale = Scale { blocks: 96, frames: 48, shards: 2, steps: u64::MAX, looks: 1_000 };
    for case in CASES {
        let reads = hammer(scale, case, Some(std::time::Duration::from_millis(800)), false);
        assert!(reads > shared::READS_MIN, "only {reads} reads");
    }
}

#[test]
fn threads_see_whole_blocks_that_never_go_back_while_everything_changes() {
    let scale = Scale { blocks: 96, frames: 48, shards: 2, steps: u64::MAX, looks: 1_000 };
    for case in [(1, WriteMode::Back, PolicyKind::S3Fifo), (4, WriteMode::Back, PolicyKind::Lru)] {
        let reads = hammer(scale, case, Some(std::time::Duration::from_millis(800)), true);
        assert!(reads > shared::READS_MIN, "only {reads} reads");
    }
}
