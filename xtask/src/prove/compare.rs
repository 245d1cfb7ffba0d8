//! Whether `larder compare` says what is so: a workload against itself, again and again, and
//! against itself with a known part of its time added.
//!
//! The workload reads a warm file, sixteen records a cycle, and computes a little. How long a cycle
//! takes is measured first; the slower form computes a tenth of that longer. Each round runs the
//! one, the one again, and the slower one, each while the machine is as fast as it was at first:
//! one that is shared with others is a fifth slower for seconds.

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
/// Runs of which the one of the fastest machine is the measure for all others.
const FIRST_RUNS: u32 = 5;
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
    let first = fastest(lab, &file)?;
    let cycle_ms = cycle_ns(&first)? / 1e6;
    let slower_ms = COMPUTE_MS + cycle_ms * SLOWER;
    let (mut silent, mut found, mut wrong) = (0, 0, 0);
    for _ in 0..rounds {
        let bench = |compute_ms, name| bench(lab, &file, compute_ms, name, Some(&first));
        let before = bench(COMPUTE_MS, "before")?;
        let again = bench(COMPUTE_MS, "again")?;
        let slower = bench(slower_ms, "slower")?;
        silent += u32::from(verdict(lab, &before, &again)? == "cannot-tell");
        let judged = verdict(lab, &before, &slower)?;
        found += u32::from(judged == "worse");
        wrong += u32::from(judged == "better");
    }
    let share = |count: u32| to_f64(count.into()) / to_f64(rounds.into());
    let figure = |count: u32| format!("{count} of {rounds}");
    claims.add(
        "a workload against itself: cannot tell, in 90 % of rounds or more",
        figure(silent),
        share(silent) >= SILENT_MIN,
    );
    claims.add(
        format!("a cycle of {:.1} us made 10 % longer: worse, in 80 % or more", cycle_ms * 1e3),
        figure(found),
        share(found) >= FOUND_MIN,
    );
    claims.add("and never better", figure(wrong), wrong == 0);
    Ok(())
}

/// Runs the workload some times; the record of the one during which the machine was fastest.
fn fastest(lab: &Lab, file: &Path) -> Result<PathBuf> {
    let mut best: Option<(f64, PathBuf)> = None;
    for number in 0..FIRST_RUNS {
        let record = bench(lab, file, COMPUTE_MS, &format!("first-{number}"), None)?;
        let run = parsed(&record)?;
        let trials = run["trials"].as_array().context("a record has trials")?;
        let speeds: Vec<f64> = trials.iter().filter_map(|trial| trial["speed"].as_f64()).collect();
        ensure!(!speeds.is_empty(), "nobody measured how fast the machine was");
        let speed = median(&speeds);
        if best.as_ref().is_none_or(|(fastest, _)| speed > *fastest) {
            best = Some((speed, record));
        }
    }
    best.map(|(_, record)| record).context("no run")
}

/// Runs the workload, at the speed that the machine had in a record; where its own record is.
fn bench(
    lab: &Lab,
    file: &Path,
    compute_ms: f64,
    name: &str,
    as_fast_as: Option<&Path>,
) -> Result<PathBuf> {
    let record = lab.file(&format!("{name}.json"));
    let mut command = Command::new(&lab.binary);
    command.args(["bench", "probe"]).arg(file);
    command.args(["--pattern", "R", "--cycle", "16", "--order", "uniform", "--start", "warm"]);
    command.args(["--compute", &compute_ms.to_string(), "--length", TRIAL]);
    command.args(["--trials", TRIALS, "--confidence", "off", "--output"]).arg(&record);
    if let Some(record) = as_fast_as {
        command.arg("--as-fast-as").arg(record);
    }
    run::text(&mut command)?;
    Ok(record)
}

fn parsed(record: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(record).context("read a record")?;
    serde_json::from_str(&text).context("parse a record")
}

/// The median answer time of a cycle, in nanoseconds.
fn cycle_ns(record: &Path) -> Result<f64> {
    let record = parsed(record)?;
    let samples = record["samples"].as_array().context("a record has samples")?;
    let sample = samples.iter().find(|sample| sample["series"] == "answer time");
    let values = sample.and_then(|sample| sample["values"].as_array()).context("no answer time")?;
    let mut values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("no value")
}

/// What `larder compare` says of the main series.
fn verdict(lab: &Lab, before: &Path, after: &Path) -> Result<String> {
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
    Ok(verdict.to_owned())
}
