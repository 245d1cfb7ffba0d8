//! The policies compared with those of libCacheSim on traces of public packages, of the shared
//! directory and of the generator; makes docs/policies-measured.md.
//!
//! Both simulate the same references, one for each page of 4 KiB, with the same numbers of pages.

use super::prelude::*;
use super::{policies, public_traces, sim_speed};
use std::fmt::Write as _;

/// The policies, their names in libCacheSim, and the difference in points that is not explained. A
/// policy whose difference is [`SAME`] follows the same rules, so that it must not be exceeded.
const POLICIES: [(&str, &str, f64); 11] = [
    ("lru", "LRU", SAME),
    ("fifo", "FIFO", SAME),
    ("clock", "Clock", SAME),
    ("sieve", "Sieve", SAME),
    ("arc", "ARC", SAME),
    ("2q", "TwoQ", 0.3),
    ("slru", "SLRU", 0.3),
    ("lirs", "LIRS", 0.3),
    ("s3fifo", "S3FIFO", 0.3),
    ("clock2q+", "Clock2QPlus", 0.3),
    ("wtinylfu", "WTinyLFU", 0.3),
];
const SAME: f64 = 0.05;
/// Sizes of the caches, in percent of the pages of a trace.
const SIZES: [u32; 3] = [1, 10, 50];
/// The maximum difference in points by which a policy may be worse than its namesake.
const LOSS_MAX: f64 = 1.0;
/// The page with the tables.
const PAGE: &str = "docs/policies-measured.md";

/// Patterns of `larder trace synth`.
const GENERATED: [&str; 2] = ["mix", "database"];

/// The peer: a trace, then numbers of pages; prints hit ratios by policy and number.
const PEER: &str = "
import sys, json, libcachesim as lcs
def hit_ratio(name, pages):
    parameters = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(sys.argv[1], lcs.TraceType.ORACLE_GENERAL_TRACE, parameters)
    return 1 - getattr(lcs, name)(cache_size=pages).process_trace(reader)[0]
sizes = [int(size) for size in sys.argv[3:]]
names = sys.argv[2].split(',')
print(json.dumps({'ratios': {name: [hit_ratio(name, pages) for pages in sizes] for name in names}}))
";

/// The hit ratios of one policy on one trace in percent, by size.
struct Row {
    policy: String,
    ours: Vec<f64>,
    theirs: Option<Vec<f64>>,
}

struct TraceTable {
    trace: String,
    references: u64,
    footprint: u64,
    rows: Vec<Row>,
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let python = sim_speed::install_peer(env)?;
    let mut tables = Vec::new();
    for (name, path) in prepare(env)? {
        let table = compare(env, &python, &name, &path)?;
        outln!("   {name}: {} references, {} pages", table.references, table.footprint);
        tables.push(table);
    }
    for (policy, _, tolerance) in POLICIES {
        judge(&tables, policy, tolerance, claims);
    }
    if !env.options.quick {
        std::fs::write(env.root.join(PAGE), page(&tables)?).context(PAGE)?;
        outln!("   written to {PAGE}");
    }
    Ok(())
}

/// Returns the names of the traces and their references in the format that both read. The bench
/// adds the trace `zipf`.
fn prepare(env: &Env) -> Result<Vec<(String, PathBuf)>> {
    let dir = env.dir();
    let mut sources: Vec<PathBuf> =
        policies::traces(env).into_iter().map(|(path, _)| path).collect();
    let public = [public_traces::OPEN, public_traces::SET_ASIDE].concat();
    sources.extend(public_traces::convert(env, &public[..env.choose(public.len(), 3)])?);
    let (larder, requests) = (&env.larder, env.choose("500000", "20000"));
    for pattern in GENERATED {
        let path = env.file(&format!("{pattern}.ltr"));
        let size = ["--requests", requests, "--pages", "65536"];
        stdout_of(cmd!("{larder} trace synth {pattern} {path} --quiet {size...}"))?;
        sources.push(path);
    }
    let bench = sim_speed::build_bench(env)?;
    let mut to_peer = cmd!(1200, "{bench} prepare {dir}");
    stdout_of(to_peer.args(&sources))?;
    let prepared = sources.iter().map(|source| {
        let name = source.file_name().context("a name")?.to_string_lossy();
        let name = name.split('.').next().unwrap_or_default().to_owned();
        Ok((name.clone(), env.file(&format!("{name}.oracleGeneral"))))
    });
    let zipf = Ok(("zipf".to_owned(), env.file("zipf.oracleGeneral")));
    prepared.chain([zipf]).collect()
}

