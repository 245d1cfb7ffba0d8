//! Knowledge and decisions of the running cache: the online curve, the policy and the division of
//! the pool, over the shared traces, and the cost of the curve for a hit.
//!
//! The benches of larder-lab and larder-io run the cache; this judges what they print.

use std::collections::BTreeMap;

use super::policies::traces;
use super::prelude::*;
use crate::stats::mean_and_most;

/// Sizes in per cent of the footprint; the short form takes the second.
const SIZES: [&str; 4] = ["1", "5", "10", "20"];
/// Traces with fewer references are left out.
const REFERENCES_MIN: f64 = 100_000.0;
/// How much less than the best policy of its set `auto` may hit on average, and at worst.
const AUTO_MEAN: f64 = 0.01;
const AUTO_WORST: f64 = 0.03;
/// How far the online curve may be off on average.
const CURVE_MEAN: f64 = 0.01;
/// How much less than the best fixed division the automatic one may hit.
const SHARE_OFF: f64 = 0.01;
/// The cost of the curve, as a part of the instructions of a hit.
const COST_MAX: f64 = 0.01;
/// Hits that are counted.
const HITS: u32 = 400_000;

/// Lines of fields.
type Lines = Vec<Vec<String>>;

/// The lines of so many fields that the bench prints.
fn bench(env: &Env, args: &[&str], count: usize) -> Result<Lines> {
    let mut cargo = run::cargo(&env.root);
    cargo.args(["bench", "--package", "larder-lab", "--bench", "tuning", "--"]).args(args);
    Ok(fields(&text(cargo)?, count))
}

fn fields(text: &str, count: usize) -> Lines {
    let lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
    lines.filter(|fields: &Vec<String>| fields.len() == count).collect()
}

fn float(text: &str) -> Result<f64> {
    text.trim().parse().with_context(|| format!("no number: {text}"))
}

/// The output of the bench on each trace that is long enough, with its name, at the sizes that are
/// tried; none if there is no trace, which is a claim that is skipped.
fn of_traces(
    env: &Env,
    claims: &mut Claims,
    what: &str,
    word: &str,
    count: usize,
) -> Result<Vec<(&'static str, Lines)>> {
    let (larder, mut all) = (&env.larder, Vec::new());
    for (path, name) in traces(env) {
        let how = "--policy fifo --size 10% --page-size 4KiB --format json".split(' ');
        let made = json_of(cmd!("{larder} sim {path} {how...}"))?;
        if number(&made, "/rows/0/references")? >= REFERENCES_MIN {
            let path = path.to_str().context("a path that is text")?;
            all.push((name, bench(env, &[&[word, path], sizes(env)].concat(), count)?));
        }
    }
    claims.skipped(what, all.is_empty().then(|| "no trace in ../shared/traces".into()));
    Ok(all)
}

fn sizes(env: &Env) -> &'static [&'static str] {
    env.either(&SIZES[..], &SIZES[1..2])
}

/// `--policy auto` against the best policy of its set.
pub(super) fn auto(env: &Env, claims: &mut Claims) -> Result<()> {
    let what = "auto hits at most 1 point less than the best of its set on average, 3 at worst";
    let (mut rows, mut behind) = (Vec::new(), Vec::new());
    for (name, lines) in of_traces(env, claims, what, "auto", 5)? {
        let made = auto_rows(name, &lines)?;
        ensure!(made.len() == sizes(env).len(), "the bench printed {} sizes", made.len());
        for (row, off) in made {
            rows.push(row);
            behind.push(off);
        }
    }
    if behind.is_empty() {
        return Ok(());
    }
    let heads = ["trace", "size", "best of the set", "hits", "auto", "behind", "switches"];
    table::print(&heads, &rows);
    let (mean, worst) = mean_and_most(&behind);
    let figure = format!("mean {:.2}, worst {:.2} points", mean * 100.0, worst * 100.0);
    claims.add(what, figure, mean <= AUTO_MEAN && worst <= AUTO_WORST);
    Ok(())
}

/// A row for each size, and how far auto is behind.
fn auto_rows(trace: &str, lines: &[Vec<String>]) -> Result<Vec<(Vec<String>, f64)>> {
    let (mut rows, mut best) = (Vec::new(), None::<(String, f64)>);
    for line in lines {
        let ratio = float(&line[3])?;
        if line[2] != "auto" {
            if best.as_ref().is_none_or(|(_, most)| ratio > *most) {
                best = Some((line[2].clone(), ratio));
            }
            continue;
        }
        let (name, most) = best.take().context("auto came before the policies")?;
        let words = [trace.to_owned(), format!("{} %", line[0]), name];
        let points = [most, ratio, most - ratio].map(|ratio| format!("{:.2}", ratio * 100.0));
        rows.push(([&words[..], &points, &line[4..]].concat(), most - ratio));
    }
    Ok(rows)
}

