//! The simulator compared with `libCacheSim`, on one core each, alternating in one run; and its own
//! claims, which the benchmark of larder-lab checks.
//!
//! Both read the same binary file and simulate one cache; the peer's loop is in C, called once from
//! Python. Times are measured inside the processes, for reading and simulation.

use super::prelude::*;
use crate::record::Record;
use crate::stats::{Spread, median, run_alternating};

/// A policy, its name in libCacheSim, and the required multiple of the peer's rate.
const POLICIES: &[(&str, &str, f64)] = &[
    ("lru", "LRU", 1.5),
    ("fifo", "FIFO", 1.5),
    ("sieve", "Sieve", 1.5),
    ("arc", "ARC", 1.5),
    ("s3fifo", "S3FIFO", 2.5),
    ("lirs", "LIRS", 2.5),
    ("wtinylfu", "WTinyLFU", 2.5),
];

/// Traces of papers, if they are available next to the repository.
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
const PEER_VERSION: &str = "import importlib.metadata as m; print(m.version('libcachesim'))";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let bench = build_bench(env)?;
    let traces = prepare(env, &bench, claims)?;
    let mut facts = Vec::new();
    for (name, path) in &traces {
        let out = stdout_of(cmd!("{bench} promises {name} {path}"))?;
        facts.push(run::json_in(&out)?);
        claims.collect(&out)?;
    }
    let python = install_peer(env)?;
    let rounds = env.choose(3, 1);
    let statement = "the simulator against libCacheSim, one core";
    let mut record = Record::new(&env.root, statement, &[], &json!({ "rounds": rounds }))?;
    record.software("libcachesim", &stdout_of(cmd!("{python} -c {PEER_VERSION}"))?);
    for ((name, path), exact) in traces.iter().zip(&facts) {
        for per_cent in [1.0, 10.0] {
            let pages = (number(exact, "footprint")? * per_cent / 100.0).floor().to_string();
            for policy in POLICIES {
                let programs = (bench.as_path(), python.as_path());
                let sides = compare(programs, path, (policy.0, policy.1, &pages), rounds)?;
                let statement = format!("{name}, {per_cent} %, {}", policy.0);
                judge(
                    &statement,
                    &sides,
                    number(exact, "references")?,
                    policy.2,
                    claims,
                    &mut record,
                );
            }
        }
    }
    if !env.options.quick {
        outln!("   recorded in {}", record.write("sim-speed")?);
    }
    Ok(())
}

/// Builds the bench that writes traces for the peer and runs single caches.
pub(super) fn build_bench(env: &Env) -> Result<PathBuf> {
    let words = ["bench", "--package", "larder-lab", "--bench", "sim", "--no-run"];
    run::build_executable(&env.root, &words, "sim")
}

/// Installs libCacheSim in a virtual environment of its own; returns its Python.
pub(super) fn install_peer(env: &Env) -> Result<PathBuf> {
    let peer = env.file("peer");
    let install = "python3 -m venv $0 && $0/bin/python -m pip install --quiet libcachesim==0.3.5";
    let installed = stdout_of(cmd!("sh -c {install} {peer}"));
    require(installed.err().map(|error| format!("cannot install libCacheSim: {error:#}")))?;
    Ok(peer.join("bin/python"))
}

/// Returns the traces in the format that both read.
fn prepare(env: &Env, bench: &Path, claims: &mut Claims) -> Result<Vec<(&'static str, PathBuf)>> {
    let (mut made, mut paths, dir) = (Vec::new(), Vec::new(), env.dir());
    let file = |name: &'static str| (name, env.file(&format!("{name}.oracleGeneral")));
    for name in TRACES {
        match env.trace(&format!("{name}.lis.zst")) {
            Some(path) => {
                paths.push(path);
                made.push(file(name));
            }
            None => claims.skip(format!("speed on {name}"), "it is not in ../shared/traces"),
        }
    }
    stdout_of(cmd!("{bench} prepare {dir} {paths...}"))?;
    made.push(file("zipf"));
    Ok(made)
}

/// Passes per second by round, and the miss ratio.
type Side = (Vec<f64>, f64);

/// Runs passes of Larder and of the peer alternately.
fn compare(
    (bench, python): (&Path, &Path),
    path: &Path,
    (policy, peer, pages): (&str, &str, &str),
    rounds: usize,
) -> Result<[Side; 2]> {
    let mut sides = [(vec![], 0.0), (vec![], 0.0)];
    run_alternating(rounds, 2, |index| {
        let found = json_of(if index == 0 {
            cmd!("{bench} replace {path} {policy} {pages}")
        } else {
            cmd!("{python} -c {PEER} {path} {peer} {pages}")
        })?;
        sides[index].0.push(1.0 / number(&found, "seconds")?);
        sides[index].1 = number(&found, "miss_ratio")?;
        Ok(())
    })?;
    Ok(sides)
}

fn judge(
    statement: &str,
    [ours, theirs]: &[Side; 2],
    references: f64,
    required: f64,
    claims: &mut Claims,
    record: &mut Record,
) {
    let ratio = Spread::of_ratios(&ours.0, &theirs.0);
    let rates = |(passes, _): &Side| passes.iter().map(|it| it * references).collect::<Vec<_>>();
    let summary = |side: &Side| {
        format!("{:.1} million per s, misses {:.4}", median(&rates(side)) / 1e6, side.1)
    };
    claims.add_with_peer(
        format!("{statement}: at least {required} times the rate of libCacheSim"),
        format!("{}, {}", ratio.times(), summary(ours)),
        summary(theirs),
        ratio.median >= required,
    );
    let names = ["larder", "libCacheSim"].map(|program| format!("{program}: {statement}"));
    record.series(&names[0], "references/s", &rates(ours), 0);
    record.series(&names[1], "references/s", &rates(theirs), 0);
    record.comparison(statement, [&names[0], &names[1]], ratio, required);
}
