//! What the running cache knows of its workload and decides by itself: the online curve, the policy
//! and the division of the pool, over the shared traces, and what the curve costs a hit.
//!
//! The benches of larder-lab and larder-io run the cache; this judges what they print.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::default_policy::traces;
use super::{Claims, Lab, to_f64};
use crate::{run, table};

/// Sizes in per cent of the footprint, and the one that a quick look takes.
const SIZES: [&str; 4] = ["1", "5", "10", "20"];
const QUICK_SIZES: [&str; 1] = ["5"];
/// Traces with fewer references are left out.
const REFERENCES_MIN: usize = 100_000;
/// What `auto` may hit less than the best policy of its set on average, and at worst.
const AUTO_MEAN: f64 = 0.01;
const AUTO_WORST: f64 = 0.03;
/// How far the online curve may be off on average.
const CURVE_MEAN: f64 = 0.01;
/// What the automatic division may hit less than the best fixed one.
const SHARE_OFF: f64 = 0.01;
/// What the curve may cost, as a part of the instructions of a hit.
const COST_MAX: f64 = 0.01;
/// Hits that are counted.
const HITS: u32 = 400_000;

fn bench(lab: &Lab, args: &[&str]) -> Result<String> {
    let mut cargo = run::cargo(&lab.root);
    cargo.args(["bench", "--package", "larder-lab", "--bench", "tuning", "--"]).args(args);
    run::text(&mut cargo)
}

/// The sizes that are looked at.
fn sizes(lab: &Lab) -> Vec<&'static str> {
    lab.either(SIZES.to_vec(), QUICK_SIZES.to_vec())
}

/// Lines of so many fields.
fn fields(text: &str, count: usize) -> Vec<Vec<String>> {
    let lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
    lines.filter(|fields: &Vec<String>| fields.len() == count).collect()
}

fn number(text: &str) -> Result<f64> {
    text.parse().with_context(|| format!("no number: {text}"))
}

/// The traces that are long enough.
fn long_traces(lab: &Lab) -> Result<Vec<(PathBuf, &'static str)>> {
    let mut long = Vec::new();
    for (path, name) in traces(lab) {
        let mut command = Command::new(&lab.binary);
        command.arg("sim").arg(&path).args(["--policy", "fifo", "--size", "10%"]);
        let text = run::text(command.args(["--page-size", "4KiB", "--format", "csv"]))?;
        let line = text.lines().nth(1).context("larder sim printed no line")?;
        let references = line.split(',').nth(4).context("larder sim printed a short line")?;
        if references.parse::<usize>().context("references are a number")? >= REFERENCES_MIN {
            long.push((path, name));
        }
    }
    Ok(long)
}

/// `--policy auto` against the best policy of its set.
pub(super) fn auto(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let what = "auto hits at most 1 point less than the best of its set on average, 3 at worst";
    let traces = long_traces(lab)?;
    if traces.is_empty() {
        claims.skip(what, "no trace in ../shared/traces");
        return Ok(());
    }
    let sizes = sizes(lab);
    let (mut rows, mut behind) = (Vec::new(), Vec::new());
    for (path, name) in traces {
        let path = path.to_str().context("a path that is text")?;
        let text = bench(lab, &[&["auto", path], &sizes[..]].concat())?;
        let made = auto_rows(name, &fields(&text, 5))?;
        ensure!(made.len() == sizes.len(), "the bench printed {} sizes", made.len());
        for (row, off) in made {
            rows.push(row);
            behind.push(off);
        }
    }
    table::print(
        &["trace", "size", "best of the set", "hits", "auto", "behind", "switches"],
        &rows,
    );
    let (mean, worst) = mean_and_most(&behind);
    let figure = format!("mean {:.2}, worst {:.2} points", mean * 100.0, worst * 100.0);
    claims.add(what, figure, mean <= AUTO_MEAN && worst <= AUTO_WORST);
    Ok(())
}

/// A row for each size, and how far auto is behind.
fn auto_rows(trace: &str, lines: &[Vec<String>]) -> Result<Vec<(Vec<String>, f64)>> {
    let mut rows = Vec::new();
    let mut best: Option<(String, f64)> = None;
    for line in lines {
        let ratio = number(&line[3])?;
        if line[2] != "auto" {
            if best.as_ref().is_none_or(|(_, most)| ratio > *most) {
                best = Some((line[2].clone(), ratio));
            }
            continue;
        }
        let (name, most) = best.take().context("auto came before the policies")?;
        let percent = |ratio: f64| format!("{:.2}", ratio * 100.0);
        let size = format!("{} %", line[0]);
        let row = vec![
            trace.to_owned(),
            size,
            name,
            percent(most),
            percent(ratio),
            percent(most - ratio),
            line[4].clone(),
        ];
        rows.push((row, most - ratio));
    }
    Ok(rows)
}

