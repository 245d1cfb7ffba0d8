//! The whole cache compared with a model, in random worlds determined by a seed: random requests,
//! faults, sessions that open and close, jumps in time, and crashes at any point.
//!
//! `LARDER_BUDGET=long` runs 20,000 worlds, `LARDER_SEEDS=N` runs N; `LARDER_SEED=17` runs only
//! that seed, or N from there. A world that fails prints its last events. A world has 100 to 250
//! steps, or at least `LARDER_STEPS` of them, in rounds after which all volumes are quiescent.

#![expect(clippy::print_stdout, reason = "it prints a seed that fails")]

mod broken;
mod change;
mod client;
mod engine;
mod exhaustive;
mod mapped;
mod model;
mod ordered;
mod random;
mod world;

use broken::Lie;
use larder_core::policy::PolicyKind;
use larder_testing::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use world::{Figures, Log};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs `world`; if it panics, prints the last operations and the command to reproduce it.
fn with_log_on_panic(name: &str, world: impl FnOnce(Log) -> Figures) -> Figures {
    let log = Log::default();
    let inner = Log::clone(&log);
    match catch_unwind(AssertUnwindSafe(|| world(inner))) {
        Ok(figures) => figures,
        Err(panic) => {
            let log = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let lines: Vec<_> = log.iter().cloned().collect();
            println!("the last operations:\n{}\n{name}", lines.join("\n"));
            std::panic::resume_unwind(panic);
        }
    }
}

fn add(total: &mut Figures, one: Figures) {
    total.steps += one.steps;
    total.requests += one.requests;
    total.failed += one.failed;
    total.crashes += one.crashes;
    total.faults += one.faults;
    total.store_ops += one.store_ops;
    total.ahead += one.ahead;
    total.changes += one.changes;
    total.refused += one.refused;
    total.removed += one.removed;
}

#[test]
fn a_random_world_keeps_every_promise() {
    let (first, count) = (number("LARDER_SEED"), number("LARDER_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { budget(600, 20_000) });
    let first = first.unwrap_or(0);
    let seeds = first..first + count;
    let steps = number("LARDER_STEPS");
    let begin = Instant::now();
    let mut total = Figures::default();
    for seed in seeds {
        let of = steps.map_or_else(String::new, |steps| format!("LARDER_STEPS={steps} "));
        let name = format!(
            "rerun with {of}LARDER_SEED={seed} cargo test -p larder-core --test it simulation"
        );
        add(
            &mut total,
            with_log_on_panic(&name, |log| random::run_with(seed, Lie::Nothing, None, steps, log)),
        );
    }
    println!(
        "simulation: {count} seeds, {} steps, {} requests ({} failed), \
         {} store operations ({} failed), \
         {} blocks read ahead, {} crashes, {} changes while serving ({} refused, {} \
         volumes removed), {:.0} seeds/s",
        total.steps,
        total.requests,
        total.failed,
        total.store_ops,
        total.faults,
        total.ahead,
        total.crashes,
        total.changes,
        total.refused,
        total.removed,
        f64::from(u32::try_from(count).unwrap()) / begin.elapsed().as_secs_f64(),
    );
    assert!(total.requests > 0 && total.crashes > 0, "nothing was shown");
    assert!(count < 100 || total.ahead > count, "nothing was read ahead");
}

#[test]
fn every_policy_keeps_every_promise() {
    for kind in PolicyKind::ALL {
        let mut total = Figures::default();
        for seed in 0..budget(20, 300) {
            let name = format!("policy {}, seed {seed}", kind.name());
            let world = |log| random::run_with(seed, Lie::Nothing, Some(kind), None, log);
            add(&mut total, with_log_on_panic(&name, world));
        }
        assert!(total.requests > 0 && total.crashes > 0, "nothing was shown of {}", kind.name());
    }
}

/// Returns the first seed at which the model detects, after a crash, the data lost by a lying
/// store.
fn first_detecting_seed(lie: Lie) -> Option<u64> {
    (0..300).find(|&seed| {
        let run = || random::run(seed, lie, Log::default());
        let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return false };
        panic.downcast_ref::<String>().is_some_and(|message| message.contains("after a crash"))
    })
}

#[test]
fn a_store_that_lies_about_flushes_is_caught() {
    assert!(first_detecting_seed(Lie::Flush).is_some(), "the checks cannot fail");
}

#[test]
fn a_store_that_lies_about_fua_is_caught() {
    assert!(first_detecting_seed(Lie::Fua).is_some(), "the checks cannot fail");
}
