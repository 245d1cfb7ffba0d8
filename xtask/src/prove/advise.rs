//! `larder advise` on recorded and generated traffic, against trying everything: the advice comes
//! from parts of the traffic, and is compared with the rates of all candidates for much larger
//! parts.

mod confusion;
mod logs;
mod md;
mod units;

use super::prelude::*;
use confusion::Confusion;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Share of the best rate that the advised candidate may be slower.
const SLOWER_MAX: f64 = 0.05;
/// Requests of generated traffic.
const REQUESTS: &str = "100000";
/// Requests of the advice, and of the comparison: all of them, or these many of recorded traffic.
const ADVICE: &str = "20000";
const COMPARISON: &str = "400000";
/// Generated traffic: pattern, and options.
const GENERATED: [(&str, &str, &[&str]); 8] = [
    ("random reads", "uniform", &["--writes", "0%"]),
    ("random writes", "uniform", &["--writes", "100%"]),
    ("random, 16 KiB, half written", "uniform", &["--writes", "50%", "--page-size", "16KiB"]),
    ("in order, read", "scan", &["--writes", "0%", "--page-size", "64KiB"]),
    ("in order, written", "scan", &["--writes", "100%", "--page-size", "64KiB"]),
    ("several sequences", "interleave", &["--page-size", "64KiB"]),
    ("database", "database", &[]),
    ("mix", "mix", &["--page-size", "8KiB"]),
];
/// Generated traffic for which all allocation units are tried.
const OF_UNITS: [&str; 4] = ["random reads", "in order, written", "several sequences", "database"];
/// Recorded traffic.
const TRACES: [&str; 4] =
    ["arc_OLTP.lis.zst", "arc_P3.lis.zst", "cloudPhysicsIO.vscsi", "mqsim_tpcc-small.trace"];

/// The results of all cases.
#[derive(Default)]
struct Totals {
    /// Rule and verdict: their number.
    verdicts: BTreeMap<(String, &'static str), usize>,
    levels: Confusion,
    units: Confusion,
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let settings = json!({ "requests": REQUESTS, "advice": ADVICE, "comparison": COMPARISON });
    let mut record =
        record::Record::new(&env.root, "larder advise: cases by best", &[], &settings)?;
    let mut totals = Totals::default();
    let directories = units::directories(env)?;
    for (index, (name, pattern, options)) in GENERATED.into_iter().enumerate() {
        let trace = env.file(&format!("{index}.ltr"));
        synth(env, pattern, &trace, options)?;
        check(env, claims, name, &trace, &mut totals)?;
        for files in directories.iter().filter(|_| OF_UNITS.contains(&name)) {
            units::check(env, claims, (name, &trace), files, &mut totals.units)?;
        }
    }
    for name in TRACES {
        let Some(recorded) = env.trace(name) else {
            claims.skip(format!("{name}: the advice"), "it is not in ../shared/traces");
            continue;
        };
        check(env, claims, name, &recorded, &mut totals)?;
    }
    for ((rule, verdict), count) in &totals.verdicts {
        outln!("   published rule {rule}: {verdict} in {count}");
    }
    totals.levels.finish("level", &mut record);
    totals.units.finish("unit", &mut record);
    logs::run(env, claims)?;
    md::run(env, claims)?;
    record.write_as("advise")?;
    Ok(())
}

/// Generates a trace.
fn synth(env: &Env, pattern: &str, trace: &Path, options: &[&str]) -> Result<()> {
    let larder = &env.larder;
    let synth = ["trace", "synth", pattern];
    stdout_of(cmd!(
        "{larder} {synth...} {trace} --requests {REQUESTS} --pages 65536 {options...}"
    ))?;
    Ok(())
}

/// Returns the advice for a trace as JSON.
fn advice(env: &Env, trace: &Path, options: impl IntoIterator<Item = OsString>) -> Result<Value> {
    let larder = &env.larder;
    json_of(cmd!("{larder} advise {trace} --json {options...}"))
}

fn check(
    env: &Env,
    claims: &mut Claims,
    name: &str,
    trace: &Path,
    totals: &mut Totals,
) -> Result<()> {
    for disk in ["disk", "scsi-1999", "sata-flash"] {
        let advice_of = |requests: &str| {
            let options = ["--disk", disk, "--requests", requests];
            advice(env, trace, options.map(OsString::from))
        };
        let (advice, compared) = (advice_of(ADVICE)?, advice_of(COMPARISON)?);
        let Some(index) = advice["advised_array"].as_u64() else {
            // The volume is larger than the disks.
            claims.skip(format!("{name}, {disk}: the advice"), "no array has enough space");
            continue;
        };
        let advised = &advice["arrays"][usize::try_from(index)?]["model"];
        let rows = compared["arrays"].as_array().context("no arrays")?;
        let rate = |row: &Value| number(row, "requests_per_s");
        let survives = |row: &&Value| row["failures_survived"].as_u64() >= Some(1);
        // The rows are in the order of their rates.
        let fastest = rows.iter().find(survives).context("no array survives a failure")?;
        let best = rate(fastest)?;
        let own = rows.iter().find(|row| row["model"] == *advised).context("no such array")?;
        let slower = 1.0 - rate(own)? / best;
        let level = |row: &Value| row["level"].as_str().unwrap_or_default().to_owned();
        totals.levels.add(&level(fastest), &level(own));
        let advised = advised.as_str().context("no model")?;
        claims.add_with_peer(
            format!("{name}, {disk}: the advised array is the best or within 5 %"),
            format!("{advised}, {:.1} % slower than the best", 100.0 * slower),
            format!("best: {best:.0} requests/s"),
            slower <= SLOWER_MAX,
        );
        for rule in advice["rules"].as_array().context("no rules")? {
            let text = rule["rule"].as_str().context("no rule")?;
            let level = text.split_once(": ").map_or(text, |(_, level)| level).to_owned();
            let verdict = if rule["follows"] == true { "agrees" } else { "disagrees" };
            *totals.verdicts.entry((level, verdict)).or_default() += 1;
        }
    }
    Ok(())
}
