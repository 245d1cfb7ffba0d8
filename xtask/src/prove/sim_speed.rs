//! The simulator against `libCacheSim`, one core each, alternating in one run; and what it promises
//! of itself: the exact curve, the sweep, the sampled sweep, the error bars.
//!
//! Both read the same binary file and run one cache over it; the peer's loop is C, called once from
//! Python. Times are taken inside the processes, around reading and running.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::speed;
use super::speed::record::{self, Record};
use super::{Claims, Lab};
use crate::run;

/// A policy here, its name there, and how many times the peer's rate is promised.
const POLICIES: &[(&str, &str, f64)] = &[
    ("lru", "LRU", 1.5),
    ("fifo", "FIFO", 1.5),
    ("sieve", "Sieve", 1.5),
    ("arc", "ARC", 1.5),
    ("s3fifo", "S3FIFO", 2.5),
    ("lirs", "LIRS", 2.5),
    ("wtinylfu", "WTinyLFU", 2.5),
];

/// Traces of papers, if they are beside the repository.
const TRACES: [&str; 2] = ["arc_OLTP", "arc_P3"];

/// One pass of the peer: trace, class, pages; prints seconds and miss ratio.
const PEER: &str = "
import sys, time, libcachesim as lcs
parameters = lcs.ReaderInitParam(ignore_obj_size=True)
reader = lcs.TraceReader(sys.argv[1], lcs.TraceType.ORACLE_GENERAL_TRACE, parameters)
cache = getattr(lcs, sys.argv[2])(cache_size=int(sys.argv[3]))
started = time.perf_counter()
missed, _ = cache.process_trace(reader)
print('{\"seconds\": %r, \"miss_ratio\": %r}' % (time.perf_counter() - started, missed))
";

/// Where everything of a run is.
#[derive(Debug)]
struct Rig {
    bench: PathBuf,
    python: PathBuf,
    rounds: usize,
}

/// One comparison: rates in references per second, round by round.
#[derive(Debug)]
struct Comparison {
    what: String,
    ours: Vec<f64>,
    theirs: Vec<f64>,
    miss_ratios: (f64, f64),
    required: f64,
}

impl Comparison {
    /// Median, least and greatest ratio of the rounds.
    fn ratios(&self) -> (f64, f64, f64) {
        let ratios: Vec<f64> =
            self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        (speed::median(&ratios), least, ratios.iter().copied().fold(0.0, f64::max))
    }

    fn json(&self) -> Value {
        let (median, min, max) = self.ratios();
        json!({
            "what": self.what,
            "ours": format!("larder: {}", self.what),
            "theirs": format!("libCacheSim: {}", self.what),
            "ratio_median": median, "ratio_min": min, "ratio_max": max,
            "required": self.required,
            "holds": median >= self.required,
        })
    }

    fn samples(&self) -> [Value; 2] {
        [("larder", &self.ours), ("libCacheSim", &self.theirs)].map(|(who, values)| {
            json!({
                "series": format!("{who}: {}", self.what),
                "unit": "references/s",
                "values": values.iter().map(|value| value.round()).collect::<Vec<_>>(),
            })
        })
    }
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let bench = build(lab)?;
    let traces = prepare(lab, &bench, claims)?;
    for (name, path) in &traces {
        own(&bench, name, path, claims)?;
    }
    let python = match install(lab.dir()) {
        Ok(python) => python,
        Err(error) => {
            claims.skip("faster than libCacheSim", format!("cannot install it: {error:#}"));
            return Ok(());
        }
    };
    let started = record::now()?;
    let rig = Rig { bench, python, rounds: lab.either(3, 1) };
    let mut comparisons = Vec::new();
    for (name, path) in &traces {
        let footprint =
            number(&ours(&rig.bench, &["exact".as_ref(), path.as_ref()])?, "footprint")?;
        for per_cent in [1.0, 10.0] {
            let pages = format!("{:.0}", (footprint * per_cent / 100.0).floor());
            for &(policy, peer, required) in POLICIES {
                let what = format!("{name}, {per_cent} %, {policy}");
                let made = compare(&rig, path, (policy, peer, &pages), what, required)?;
                claim(&made, claims);
                comparisons.push(made);
            }
        }
    }
    if !lab.options.quick {
        let path = write(lab, &rig, &started, &comparisons)?;
        println!("   recorded in {}", path.display());
    }
    Ok(())
}

/// Builds the bench; answers where it is.
fn build(lab: &Lab) -> Result<PathBuf> {
    let mut cargo = run::cargo(&lab.root);
    cargo.args(["bench", "--package", "larder-lab", "--bench", "sim", "--no-run"]);
    let text = run::text(cargo.arg("--message-format=json"))?;
    let mut executables = text.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    executables.next_back().context("cargo built no bench called sim")
}

/// The traces in the format that both read.
fn prepare(lab: &Lab, bench: &Path, claims: &mut Claims) -> Result<Vec<(String, PathBuf)>> {
    let mut command = Command::new(bench);
    command.arg("prepare").arg(lab.dir());
    let mut names = Vec::new();
    for name in TRACES {
        let path = lab.root.join("../shared/traces").join(format!("{name}.lis.zst"));
        if path.exists() {
            command.arg(path);
            names.push(name);
        } else {
            claims.skip(format!("speed on {name}"), "the trace is not in ../shared/traces");
        }
    }
    run::text(&mut command)?;
    names.push("zipf");
    Ok(names
        .into_iter()
        .map(|name| (name.to_owned(), lab.file(&format!("{name}.oracleGeneral"))))
        .collect())
}

