//! `--policy auto` against every policy, by `larder sim`, on traces of public packages, of the
//! shared directory and of the generator; makes docs/auto-measured.md.
//!
//! Hit ratios are those of whole traces, from an empty cache on: they include the references before
//! the first decision, and those that each change of the policy costs.

use super::prelude::*;
use super::{policies, public_traces};
use crate::stats::mean_and_max;
use std::fmt::Write as _;

/// Sizes of the caches, in percent of the pages of a trace.
const SIZES: [&str; 5] = ["1%", "5%", "10%", "20%", "50%"];
/// The maximum differences to the best policy in points: on average, and in the worst case.
const MEAN_MAX: f64 = 0.5;
const WORST_MAX: f64 = 3.0;
/// The page with the tables.
const PAGE: &str = "docs/auto-measured.md";
const AUTO: &str = "auto";
/// The page size of most traces, and the unit of those of the package, which number blocks.
const PAGE_SIZE: &str = "4KiB";
const BLOCK_SIZE: &str = "512";

/// Patterns of `larder trace synth`, with their options.
const PATTERNS: [(&str, &[&str]); 6] = [
    ("zipf", &["--pages", "65536"]),
    ("uniform", &["--pages", "16384"]),
    ("loop", &["--pages", "16384"]),
    ("mix", &["--pages", "65536"]),
    ("database", &["--pages", "65536"]),
    ("sample", &["--pages", "65536"]),
];
/// The patterns whose traces, one after the other, are the trace `phases`.
const PHASES: [&str; 5] = ["zipf", "loop", "database", "uniform", "loop"];

struct Trace {
    name: String,
    path: PathBuf,
    page_size: &'static str,
}

/// The hit ratios of all policies in percent, in a cache of one size.
struct Case {
    trace: String,
    size: &'static str,
    pages: u64,
    ratios: Vec<(String, f64)>,
}

impl Case {
    /// Returns the best policy and its hit ratio.
    fn best(&self) -> (&str, f64) {
        let fixed = self.ratios.iter().filter(|(policy, _)| policy != AUTO);
        let best = fixed.max_by(|one, other| one.1.total_cmp(&other.1)).expect("policies");
        (&best.0, best.1)
    }

    fn hit_ratio(&self, policy: &str) -> f64 {
        let found = self.ratios.iter().find(|(name, _)| name == policy);
        found.expect("each case has all policies").1
    }

    /// Returns the points by which a policy is behind the best one.
    fn behind(&self, policy: &str) -> f64 {
        self.best().1 - self.hit_ratio(policy)
    }
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let mut cases = Vec::new();
    for trace in traces(env)? {
        cases.extend(simulate(env, &trace)?);
        outln!("   {}", trace.name);
    }
    judge(&cases, claims);
    if !env.options.quick {
        std::fs::write(env.root.join(PAGE), page(&cases)?).context(PAGE)?;
        outln!("   written to {PAGE}");
    }
    Ok(())
}

fn traces(env: &Env) -> Result<Vec<Trace>> {
    let of_pages = |name: &str, path| Trace { name: name.to_owned(), path, page_size: PAGE_SIZE };
    let shared = policies::traces(env).into_iter();
    let mut traces: Vec<_> = shared.map(|(path, name)| of_pages(name, path)).collect();
    require((traces.len() < policies::TRACES.len()).then(|| "not all shared traces".into()))?;
    let public = [public_traces::OPEN, public_traces::SET_ASIDE].concat();
    for path in public_traces::convert(env, &public[..env.choose(public.len(), 3)])? {
        let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
        traces.push(Trace { name, path, page_size: BLOCK_SIZE });
    }
    let (larder, requests) = (&env.larder, env.choose("500000", "20000"));
    for (pattern, options) in PATTERNS {
        let path = env.file(&format!("{pattern}.ltr"));
        let common = ["--quiet", "--requests", requests];
        stdout_of(cmd!("{larder} trace synth {pattern} {path} {common...} {options...}"))?;
        traces.push(of_pages(pattern, path));
    }
    traces.push(of_pages("phases", phases(env)?));
    Ok(traces)
}

/// Makes a trace of several patterns, one after the other.
fn phases(env: &Env) -> Result<PathBuf> {
    let (larder, all) = (&env.larder, env.file("phases.csv"));
    let mut text = String::new();
    for (number, pattern) in PHASES.into_iter().enumerate() {
        let [made, rows] = ["ltr", "csv"].map(|kind| env.file(&format!("phase-{number}.{kind}")));
        let size = ["--quiet", "--pages", "16384", "--requests", env.choose("120000", "5000")];
        stdout_of(cmd!("{larder} trace synth {pattern} {made} {size...}"))?;
        stdout_of(cmd!("{larder} trace convert {made} {rows} --quiet"))?;
        let rows = std::fs::read_to_string(&rows)?;
        // The columns have names once.
        let (names, rest) = rows.split_once('\n').context("a table")?;
        if text.is_empty() {
            writeln!(text, "{names}")?;
        }
        text.push_str(rest);
    }
    std::fs::write(&all, text)?;
    Ok(all)
}

