//! Which policy the engine should use unless told otherwise: the one that hits most over the block
//! traces beside the repository, at 1, 5, 10 and 20 per cent of each one's footprint.
//!
//! Pages of 4 KiB, as the engine has them by default; reads and writes count alike. The judge is
//! the mean of all hit ratios. Policies within [`TIE_POINTS`] of the best are as good as it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Claims, Lab, to_f64};
use crate::{run, table};

/// The traces, and how they are called in the table.
pub(super) const TRACES: [(&str, &str); 4] = [
    ("arc_OLTP.lis.zst", "OLTP"),
    ("arc_P3.lis.zst", "P3"),
    ("cloudPhysicsIO.vscsi", "CloudPhysics"),
    ("mqsim_tpcc-small.trace", "TPC-C"),
];
const SIZES: &str = "1%,5%,10%,20%";
/// Less than this is no difference, in per cent of references.
const TIE_POINTS: f64 = 0.05;
/// What `VolumeOptions::new` in `larder-core` takes.
const DEFAULT: &str = "s3fifo";

/// The traces that are there, with their names for the table.
pub(super) fn traces(lab: &Lab) -> Vec<(PathBuf, &'static str)> {
    let folder = lab.root.join("../shared/traces");
    let there = TRACES.iter().map(|&(file, name)| (folder.join(file), name));
    there.filter(|(path, _)| path.exists()).collect()
}

/// Hit ratios in per cent by policy, in the order of traces and sizes.
type Ratios = BTreeMap<String, Vec<f64>>;

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let what = "the engine's default policy hits most over the block traces";
    let traces = traces(lab);
    if traces.len() < TRACES.len() {
        claims.skip(what, "not all four traces are in ../shared/traces");
        return Ok(());
    }
    let mut command = Command::new(&lab.binary);
    command.arg("sim").args(traces.iter().map(|(path, _)| path));
    command.args(["--policy", "all,min", "--size", SIZES, "--page-size", "4KiB"]);
    let ratios = parse(&run::text(command.args(["--format", "csv"]))?)?;
    print(&ratios);
    let means: BTreeMap<&str, f64> = ratios
        .iter()
        .filter(|(policy, _)| *policy != "min")
        .map(|(policy, list)| (policy.as_str(), mean(list)))
        .collect();
    let (best, most) = means
        .iter()
        .max_by(|one, other| one.1.total_cmp(other.1))
        .context("larder sim printed no policy")?;
    let ours = means.get(DEFAULT).context("the default was not simulated")?;
    claims.against(
        what,
        format!("{DEFAULT} {ours:.3} %"),
        format!("best: {best} {most:.3} %"),
        *ours >= most - TIE_POINTS,
    );
    Ok(())
}

fn mean(list: &[f64]) -> f64 {
    list.iter().sum::<f64>() / to_f64(list.len().max(1) as u64)
}

fn parse(csv: &str) -> Result<Ratios> {
    let mut ratios = Ratios::new();
    for line in csv.lines().skip(1) {
        // Names of the traces hold no comma, and the columns are kept by docs/FORMATS.md.
        let fields: Vec<&str> = line.split(',').collect();
        ensure!(fields.len() > 5, "larder sim printed a short line: {line}");
        let ratio: f64 = fields[5].parse().with_context(|| format!("no hit ratio: {line}"))?;
        ratios.entry(fields[1].to_owned()).or_default().push(ratio * 100.0);
    }
    let lengths: Vec<usize> = ratios.values().map(Vec::len).collect();
    ensure!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "policies of unequal length");
    Ok(ratios)
}

/// The table of docs/policies.md, the best first.
fn print(ratios: &Ratios) {
    let mut rows: Vec<(&String, &Vec<f64>)> = ratios.iter().collect();
    rows.sort_by(|one, other| mean(other.1).total_cmp(&mean(one.1)));
    let mut lines = vec![];
    for (policy, list) in rows {
        let mean = mean(list);
        let figures = list.iter().chain([&mean]).map(|ratio| format!("{ratio:.2}"));
        lines.push([policy.clone()].into_iter().chain(figures).collect::<Vec<_>>());
    }
    let sizes = TRACES
        .iter()
        .flat_map(|(_, name)| SIZES.split(',').map(move |size| format!("{name} {size}")));
    let heads: Vec<String> =
        ["policy".to_owned()].into_iter().chain(sizes).chain(["mean".to_owned()]).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    table::print(&heads, &lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_gathered_by_policy_in_order() {
        let csv = "trace,policy,size_bytes,page_bytes,references,hit_ratio\n\
                   a,lru,1,4096,10,0.25\na,arc,1,4096,10,0.5\n\
                   b,lru,1,4096,10,0.75\nb,arc,1,1,1,1\n";
        let ratios = parse(csv).unwrap();
        assert_eq!(ratios["lru"], [25.0, 75.0]);
        assert!((mean(&ratios["arc"]) - 75.0).abs() < 1e-9);
        assert!(parse("head\na,lru,1,2,3,x\n").is_err());
        assert!(parse("head\na,lru,1,2,3,1\na,arc,1,2,3,1\nb,arc,1,2,3,1\n").is_err());
    }
}