/// The curve that the whole cache kept against the exact one.
pub(super) fn curve(env: &Env, claims: &mut Claims) -> Result<()> {
    let what = "the online curve is at most 1 point off the exact one on average";
    let (mut rows, mut all, mut held) = (Vec::new(), Vec::new(), 0_u64);
    for (name, lines) in of_traces(env, claims, what, "curve", 6)? {
        let mut of_sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for line in lines {
            let [made, low, high, truth] = [2, 3, 4, 5].map(|at| float(&line[at]));
            let (made, truth) = (made?, truth?);
            // Rounded in print.
            held += u64::from(low? <= truth + 1e-6 && truth <= high? + 1e-6);
            let size = line[0].parse().context("a size in per cent")?;
            of_sizes.entry(size).or_default().push((made - truth).abs());
        }
        let count = of_sizes.len();
        ensure!(count == sizes(env).len(), "the bench printed {count} sizes");
        for (size, off) in of_sizes {
            let (mean, most) = mean_and_most(&off);
            let words = [name.to_owned(), format!("{size} %"), off.len().to_string()];
            rows.push([&words[..], &[mean, most].map(|it| format!("{:.2}", it * 100.0))].concat());
            all.extend(off);
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    table::print(&["trace", "size", "points", "mean off", "most off"], &rows);
    let (mean, most) = mean_and_most(&all);
    let part = to_f64(held) / to_f64(all.len() as u64) * 100.0;
    let points = format!("mean {:.2}, most {:.2} points", mean * 100.0, most * 100.0);
    claims.add(what, format!("{points}; {part:.0} % of the bars hold"), mean <= CURVE_MEAN);
    Ok(())
}

/// Two volumes in one pool.
pub(super) fn share(env: &Env, claims: &mut Claims) -> Result<()> {
    let mut policies: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in bench(env, &["share"], 3)? {
        let ratio = 100.0 * float(&line[2])?;
        policies.entry(line[0].clone()).or_default().push((line[1].clone(), ratio));
    }
    ensure!(!policies.is_empty(), "the bench printed nothing");
    for (policy, list) in policies {
        let of = |name: &str| {
            let found = list.iter().find(|(division, _)| division == name);
            found.map(|(_, ratio)| *ratio).with_context(|| format!("no line of {name}"))
        };
        let fixed = list.iter().filter(|(division, _)| division.ends_with("/8"));
        let best = fixed.max_by(|one, other| one.1.total_cmp(&other.1));
        let (best, most) = best.context("no fixed division was tried")?;
        let (auto, coldest) = (of("auto")?, of("coldest")?);
        claims.against(
            format!("--share auto is within 1 point of the best fixed division, {policy}"),
            format!("{auto:.2} %"),
            format!("hot {best} of the memory: {most:.2} %; coldest: {coldest:.2} %"),
            auto >= most - 100.0 * SHARE_OFF,
        );
    }
    Ok(())
}

/// Instructions of a hit with the curve and without, counted by callgrind.
pub(super) fn curve_cost(env: &Env, claims: &mut Claims) -> Result<()> {
    let what =
        |mib: &str| format!("the curve costs a hit at most 1 % of its instructions, {mib} MiB");
    let reason = (!run::installed("valgrind")).then(|| "valgrind is not installed".into());
    if claims.skipped(&what("1024"), reason) {
        return Ok(());
    }
    let words = ["bench", "--package", "larder-io", "--bench", "hit_cost", "--no-run"];
    let bench = run::built(&env.root, &words, "hit_cost")?;
    // Instructions of a hit of 4 KiB, its copy included.
    let instructions = |mib: &str, curve: &str| -> Result<f64> {
        let how = "--callgrind-out-file=/dev/null --collect-atstart=no".split(' ');
        let (toggle, hits) = ("--toggle-collect=*hit_cost*measured*", HITS.to_string());
        let work = [mib, &hits, curve];
        let out = keep(cmd!("valgrind --tool=callgrind {how...} {toggle} {bench} {work...}"))?;
        ensure!(out.ok(), "valgrind failed: {}", run::tail(&out.stderr));
        Ok(collected(&out.stderr)? / f64::from(HITS))
    };
    for mib in env.either(&["256", "1024"][..], &["256"]) {
        let (without, with) = (instructions(mib, "none")?, instructions(mib, "curve")?);
        let cost = (with - without) / without;
        claims.against(
            what(mib),
            format!("{with:.2} instructions, {:+.2} %", cost * 100.0),
            format!("without the curve {without:.2}"),
            cost <= COST_MAX,
        );
    }
    Ok(())
}

fn collected(text: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    float(line.context("callgrind printed no count")?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_judged_by_the_best_policy_of_the_same_size() {
        let text = "x\n1,10,lru,0.30,0\n1,10,2q,0.40,0\n1,10,auto,0.39,2\n\
                    5,50,lru,0.60,0\n5,50,2q,0.50,0\n5,50,auto,0.61,0\n";
        let rows = auto_rows("t", &fields(text, 5)).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].0, ["t", "1 %", "2q", "40.00", "39.00", "1.00", "2"]);
        let behind: Vec<f64> = rows.iter().map(|row| row.1).collect();
        let (mean, worst) = mean_and_most(&behind);
        assert!(mean.abs() < 1e-9 && (worst - 0.01).abs() < 1e-9);
        assert!(auto_rows("t", &fields("1,10,auto,0.39,2", 5)).is_err());
    }

    #[test]
    fn the_count_of_callgrind_is_found() {
        let text = "==1== \n==1== Events    : Ir\n==1== Collected : 123456\n==1== \n";
        assert!((collected(text).unwrap() - 123_456.0).abs() < 1e-9);
        assert!(collected("nothing").is_err());
    }
}