/// Simulates all policies on a trace with both programs.
fn compare(env: &Env, python: &Path, name: &str, path: &Path) -> Result<TraceTable> {
    let larder = &env.larder;
    let sizes = SIZES.map(|percent| format!("{percent}%")).join(",");
    let options = ["--split", "none", "--policy", "all,min", "--size", &sizes, "--json", "--quiet"];
    let swept = json_of(cmd!(1200, "{larder} sim {path} {options...}"))?;
    let found = swept["rows"].as_array().context("larder sim printed no rows")?;
    let mut rows: Vec<Row> = Vec::new();
    for row in found {
        let policy = row["policy"].as_str().context("a row without policy")?;
        let ratio = 100.0 * number(row, "hit_ratio")?;
        match rows.last_mut().filter(|last| last.policy == policy) {
            Some(last) => last.ours.push(ratio),
            None => rows.push(Row { policy: policy.to_owned(), ours: vec![ratio], theirs: None }),
        }
    }
    let first = found.first().context("larder sim printed no rows")?;
    let pages = |row: &Value| row["size_pages"].as_u64().map(|pages| pages.to_string());
    let pages: Vec<String> = found[..SIZES.len()].iter().filter_map(pages).collect();
    let names = POLICIES.map(|(_, peer, _)| peer).join(",");
    let made = json_of(cmd!(3600, "{python} -c {PEER} {path} {names} {pages...}"))?;
    for row in &mut rows {
        let Some((_, peer, _)) = POLICIES.iter().find(|(policy, ..)| *policy == row.policy) else {
            continue;
        };
        let ratios = made["ratios"][peer].as_array().context("no ratios of the peer")?;
        row.theirs = Some(ratios.iter().filter_map(Value::as_f64).map(|it| 100.0 * it).collect());
    }
    Ok(TraceTable {
        trace: name.to_owned(),
        references: first["references"].as_u64().context("no references")?,
        footprint: first["compulsory_misses"].as_u64().context("no compulsory misses")?,
        rows,
    })
}

/// Claims that a policy hits as often as its namesake, or more often.
fn judge(tables: &[TraceTable], policy: &str, tolerance: f64, claims: &mut Claims) {
    let (mut worst, mut best, mut exact, mut all) = ((0.0, "-"), (0.0, "-"), 0, 0);
    for table in tables {
        let rows = table.rows.iter().filter(|row| row.policy == policy);
        for (ours, theirs) in rows.flat_map(|row| row.ours.iter().zip(row.theirs.iter().flatten()))
        {
            let difference = ours - theirs;
            all += 1;
            exact += u32::from(difference.abs() <= tolerance);
            if difference < worst.0 {
                worst = (difference, &table.trace);
            }
            if difference > best.0 {
                best = (difference, &table.trace);
            }
        }
    }
    let figure = format!(
        "{exact} of {all} within {tolerance} points; {:+.2} ({}) to {:+.2} ({})",
        worst.0, worst.1, best.0, best.1
    );
    let must_be_same = tolerance <= SAME;
    let statement = if must_be_same {
        format!("{policy}: within {SAME} points of libCacheSim")
    } else {
        format!("{policy}: never {LOSS_MAX:.0} point below libCacheSim")
    };
    let holds = worst.0 > -LOSS_MAX && (exact == all || !must_be_same);
    claims.add(statement, figure, all > 0 && holds);
}

/// Returns the page with one table for each trace.
fn page(tables: &[TraceTable]) -> Result<String> {
    let mut page = "# Policies measured\n\nHit ratios in percent with caches of 1, 10 and 50 % of \
                    the pages of each trace, one reference\nfor each page of 4 KiB: Larder's, then \
                    libCacheSim's (0.3.5). `cargo xtask prove policies` makes this\npage; \
                    [Replacement policies](policies.md#validation) explains the differences and \
                    names the traces.\n"
        .to_owned();
    for table in tables {
        let TraceTable { trace, references, footprint, .. } = table;
        writeln!(page, "\n## {trace}\n\n{references} references to {footprint} pages.\n")?;
        let sizes = SIZES.map(|percent| format!("{percent} %")).join(" | | ");
        writeln!(page, "| policy | {sizes} | |\n|---|{}", "--:|".repeat(2 * SIZES.len()))?;
        for row in &table.rows {
            write!(page, "| `{}` |", row.policy)?;
            for (index, ours) in row.ours.iter().enumerate() {
                let theirs = row.theirs.as_ref().and_then(|theirs| theirs.get(index));
                let theirs = theirs.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
                write!(page, " {ours:.2} | {theirs} |")?;
            }
            writeln!(page)?;
        }
    }
    Ok(page)
}
