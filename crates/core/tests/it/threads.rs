//! Threads on one cache: readers, writers that each own a block, and one that drives the store.
//! Every block is filled with one number; it identifies the block and only grows.
//!
//! These are real threads for a limited time. The package `larder-core-shuttle` runs the same tests
//! under a scheduler that explores interleavings.

mod shared;

use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use shared::{CASES, Scale, run_threads};

/// Returns the run time of the threads of a case.
fn length() -> std::time::Duration {
    std::time::Duration::from_millis(larder_testing::budget(300, 2_000))
}

#[test]
fn threads_see_whole_blocks_that_never_go_back() {
    let scale = Scale { blocks: 96, frames: 48, shards: 2, steps: u64::MAX, polls: 1_000 };
    for case in CASES {
        let reads = run_threads(scale, case, Some(length()), false);
        assert!(reads > shared::READS_MIN, "only {reads} reads");
    }
}

#[test]
fn threads_see_whole_blocks_that_never_go_back_while_everything_changes() {
    let scale = Scale { blocks: 96, frames: 48, shards: 2, steps: u64::MAX, polls: 1_000 };
    for case in [(1, WriteMode::Back, PolicyKind::S3Fifo), (4, WriteMode::Back, PolicyKind::Lru)] {
        let reads = run_threads(scale, case, Some(length()), true);
        assert!(reads > shared::READS_MIN, "only {reads} reads");
    }
}
