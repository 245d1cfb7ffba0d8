//! Whether `larder compare` says what is so: a workload against itself, again and again, and
//! against itself with a known part of its time added.
//!
//! The workload reads a warm file, sixteen records a cycle, and computes a little; the slower form
//! computes a tenth of the cycle longer. Each round runs the one, the one again, and the slower
//! one. A machine that is shared with others is a fifth slower for seconds: where `larder compare`
//! says so, what it was to be compared with is run again, as anybody would who reads that.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::speed::median;
use super::{Claims, Lab, to_f64};
use crate::run;

/// Every trial: long enough that a switch of tasks does not decide it.
const TRIAL: &str = "150ms";
const TRIALS: &str = "16";
/// The slower form takes this much longer.
const SLOWER: f64 = 0.1;
/// So often a run is repeated since the machine was slower.
const REPEATS_MAX: u32 = 8;
/// What `larder compare` says then.
const SLOWER_MACHINE: &str = "the machine was ";
/// Milliseconds that a cycle computes.
const COMPUTE_MS: f64 = 0.02;
/// Of all rounds: the same must not be told apart in this share, the slower found in that one.
const SILENT_MIN: f64 = 0.9;
const FOUND_MIN: f64 = 0.8;

/// What is compared most of all.
const SERIES: &str = "cycles";

pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let rounds = lab.either(50_u32, 10);
    let file = lab.file("compare.image");
    run::text(
        Command::new("dd")
            .args(["if=/dev/urandom", "bs=1M", "count=16", "status=none"])
            .arg(format!("of={}", file.display())),
    )?;
    let mut all_cycles = Vec::new();
    let (mut silent, mut found, mut wrong, mut repeated) = (0, 0, 0, 0);
    for _ in 0..rounds {
        let before = bench(lab, &file, COMPUTE_MS, "before")?;
        let cycle_ms = cycle_ns(&before)? / 1e6;
        all_cycles.push(cycle_ms);
        let slower_ms = COMPUTE_MS + cycle_ms * SLOWER;
        let (again, of_again) = against(lab, (&before, &file), COMPUTE_MS)?;
        let (slower, of_slower) = against(lab, (&before, &file), slower_ms)?;
        silent += u32::from(again == "cannot-tell");
        found += u32::from(slower == "worse");
        wrong += u32::from(slower == "better");
        repeated += of_again + of_slower;
    }
    let share = |count: u32| to_f64(count.into()) / to_f64(rounds.into());
    let figure = |count: u32| format!("{count} of {rounds}");
    claims.add(
        "a workload against itself: cannot tell, in 90 % of rounds or more",
        figure(silent),
        share(silent) >= SILENT_MIN,
    );
    claims.add(
        format!(
            "a cycle of {:.1} us made 10 % longer: worse, in 80 % or more",
            median(&all_cycles) * 1e3
        ),
        figure(found),
        share(found) >= FOUND_MIN,
    );
    let figure = format!("{wrong} of {rounds}; {repeated} runs were repeated on a slower machine");
    claims.add("and never better", figure, wrong == 0);
    Ok(())
}

/// Runs the workload; where its record is.
fn bench(lab: &Lab, file: &Path, compute_ms: f64, name: &str) -> Result<PathBuf> {
    let record = lab.file(&format!("{name}.json"));
    let mut command = Command::new(&lab.binary);
    command.args(["bench", "probe"]).arg(file);
    command.args(["--pattern", "R", "--cycle", "16", "--order", "uniform", "--start", "warm"]);
    command.args(["--compute", &compute_ms.to_string(), "--length", TRIAL]);
    command.args(["--trials", TRIALS, "--confidence", "off", "--output"]).arg(&record);
    run::text(&mut command)?;
    Ok(record)
}

/// Runs the workload until the machine is as fast as it was before, and compares; the verdict, and
/// how often that was repeated.
fn against(lab: &Lab, (before, file): (&Path, &Path), compute_ms: f64) -> Result<(String, u32)> {
    let mut repeats = 0;
    loop {
        let after = bench(lab, file, compute_ms, "after")?;
        let (verdict, why) = verdict(lab, before, &after)?;
        if !why.starts_with(SLOWER_MACHINE) || repeats == REPEATS_MAX {
            return Ok((verdict, repeats));
        }
        repeats += 1;
    }
}

/// The median answer time of a cycle, in nanoseconds.
fn cycle_ns(record: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(record).context("read a record")?;
    let record: Value = serde_json::from_str(&text).context("parse a record")?;
    let samples = record["samples"].as_array().context("a record has samples")?;
    let sample = samples.iter().find(|sample| sample["series"] == "answer time");
    let values = sample.and_then(|sample| sample["values"].as_array()).context("no answer time")?;
    let mut values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("no value")
}

/// What `larder compare` says of the main series, and why if it cannot tell.
fn verdict(lab: &Lab, before: &Path, after: &Path) -> Result<(String, String)> {
    let mut command = Command::new(&lab.binary);
    let out = run::keep(command.arg("compare").arg(before).arg(after).args(["--format", "json"]))?;
    // 1 is a finding: some series is worse.
    if !matches!(out.code, Some(0 | 1)) {
        bail!("larder compare: {}", out.stderr);
    }
    let found: Value = serde_json::from_str(&out.stdout).context("parse a comparison")?;
    let series = found["series"].as_array().context("a comparison has series")?;
    let main = series.iter().find(|series| series["series"] == SERIES).context("no main series")?;
    let verdict = main["verdict"].as_str().context("a verdict is a word")?;
    // An exit code that says something else than the table would be wrong as well.
    let worse = series.iter().any(|series| series["verdict"] == "worse");
    ensure!(worse == (out.code == Some(1)), "exit code {:?} with {verdict}", out.code);
    let why = main["why"].as_str().context("a reason is words")?;
    Ok((verdict.to_owned(), why.to_owned()))
}
