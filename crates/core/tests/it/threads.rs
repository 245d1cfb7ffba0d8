//! Threads on one cache: readers, writers that own a block each, and one that drives the store.
//! Every block holds one number over and over, which only grows, and is of this block.
//!
//! They are real threads for a while. With `RUSTFLAGS="--cfg larder_shuttle" cargo test -p
//! larder-core --release --test it schedule` they are shuttle's: one runs at a time, and at each
//! lock and atomic of the cache a generator chooses who goes on, from the seed `LARDER_SEED`. That
//! finds what happens in a bad order, and not what happens because memory is seen out of order:
//! shuttle's atomics are sequentially consistent.

mod shared;

use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use shared::{Scale, hammer};

/// Blocks of a page, write mode, policy.
const CASES: [(u32, WriteMode, PolicyKind); 6] = [
    (1, WriteMode::Back, PolicyKind::S3Fifo),
    (4, WriteMode::Back, PolicyKind::Lru),
    (4, WriteMode::Through, PolicyKind::S3Fifo),
    (2, WriteMode::Around, PolicyKind::Lru),
    (2, WriteMode::Back, PolicyKind::Lirs),
    (1, WriteMode::Back, PolicyKind::WTinyLfu),
];

/// How long the threads of a case work.
#[cfg(not(larder_shuttle))]
fn length() -> std::time::Duration {
    std::time::Duration::from_millis(larder_testing::budget(300, 2_000))
}

#[cfg(not(larder_shuttle))]
#[test]
fn threads_see_whole_blocks_that_never_go_back() {
    let scale = Scale { blocks: 96, frames: 48, shards: 2, steps: u64::MAX, looks: 1_000 };
    for case in CASES {
        let reads = hammer(scale, case, Some(length()), false);
        assert!(reads > shared::READS_MIN, "only {reads} reads");
    }
}

#[cfg(not(larder_shuttle))]
#[test]
fn threads_see_whole_blocks_that_never_go_back_while_everything_changes() {
    let scale = Scale { blocks: 96, frames: 48, shards: 2, steps: u64::MAX, looks: 1_000 };
    for case in [(1, WriteMode::Back, PolicyKind::S3Fifo), (4, WriteMode::Back, PolicyKind::Lru)] {
        let reads = hammer(scale, case, Some(length()), true);
        assert!(reads > shared::READS_MIN, "only {reads} reads");
    }
}

/// A recorder with its histograms is put together on the stack.
#[cfg(larder_shuttle)]
fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config
}

/// Few blocks and fewer frames, so that threads meet at the same ones, and pages must go.
#[cfg(larder_shuttle)]
#[test]
fn every_schedule_shows_whole_blocks_that_never_go_back() {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    const ORDER_CHANGES: usize = 3;
    let seed = std::env::var("LARDER_SEED").map_or(1, |seed| seed.parse().unwrap());
    let schedules = larder_testing::budget(60, 1_000);
    let scale = Scale { blocks: 8, frames: 6, shards: 2, steps: 8, looks: 8 };
    for case in CASES {
        let run = move || {
            hammer(scale, case, None, false);
        };
        let random = RandomScheduler::new_from_seed(seed, schedules);
        shuttle::Runner::new(random, config()).run(run);
        let pct = PctScheduler::new_from_seed(seed, ORDER_CHANGES, schedules);
        shuttle::Runner::new(pct, config()).run(run);
    }
}