/// Installs the peer into a place of its own; answers its Python.
fn install(dir: &Path) -> Result<PathBuf> {
    let place = dir.join("peer");
    run::text(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let python = place.join("bin/python");
    run::text(Command::new(&python).args(["-m", "pip", "install", "--quiet", "libcachesim"]))?;
    Ok(python)
}

/// One line of JSON from the bench.
fn ours(bench: &Path, args: &[&std::ffi::OsStr]) -> Result<Value> {
    let text = run::text(Command::new(bench).args(args))?;
    serde_json::from_str(text.trim()).context("parse what the bench printed")
}

fn number(from: &Value, name: &str) -> Result<f64> {
    from[name].as_f64().with_context(|| format!("no number {name}"))
}

/// What is promised without a peer.
fn own(bench: &Path, name: &str, path: &Path, claims: &mut Claims) -> Result<()> {
    let exact = ours(bench, &["exact".as_ref(), path.as_ref()])?;
    let rate = number(&exact, "references")? / number(&exact, "seconds")? / 1e6;
    claims.add(
        format!("{name}: the exact curve at 4 million references per second or more"),
        format!("{rate:.1} million per s"),
        rate >= 4.0,
    );
    let sweep = ours(bench, &["sweep".as_ref(), path.as_ref()])?;
    let (separate, together) = (number(&sweep, "separate_s")?, number(&sweep, "together_s")?);
    claims.add(
        format!("{name}: 8 sizes of 8 policies in one pass, at most 0.7 of separate ones"),
        format!("{:.2} ({together:.1} s of {separate:.1} s, one core)", together / separate),
        together <= 0.7 * separate,
    );
    let passes = number(&sweep, "sampled_s")? / number(&sweep, "lru_s")?;
    claims.add(
        format!("{name}: the same sampled, at most 12 passes of lru"),
        format!("{passes:.1} passes"),
        passes <= 12.0,
    );
    let text = run::text(Command::new(bench).arg("bars").arg(path).arg("200"))?;
    let line = text.lines().find(|line| line.contains("\"lru sampled\""));
    let bars: Value = serde_json::from_str(line.context("the bench printed no bars")?)?;
    let (error, held) = (number(&bars, "mean_error")?, number(&bars, "held")?);
    claims.add(
        format!("{name}: sampled against exact, mean error at most 0.5 points; 91 % of bars hold"),
        format!("{:.2} points, {:.1} % of 200 seeds", error * 100.0, held * 100.0),
        error <= 0.005 && held >= 0.91,
    );
    Ok(())
}

fn compare(
    rig: &Rig,
    path: &Path,
    (policy, peer, pages): (&str, &str, &str),
    what: String,
    required: f64,
) -> Result<Comparison> {
    let mut made =
        Comparison { what, ours: vec![], theirs: vec![], miss_ratios: (0.0, 0.0), required };
    for round in 0..rig.rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                let args = ["replace".as_ref(), path.as_ref(), policy.as_ref(), pages.as_ref()];
                let found = ours(&rig.bench, &args)?;
                made.ours.push(number(&found, "references")? / number(&found, "seconds")?);
                made.miss_ratios.0 = number(&found, "miss_ratio")?;
            } else {
                let mut python = Command::new(&rig.python);
                python.args(["-c", PEER]).arg(path).args([peer, pages]);
                let found: Value = serde_json::from_str(run::text(&mut python)?.trim())?;
                // References are those of the file for both.
                made.theirs.push(1.0 / number(&found, "seconds")?);
                made.miss_ratios.1 = number(&found, "miss_ratio")?;
            }
        }
    }
    let found = ours(&rig.bench, &["exact".as_ref(), path.as_ref()])?;
    let references = number(&found, "references")?;
    made.theirs.iter_mut().for_each(|passes| *passes *= references);
    Ok(made)
}

fn claim(made: &Comparison, claims: &mut Claims) {
    let (median, min, max) = made.ratios();
    let millions = |rates: &[f64]| speed::median(rates) / 1e6;
    claims.against(
        format!("{}: at least {} times the rate of libCacheSim", made.what, made.required),
        format!(
            "{median:.2} times ({min:.2} to {max:.2}), {:.1} million per s, misses {:.4}",
            millions(&made.ours),
            made.miss_ratios.0
        ),
        format!("{:.1} million per s, misses {:.4}", millions(&made.theirs), made.miss_ratios.1),
        median >= made.required,
    );
}

fn write(lab: &Lab, rig: &Rig, started: &str, comparisons: &[Comparison]) -> Result<PathBuf> {
    let mut show = Command::new(&rig.python);
    show.args(["-c", "import importlib.metadata as m; print(m.version('libcachesim'))"]);
    let record = Record {
        what: "the simulator against libCacheSim, one core",
        started,
        software: json!({
            "larder": record::commit(&lab.root),
            "libcachesim": run::text(&mut show)?.trim(),
        }),
        settings: json!({ "rounds": rig.rounds }),
        samples: comparisons.iter().flat_map(Comparison::samples).collect(),
        comparisons: comparisons.iter().map(Comparison::json).collect(),
    };
    record.write(&lab.root, "sim-speed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds() {
        let made = Comparison {
            what: "x".to_owned(),
            ours: vec![30.0, 10.0, 40.0],
            theirs: vec![10.0, 10.0, 10.0],
            miss_ratios: (0.5, 0.5),
            required: 3.5,
        };
        assert_eq!(made.ratios(), (3.0, 1.0, 4.0));
        assert_eq!(made.json()["holds"], false);
        assert_eq!(made.json()["ours"], made.samples()[0]["series"]);
    }
}
