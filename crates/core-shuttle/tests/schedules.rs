//! Model checks of the cache with shuttle: one thread runs at a time, and at each lock and atomic
//! operation a generator with the seed `LARDER_SEED` chooses the next thread.
//!
//! They find errors of thread schedules, but not of memory ordering: the atomics of shuttle are
//! sequentially consistent.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to panic")]

#[path = "../../core/tests/it/threads/shared.rs"]
mod shared;

use shared::{CASES, Scale, run_threads};

fn seed() -> u64 {
    std::env::var("LARDER_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// A larger stack: a recorder with its histograms is constructed on the stack.
fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config
}

/// Few blocks and fewer frames, so that threads access the same ones and the cache must evict
/// pages.
#[test]
fn every_schedule_shows_whole_blocks_that_never_go_back() {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    const ORDER_CHANGES: usize = 3;
    let seed = seed();
    let schedules = larder_testing::budget(60, 1_000);
    let scale = Scale { blocks: 8, frames: 6, shards: 2, steps: 8, polls: 8 };
    for case in CASES {
        let run = move || {
            run_threads(scale, case, None, false);
        };
        let random = RandomScheduler::new_from_seed(seed, schedules);
        shuttle::Runner::new(random, config()).run(run);
        let pct = PctScheduler::new_from_seed(seed, ORDER_CHANGES, schedules);
        shuttle::Runner::new(pct, config()).run(run);
    }
}

#[test]
fn in_every_schedule_a_frame_that_is_found_holds_the_block() {
    larder_core::table_schedules::move_and_look_up(seed(), larder_testing::budget(20_000, 200_000));
}