/// Simulates all policies and `auto` on a trace.
fn simulate(env: &Env, trace: &Trace) -> Result<Vec<Case>> {
    let (larder, Trace { name, path, page_size }) = (&env.larder, trace);
    let sizes = SIZES.join(",");
    let options = ["--level", "replacement", "--policy", "all,auto", "--json", "--quiet"];
    let sizes = ["--size", &sizes, "--page-size", page_size];
    let swept = json_of(cmd!(1200, "{larder} sim {path} {options...} {sizes...}"))?;
    let rows = swept["rows"].as_array().context("larder sim printed no rows")?;
    let mut cases: Vec<Case> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let policy = row["policy"].as_str().context("a row without policy")?.to_owned();
        let ratio = 100.0 * number(row, "hit_ratio")?;
        let size = index % SIZES.len();
        if size == cases.len() {
            let pages = row["size_pages"].as_u64().context("a row without pages")?;
            let ratios = Vec::new();
            cases.push(Case { trace: name.to_owned(), size: SIZES[size], pages, ratios });
        }
        cases[size].ratios.push((policy, ratio));
    }
    Ok(cases)
}

/// Returns each policy with the mean and the maximum of its differences to the best one, in the
/// order of the means.
fn ranks(cases: &[Case]) -> Vec<(&str, f64, f64)> {
    let policies = cases.first().map_or(&[][..], |case| &case.ratios);
    let rank = |policy| {
        let behind: Vec<f64> = cases.iter().map(|case| case.behind(policy)).collect();
        let (mean, worst) = mean_and_max(&behind);
        (policy, mean, worst)
    };
    let mut ranks: Vec<_> = policies.iter().map(|(policy, _)| rank(policy.as_str())).collect();
    ranks.sort_by(|one, other| one.1.total_cmp(&other.1));
    ranks
}

fn judge(cases: &[Case], claims: &mut Claims) {
    let ranks = ranks(cases);
    let of = |wanted: bool| ranks.iter().find(|rank| (rank.0 == AUTO) == wanted);
    let (Some(auto), Some(fixed)) = (of(true), of(false)) else { return };
    let behind = |case: &&Case| case.behind(AUTO);
    let worst = cases.iter().max_by(|one, other| behind(one).total_cmp(&behind(other)));
    let worst = worst.map_or(String::new(), |case| format!("{}, {}", case.trace, case.size));
    claims.add(
        format!("auto: at most {MEAN_MAX} points behind the best policy on average"),
        format!("{:.2} in {} cases", auto.1, cases.len()),
        auto.1 <= MEAN_MAX,
    );
    claims.add(
        format!("auto: at most {WORST_MAX:.0} points behind the best policy"),
        format!("{:.2} ({worst})", auto.2),
        auto.2 <= WORST_MAX,
    );
    claims.add_with_peer(
        "auto: not behind the best fixed policy on average".to_owned(),
        format!("{:.2}", auto.1),
        format!("{} {:.2}", fixed.0, fixed.1),
        auto.1 <= fixed.1,
    );
}

/// Returns the page with the tables.
fn page(cases: &[Case]) -> Result<String> {
    let mut page =
        "# Automatic policy measured\n\nHit ratios in percent over whole traces, from an \
                    empty cache on, with caches of 1 to 50 % of the pages of\neach trace. \
                    `cargo xtask prove auto` makes this page; [curve](curve.md#automatic-policy) \
                    describes the rule.\n\n## Points behind the best policy\n\n\
                    | policy | mean | worst |\n|---|--:|--:|\n"
            .to_owned();
    for (policy, mean, worst) in ranks(cases) {
        writeln!(page, "| `{policy}` | {mean:.2} | {worst:.2} |")?;
    }
    page.push_str("\n## Cases\n\n| trace | size | pages | best policy | its hits ");
    page.push_str("| `s3fifo` | `auto` | behind |\n|---|--:|--:|---|--:|--:|--:|--:|\n");
    for case in cases {
        let Case { trace, size, pages, .. } = case;
        let (best, ratio) = case.best();
        let [first, auto] = ["s3fifo", AUTO].map(|policy| case.hit_ratio(policy));
        let size = size.replace('%', " %");
        let behind = case.behind(AUTO);
        writeln!(
            page,
            "| {trace} | {size} | {pages} | `{best}` | {ratio:.2} | {first:.2} | {auto:.2} | \
             {behind:.2} |"
        )?;
    }
    Ok(page)
}
