//! `larder size` on the shared traces, as a new user would, against full sweeps.
//!
//! The sweep is `larder sim`: every policy, at every size, over the whole trace; no sampling. It
//! knows nothing of the search that led to the recommendation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::wrong_input::{REFUSAL_MAX_S, refusal};
use super::{Claims, Lab, to_f64};
use crate::{run, table};

const TRACES: [&str; 4] =
    ["cloudPhysicsIO.vscsi", "arc_OLTP.lis.zst", "arc_P3.lis.zst", "mqsim_tpcc-small.trace"];

/// Pages that the recommendation counts.
const PAGE: u64 = 4096;
/// Sizes of the sweep in an octave.
const STEPS: i32 = 8;
/// The recommended size may be so many times the smallest that reaches the goal, or less.
const SIZE_OFF: f64 = 1.15;
/// The recommended policy may hit so much less than the best.
const POLICY_OFF: f64 = 0.005;
/// Predicted hit ratios may be off by this, where they are outside of their bars.
const RATIO_OFF: f64 = 0.01;
/// Seconds that the largest of the traces may take.
const SECONDS_MAX: f64 = 30.0;

/// One row of a sweep.
#[derive(Debug, Clone, PartialEq)]
struct Swept {
    policy: String,
    pages: u64,
    hit_ratio: f64,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let mut rows = Vec::new();
    for name in TRACES {
        let path = lab.root.join("../shared/traces").join(name);
        if !path.exists() {
            claims.skip(format!("{name}: the recommendation"), "it is not in ../shared/traces");
            continue;
        }
        let ways = [&[][..], &["--sampled"], &["--target", "80%"]];
        for how in &ways[..lab.either(3, 1)] {
            check(lab, (name, &path), how, claims, &mut rows)?;
        }
    }
    println!();
    let head = [
        "trace",
        "how",
        "size",
        "smallest by the sweep",
        "policy",
        "best there",
        "predicted",
        "counted",
        "seconds",
    ];
    table::print(&head, &rows);
    refusals(lab, claims)
}

/// What `larder size --json` says, and how long it took.
fn sized(lab: &Lab, path: &Path, how: &[&str]) -> Result<(Value, f64)> {
    let begun = std::time::Instant::now();
    let mut command = Command::new(&lab.binary);
    let text = run::text(command.arg("size").arg(path).args(how).arg("--json"))?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok((serde_json::from_str(&text).context("parse what larder size printed")?, seconds))
}

fn sweep(lab: &Lab, path: &Path, pages: &[u64]) -> Result<Vec<Swept>> {
    let mut swept = Vec::new();
    // All caches of a run are in memory together.
    for pages in pages.chunks(6) {
        let sizes: Vec<String> = pages.iter().map(|pages| format!("{pages}p")).collect();
        let mut command = Command::new(&lab.binary);
        command.arg("sim").arg(path).args(["--page-size", "4KiB", "--format", "json", "--size"]);
        let text = run::text(command.arg(sizes.join(",")))?;
        let made: Value = serde_json::from_str(&text).context("parse what larder sim printed")?;
        for row in made["rows"].as_array().context("larder sim printed no rows")? {
            swept.push(Swept {
                policy: row["policy"].as_str().context("a row without policy")?.to_owned(),
                pages: row["size_pages"].as_u64().context("a row without size")?,
                hit_ratio: row["hit_ratio"].as_f64().context("a row without hit ratio")?,
            });
        }
    }
    Ok(swept)
}

/// The best of all policies at a size.
fn best(swept: &[Swept], pages: u64) -> Option<&Swept> {
    swept.iter().filter(|row| row.pages == pages).max_by(|a, b| a.hit_ratio.total_cmp(&b.hit_ratio))
}

/// The smallest size of the sweep at which any policy has the hit ratio.
fn smallest(swept: &[Swept], hit_ratio: f64) -> Option<u64> {
    swept.iter().filter(|row| row.hit_ratio >= hit_ratio).map(|row| row.pages).min()
}

