//! `larder advise` on recorded and generated traffic, against trying everything: the advice comes
//! from parts of the traffic, and is compared with the rates of all candidates for much larger
//! parts.

use super::prelude::*;
use std::collections::BTreeMap;

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
/// Recorded traffic.
const TRACES: [&str; 4] =
    ["arc_OLTP.lis.zst", "arc_P3.lis.zst", "cloudPhysicsIO.vscsi", "mqsim_tpcc-small.trace"];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    // Rule and advice: how often they agree.
    let mut verdicts: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (index, (name, pattern, options)) in GENERATED.into_iter().enumerate() {
        let (larder, trace) = (&env.larder, env.file(&format!("{index}.ltr")));
        let synth = ["trace", "synth", pattern];
        stdout_of(cmd!(
            "{larder} {synth...} {trace} --requests {REQUESTS} --pages 65536 {options...}"
        ))?;
        check(env, claims, name, &trace, &mut verdicts)?;
    }
    for name in TRACES {
        let Some(recorded) = env.trace(name) else {
            claims.skip(format!("{name}: the advice"), "it is not in ../shared/traces");
            continue;
        };
        check(env, claims, name, &recorded, &mut verdicts)?;
    }
    for ((rule, verdict), count) in verdicts {
        outln!("   published rule {rule}: {verdict} in {count}");
    }
    Ok(())
}

fn check(
    env: &Env,
    claims: &mut Claims,
    name: &str,
    trace: &Path,
    verdicts: &mut BTreeMap<(String, &str), usize>,
) -> Result<()> {
    let larder = &env.larder;
    for disk in ["disk", "scsi-1999", "sata-flash"] {
        let options = ["--disk", disk, "--json"];
        let advice_of = |requests: &str| {
            json_of(cmd!("{larder} advise {trace} {options...} --requests {requests}"))
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
        let rates = rows.iter().filter(survives).map(rate).collect::<Result<Vec<f64>>>()?;
        let best = rates.into_iter().fold(0.0, f64::max);
        let own = rows.iter().find(|row| row["model"] == *advised).context("no such array")?;
        let slower = 1.0 - rate(own)? / best;
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
            *verdicts.entry((level, verdict)).or_default() += 1;
        }
    }
    Ok(())
}
