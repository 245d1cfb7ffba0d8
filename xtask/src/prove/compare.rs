//! `larder compare` must find true differences and no others: it compares a workload with itself,
//! and with a version that is slower by a known amount.
//!
//! A shared machine can be 20 % slower for some seconds. If `larder compare` reports this, the run
//! is repeated, as by a user.

use super::prelude::*;
use crate::stats::median;

/// The relative slowdown of the slower form.
const SLOWER: f64 = 0.1;
/// The maximum number of repetitions because the machine was slower, and the report of
/// `larder compare` in this case.
const REPEATS_MAX: u32 = 8;
const SLOWER_MACHINE: &str = "the machine was ";
/// The computation in each cycle, in milliseconds.
const COMPUTE_MS: f64 = 0.02;
/// The minimum shares of all rounds in which equal runs show no difference, and in which the slower
/// form is detected.
const SILENT_MIN: f64 = 0.9;
const FOUND_MIN: f64 = 0.8;
/// The main series.
const SERIES: &str = "cycles";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let rounds = env.choose(50_u32, 10);
    let file = env.file("compare.image");
    stdout_of(cmd!("dd if=/dev/urandom bs=1M count=16 status=none of={file}"))?;
    let mut cycles = Vec::new();
    let (mut silent, mut found, mut wrong, mut repeated) = (0, 0, 0, 0);
    for _ in 0..rounds {
        let before = bench(env, &file, COMPUTE_MS, "before")?;
        let cycle_ms = record::series_median(&record::read(&before)?, "response time")? / 1e6;
        cycles.push(cycle_ms * 1e3);
        let (again, of_again) = compare_until_equal_speed(env, (&before, &file), COMPUTE_MS)?;
        let slower_ms = COMPUTE_MS + cycle_ms * SLOWER;
        let (slower, of_slower) = compare_until_equal_speed(env, (&before, &file), slower_ms)?;
        silent += u32::from(again == "cannot-tell");
        found += u32::from(slower == "worse");
        wrong += u32::from(slower == "better");
        repeated += of_again + of_slower;
    }
    let share = |count: u32| f64::from(count) / f64::from(rounds);
    claims.add(
        "a workload against itself: cannot tell, in 90 % of rounds or more",
        format!("{silent} of {rounds}"),
        share(silent) >= SILENT_MIN,
    );
    claims.add(
        format!("a cycle of {:.1} us made 10 % longer: worse, in at least 80 %", median(&cycles)),
        format!("{found} of {rounds}"),
        share(found) >= FOUND_MIN,
    );
    let figure = format!("{wrong} of {rounds}; {repeated} runs were repeated on a slower machine");
    claims.add("and never better", figure, wrong == 0);
    Ok(())
}

/// Runs the workload and returns the path of its record. A trial is long compared with a context
/// switch.
fn bench(env: &Env, file: &Path, compute_ms: f64, name: &str) -> Result<PathBuf> {
    let (larder, at) = (&env.larder, env.file(&format!("{name}.json")));
    let (compute, trials) = (compute_ms.to_string(), "--length 150ms --trials 16".split(' '));
    let arguments =
        "--pattern R --cycle 16 --order uniform --start warm --confidence off".split(' ');
    stdout_of(cmd!(
        "{larder} bench probe {file} {arguments...} {trials...} --compute {compute} --output {at}"
    ))?;
    Ok(at)
}

/// Runs the workload until the machine is as fast as before, and compares; returns the verdict and
/// the number of repetitions.
fn compare_until_equal_speed(
    env: &Env,
    (before, file): (&Path, &Path),
    compute_ms: f64,
) -> Result<(String, u32)> {
    let larder = &env.larder;
    for repeats in 0.. {
        let after = bench(env, file, compute_ms, "after")?;
        let out = capture(cmd!("{larder} compare {before} {after} --format json"))?;
        // Exit code 1: some series is worse.
        ensure!(matches!(out.code, Some(0 | 1)), "larder compare: {}", out.stderr);
        let found: Value = serde_json::from_str(&out.stdout).context("parse a comparison")?;
        let series = found["series"].as_array().context("a comparison has series")?;
        let main = series.iter().find(|it| it["series"] == SERIES).context("no main series")?;
        // The exit code must agree with the table.
        let is_worse = series.iter().any(|series| series["verdict"] == "worse");
        ensure!(is_worse == (out.code == Some(1)), "exit code {:?} with {main}", out.code);
        let words = (main["verdict"].as_str(), main["why"].as_str());
        let (Some(verdict), Some(why)) = words else { bail!("no verdict in {main}") };
        if !why.starts_with(SLOWER_MACHINE) || repeats == REPEATS_MAX {
            return Ok((verdict.to_owned(), repeats));
        }
    }
    bail!("not reached")
}