fn mean_and_most(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / to_f64(values.len().max(1) as u64);
    (mean, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// The curve that the whole cache kept against the exact one.
pub(super) fn online_curve(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let what = "the online curve is at most 1 point off the exact one on average";
    let traces = long_traces(lab)?;
    if traces.is_empty() {
        claims.skip(what, "no trace in ../shared/traces");
        return Ok(());
    }
    let wanted = sizes(lab);
    let (mut rows, mut all, mut held) = (Vec::new(), Vec::new(), 0_u64);
    for (path, name) in traces {
        let path = path.to_str().context("a path that is text")?;
        let text = bench(lab, &[&["curve", path], &wanted[..]].concat())?;
        let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for line in fields(&text, 6) {
            let [made, low, high, truth] =
                [number(&line[2])?, number(&line[3])?, number(&line[4])?, number(&line[5])?];
            // Rounded in print.
            held += u64::from(low <= truth + 1e-6 && truth <= high + 1e-6);
            let size = line[0].parse().context("a size in per cent")?;
            sizes.entry(size).or_default().push((made - truth).abs());
        }
        ensure!(sizes.len() == wanted.len(), "the bench printed {} sizes", sizes.len());
        for (size, off) in sizes {
            let (mean, most) = mean_and_most(&off);
            let points = |off: f64| format!("{:.2}", off * 100.0);
            rows.push(vec![
                name.to_owned(),
                format!("{size} %"),
                off.len().to_string(),
                points(mean),
                points(most),
            ]);
            all.extend(off);
        }
    }
    table::print(&["trace", "size", "points", "mean off", "most off"], &rows);
    let (mean, most) = mean_and_most(&all);
    let part = to_f64(held) / to_f64(all.len().max(1) as u64) * 100.0;
    let figure = format!(
        "mean {:.2}, most {:.2} points; {part:.0} % of the bars hold",
        mean * 100.0,
        most * 100.0
    );
    claims.add(what, figure, mean <= CURVE_MEAN);
    Ok(())
}

/// Two volumes in one pool.
pub(super) fn share(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let text = bench(lab, &["share"])?;
    let mut policies: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in fields(&text, 3) {
        let ratio = number(&line[2])?;
        policies.entry(line[0].clone()).or_default().push((line[1].clone(), ratio));
    }
    ensure!(!policies.is_empty(), "the bench printed nothing");
    for (policy, list) in policies {
        let of = |name: &str| {
            let found = list.iter().find(|(division, _)| division == name);
            found.map(|(_, ratio)| *ratio).with_context(|| format!("no line of {name}"))
        };
        let fixed = list.iter().filter(|(division, _)| division.ends_with("/8"));
        let (best, most) = fixed
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .context("no fixed division was tried")?;
        let (auto, coldest) = (of("auto")?, of("coldest")?);
        claims.against(
            format!("--share auto is within 1 point of the best fixed division, {policy}"),
            format!("{:.2} %", auto * 100.0),
            format!(
                "hot {best} of the memory: {:.2} %; coldest: {:.2} %",
                most * 100.0,
                coldest * 100.0
            ),
            auto >= most - SHARE_OFF,
        );
    }
    Ok(())
}

/// Instructions of a hit with the curve and without, counted by callgrind.
pub(super) fn curve_cost(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let what =
        |mib: u32| format!("the curve costs a hit at most 1 % of its instructions, {mib} MiB");
    if !run::installed("valgrind") {
        claims.skip(what(1024), "valgrind is not installed");
        return Ok(());
    }
    let mut cargo = run::cargo(&lab.root);
    cargo.args(["bench", "--package", "larder-io", "--bench", "hit_cost", "--no-run"]);
    let text = run::text(cargo.arg("--message-format=json"))?;
    let binary = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "hit_cost")
        .find_map(|message| message["executable"].as_str().map(str::to_owned))
        .context("cargo built no bench called hit_cost")?;
    for mib in lab.either(vec![256, 1024], vec![256]) {
        let without = instructions(&binary, mib, "none")?;
        let with = instructions(&binary, mib, "curve")?;
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

/// Instructions of a hit of 4 KiB, its copy included.
fn instructions(binary: &str, mib: u32, curve: &str) -> Result<f64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    valgrind.args(["--toggle-collect=*hit_cost*measured*", binary]);
    valgrind.args([&mib.to_string(), &HITS.to_string(), curve]);
    let out = run::keep(&mut valgrind)?;
    ensure!(out.ok(), "valgrind failed: {}", run::tail(&out.stderr));
    Ok(collected(&out.stderr)? / f64::from(HITS))
}

fn collected(text: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    number(line.context("callgrind told no count")?.1.trim())
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