/// Sizes of the sweep: over the whole curve, and finer around what was recommended.
fn sizes(footprint: u64, recommended: u64) -> Vec<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let scaled = |pages: u64, octaves: f64| (to_f64(pages) * octaves.exp2()).round() as u64;
    let over = (0..=6).map(|k| scaled(footprint, -f64::from(k)));
    let around =
        (-STEPS * 3 / 2..=STEPS / 2).map(|k| scaled(recommended, f64::from(k) / f64::from(STEPS)));
    let three = [recommended / 2, recommended, recommended * 2];
    let mut sizes: Vec<u64> = over.chain(around).chain(three).filter(|&pages| pages > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn check(
    lab: &Lab,
    (name, path): (&str, &Path),
    how: &[&str],
    claims: &mut Claims,
    rows: &mut Vec<Vec<String>>,
) -> Result<()> {
    let (made, seconds) = sized(lab, path, how)?;
    let how = if how.is_empty() { "default".to_owned() } else { how.join(" ") };
    let advice = &made["recommendation"];
    let number = |value: &Value| value.as_f64().context("larder size left out a number");
    let pages = advice["bytes"].as_u64().context("larder size recommends nothing")? / PAGE;
    let footprint = made["workload"]["footprint_pages"].as_u64().context("no footprint")?;
    let policy = advice["policy"].as_str().context("no policy")?;
    let swept = sweep(lab, path, &sizes(footprint, pages))?;
    // The goal from the trace itself, not from what was predicted.
    let ceiling = best(&swept, footprint).context("the sweep lacks the footprint")?.hit_ratio;
    let wanted = number(&made["goal"]["target"])? * ceiling;
    let needed = smallest(&swept, wanted).context("no size of the sweep reaches the goal")?;
    let there = best(&swept, pages).context("the sweep lacks the recommended size")?;
    let own = swept
        .iter()
        .find(|row| row.pages == pages && row.policy == policy)
        .context("the sweep lacks the recommended policy")?;
    let off = to_f64(pages) / to_f64(needed);
    let reaches = own.hit_ratio >= wanted - RATIO_OFF;
    claims.add(
        format!("{name}, {how}: the size is the smallest that reaches the goal, within 15 %"),
        format!("{pages} pages, {needed} by the sweep, hits {:.4} of {wanted:.4}", own.hit_ratio),
        (1.0 / SIZE_OFF..=SIZE_OFF).contains(&off) && reaches,
    );
    claims.add(
        format!("{name}, {how}: no policy is better by more than half a point"),
        format!("{policy} {:.4}, {} {:.4}", own.hit_ratio, there.policy, there.hit_ratio),
        there.hit_ratio - own.hit_ratio <= POLICY_OFF,
    );
    let (mut predicted, mut counted, mut hold) = (Vec::new(), Vec::new(), true);
    for effect in made["effects"].as_array().context("no effects")? {
        let pages = effect["bytes"].as_u64().context("an effect without size")? / PAGE;
        let true_ratio = swept
            .iter()
            .find(|row| row.pages == pages && row.policy == policy)
            .context("the sweep lacks an effect")?
            .hit_ratio;
        let [ratio, low, high] = ["hit_ratio", "low", "high"].map(|key| number(&effect[key]));
        let (ratio, low, high) = (ratio?, low?, high?);
        predicted.push(format!("{:.1}", ratio * 100.0));
        counted.push(format!("{:.1}", true_ratio * 100.0));
        let within = (low..=high).contains(&true_ratio);
        hold &= within || (ratio - true_ratio).abs() <= RATIO_OFF;
    }
    let (predicted, counted) = (predicted.join(" / "), counted.join(" / "));
    claims.add(
        format!("{name}, {how}: half, this and twice hit as predicted, within bars or a point"),
        format!("{predicted} predicted, {counted} counted"),
        hold,
    );
    claims.add(
        format!("{name}, {how}: in less than {SECONDS_MAX:.0} s"),
        format!("{seconds:.1} s"),
        seconds < SECONDS_MAX,
    );
    #[expect(clippy::cast_precision_loss, reason = "sizes for people")]
    let mib = |pages: u64| format!("{:.1} MiB", (pages * PAGE) as f64 / f64::from(1 << 20));
    let best_there = format!("{} {:.1}", there.policy, there.hit_ratio * 100.0);
    rows.push(vec![
        name.to_owned(),
        how,
        mib(pages),
        mib(needed),
        format!("{policy} {:.1}", own.hit_ratio * 100.0),
        best_there,
        predicted,
        counted,
        format!("{seconds:.1}"),
    ]);
    Ok(())
}

/// Wrong input: one sentence each.
fn refusals(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let file = |name: &str, content: &[u8]| -> Result<PathBuf> {
        let path = lab.file(name);
        std::fs::write(&path, content).with_context(|| format!("write {name}"))?;
        Ok(path)
    };
    let csv = |what: &str, lines: &str| {
        format!(
            "time_ns,{what},len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
             process_name\n{lines}"
        )
    };
    let twice = "0,0,4096,0,0,0,0,read,0,,,\n1,0,4096,0,0,0,0,read,0,,,\n";
    let good = file("good.csv", csv("offset", twice).as_bytes())?;
    let empty = file("empty.csv", csv("offset", "").as_bytes())?;
    let nothing = file("nothing.vscsi", b"")?;
    let objects = file("objects.csv", csv("object", twice).as_bytes())?;
    let cut = file("cut.vscsi", &[1; 47])?;
    let cases: [(&str, &Path, &[&str], &str); 9] = [
        ("a trace without requests", &empty, &[], "empty.csv"),
        ("an empty file", &nothing, &["--trace-format", "vscsi1"], "nothing.vscsi"),
        ("a trace of objects", &objects, &[], "objects.csv"),
        ("a truncated trace", &cut, &["--trace-format", "vscsi1"], "cut.vscsi"),
        ("a missing trace", Path::new("absent.csv"), &[], "absent.csv"),
        ("standard input", Path::new("-"), &[], "standard input"),
        ("a budget below a page", &good, &["--budget", "100B"], "budget"),
        ("a page that cannot be written", &good, &["--html", "/no/such/page.html"], "page.html"),
        ("a format that is not one", &good, &["--trace-format", "vscsi1"], "good.csv"),
    ];
    for (what, path, options, word) in cases {
        claims.tried(format!("refused: {what}"), || {
            let mut command = run::client(REFUSAL_MAX_S, &lab.binary.to_string_lossy());
            refusal(command.arg("size").arg(path).args(options), &[word])
        });
    }
    // What the parser of the command line refuses takes more lines to say how it is used.
    for options in [["--target", "0%"], ["--target", "200%"], ["--target", "x"], ["--budget", "x"]]
    {
        claims.tried(format!("refused: {}", options.join(" ")), || {
            let out = run::keep(Command::new(&lab.binary).arg("size").arg(&good).args(options))?;
            ensure!(out.code == Some(2), "exit code {:?}\n{}", out.code, out.stderr);
            ensure!(!out.stderr.contains("panicked"), "a panic\n{}", out.stderr);
            let first = out.stderr.lines().next().unwrap_or_default().to_owned();
            ensure!(first.contains(options[0]), "does not name {}: {first}", options[0]);
            Ok(first)
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, pages: u64, hit_ratio: f64) -> Swept {
        Swept { policy: policy.to_owned(), pages, hit_ratio }
    }

    #[test]
    fn a_sweep_tells_the_best_policy_and_the_smallest_size() {
        let swept = [row("lru", 10, 0.2), row("arc", 10, 0.3), row("lru", 20, 0.5)];
        assert_eq!(best(&swept, 10).unwrap().policy, "arc");
        assert_eq!(best(&swept, 11), None);
        assert_eq!(smallest(&swept, 0.3), Some(10));
        assert_eq!(smallest(&swept, 0.4), Some(20));
        assert_eq!(smallest(&swept, 0.6), None);
    }

    #[test]
    fn the_sweep_has_the_footprint_and_the_three_sizes() {
        let sizes = sizes(100_000, 5_000);
        assert!([100_000, 2_500, 5_000, 10_000].iter().all(|pages| sizes.contains(pages)));
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
