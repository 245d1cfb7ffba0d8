//! The whole cache against a model, in worlds that a seed decides: random requests, faults, lanes
//! that come and go, time that jumps, and crashes at any moment.
//!
//! `LARDER_BUDGET=long` runs 20,000 worlds, `LARDER_SEEDS=N` runs N; `LARDER_SEED=17` runs only
//! that seed, or N from there. A world that fails prints its last events. A world has 100 to 250
//! steps, or at least those of `LARDER_STEPS`, in rounds after which all volumes are at rest.

#![expect(clippy::print_stdout, reason = "a seed that fails is told to whoever runs it")]

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

/// Runs `world`; should it panic, says how to see that again.
fn guarded(name: &str, world: impl FnOnce(Log) -> Figures) -> Figures {
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

fn add(sum: &mut Figures, one: Figures) {
    sum.steps += one.steps;
    sum.requests += one.requests;
    sum.failed += one.failed;
    sum.crashes += one.crashes;
    sum.faults += one.faults;
    sum.store_ops += one.store_ops;
    sum.ahead += one.ahead;
    sum.changes += one.changes;
    sum.refused += one.refused;
    sum.removed += one.removed;
}

#[test]
fn a_random_world_keeps_every_promise() {
    let (first, count) = (number("LARDER_SEED"), number("LARDER_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { budget(600, 20_000) });
    let first = first.unwrap_or(0);
    let seeds = first..first + count;
    let steps = number("LARDER_STEPS");
    let begin = Instant::now();
    let mut sum = Figures::default();
    for seed in seeds {
        let of = steps.map_or_else(String::new, |steps| format!("LARDER_STEPS={steps} "));
        let name = format!(
            "rerun with {of}LARDER_SEED={seed} cargo test -p larder-core --test it simulation"
        );
        add(&mut sum, guarded(&name, |log| random::run_with(seed, Lie::Nothing, None, steps, log)));
    }
    println!(
        "simulation: {count} seeds, {} steps, {} requests ({} failed), \
         {} store operations ({} failed), \
         {} blocks read ahead, {} crashes, {} changes while serving ({} refused, {} \
         volumes removed), {:.0} seeds/s",
        sum.steps,
        sum.requests,
        sum.failed,
        sum.store_ops,
        sum.faults,
        sum.ahead,
        sum.crashes,
        sum.changes,
        sum.refused,
        sum.removed,
        f64::from(u32::try_from(count).unwrap()) / begin.elapsed().as_secs_f64(),
    );
    assert!(sum.requests > 0 && sum.crashes > 0, "nothing was shown");
    assert!(count < 100 || sum.ahead > count, "nothing was read ahead");
}

#[test]
fn every_policy_keeps_every_promise() {
    for kind in PolicyKind::ALL {
        let mut sum = Figures::default();
        for seed in 0..budget(20, 300) {
            let name = format!("policy {}, seed {seed}", kind.name());
            let world = |log| random::run_with(seed, Lie::Nothing, Some(kind), None, log);
            add(&mut sum, guarded(&name, world));
        }
        assert!(sum.requests > 0 && sum.crashes > 0, "nothing was shown of {}", kind.name());
    }
}

/// The seed at which the model misses, after a crash, what a lie has lost.
fn caught(lie: Lie) -> Option<u64> {
    (0..300).find(|&seed| {
        let run = || random::run(seed, lie, Log::default());
        let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return false };
        panic.downcast_ref::<String>().is_some_and(|message| message.contains("after a crash"))
    })
}

#[test]
fn a_store_that_lies_about_flushes_is_caught() {
    assert!(caught(Lie::Flush).is_some(), "the checks cannot fail");
}

#[test]
fn a_store_that_lies_about_fua_is_caught() {
    assert!(caught(Lie::Fua).is_some(), "the checks cannot fail");
}
