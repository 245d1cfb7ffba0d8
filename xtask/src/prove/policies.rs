//! Defaults that tables justify: the policy, and the page size.
//!
//! The default policy is to hit most over the block traces beside the repository, at 1, 5, 10 and
//! 20 per cent of each one's footprint, in pages of 4 KiB; reads and writes count alike, the judge
//! is the mean of all hit ratios, and policies within [`TIE_POINTS`] of the best are as good as it.
//!
//! Of page sizes nothing is promised: the table shows which one wins on this machine under a
//! database, as 8 KiB did in 1998. Each case has a new server; cases take turns, round by round,
//! and the figure is the median of the rounds. The image is full of data and four times the cache.

use std::collections::BTreeMap;

use super::prelude::*;
use crate::stats::{mean_and_most, median};

/// The traces, and their names in the table.
pub(super) const TRACES: [(&str, &str); 4] = [
    ("arc_OLTP.lis.zst", "OLTP"),
    ("arc_P3.lis.zst", "P3"),
    ("cloudPhysicsIO.vscsi", "CloudPhysics"),
    ("mqsim_tpcc-small.trace", "TPC-C"),
];
const SIZES: &str = "1%,5%,10%,20%";
/// Less than this is no difference, in per cent of references.
const TIE_POINTS: f64 = 0.05;
/// The default of `VolumeOptions::new` in `larder-core`.
const DEFAULT: &str = "s3fifo";

const PAGE_SIZES: [&str; 4] = ["4KiB", "8KiB", "32KiB", "64KiB"];
const CLIENTS: [&str; 3] = ["1", "2", "4"];
const IMAGE_MIB: u64 = 512;

/// The traces that are there, with their names for the table.
pub(super) fn traces(env: &Env) -> Vec<(PathBuf, &'static str)> {
    TRACES.iter().filter_map(|&(file, name)| Some((env.trace(file)?, name))).collect()
}

/// The proof `default-policy`.
pub(super) fn default(env: &Env, claims: &mut Claims) -> Result<()> {
    let what = "the engine's default policy hits most over the block traces";
    let (traces, larder) = (traces(env), &env.larder);
    let reason = "not all four traces are in ../shared/traces";
    if claims.skipped(what, (traces.len() < TRACES.len()).then(|| reason.into())) {
        return Ok(());
    }
    let paths = traces.iter().map(|(path, _)| path);
    let how = ["--policy", "all,min", "--size", SIZES, "--page-size", "4KiB"];
    let whole = json_of(cmd!("{larder} sim {paths...} {how...} --format json"))?;
    let ratios = by_policy(&whole)?;
    let mean = |list: &[f64]| mean_and_most(list).0;
    let mut rows: Vec<_> = ratios.iter().map(|(policy, list)| (policy, list, mean(list))).collect();
    rows.sort_by(|one, other| other.2.total_cmp(&one.2));
    // The table of docs/policies.md, the best first.
    let cells = |(policy, list, mean): &(&String, &Vec<f64>, f64)| {
        let figures = list.iter().chain([mean]).map(|ratio| format!("{ratio:.2}"));
        [(*policy).clone()].into_iter().chain(figures).collect()
    };
    let sizes = |name: &'static str| SIZES.split(',').map(move |size| format!("{name} {size}"));
    let sizes = TRACES.iter().flat_map(|(_, name)| sizes(name));
    let heads: Vec<String> =
        ["policy".to_owned()].into_iter().chain(sizes).chain(["mean".to_owned()]).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    table::print(&heads, &rows.iter().map(cells).collect::<Vec<_>>());
    rows.retain(|(policy, ..)| *policy != "min");
    let (best, _, most) = rows.first().context("larder sim printed no policy")?;
    let ours = rows.iter().find(|(policy, ..)| *policy == DEFAULT);
    let ours = ours.context("the default was not simulated")?.2;
    let (figure, peer) = (format!("{DEFAULT} {ours:.3} %"), format!("best: {best} {most:.3} %"));
    claims.against(what, figure, peer, ours >= most - TIE_POINTS);
    Ok(())
}

/// Hit ratios in per cent by policy, in the order of traces and sizes.
fn by_policy(whole: &Value) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut ratios = BTreeMap::<String, Vec<f64>>::new();
    for row in whole["rows"].as_array().context("larder sim printed no rows")? {
        let policy = row["policy"].as_str().context("a row without policy")?;
        ratios.entry(policy.to_owned()).or_default().push(100.0 * number(row, "hit_ratio")?);
    }
    let lengths: Vec<usize> = ratios.values().map(Vec::len).collect();
    ensure!(lengths.windows(2).all(|pair| pair[0] == pair[1]), "policies of unequal length");
    Ok(ratios)
}

/// The proof `page-size`.
pub(super) fn page_size(env: &Env, claims: &mut Claims) -> Result<()> {
    let trace = database(env, env.either("100000", "5000"))?;
    let image = image::filled(&env.file("database.img"), IMAGE_MIB, env.options.seed)?;
    let cases: Vec<_> =
        PAGE_SIZES.iter().flat_map(|page| CLIENTS.map(move |clients| (*page, clients))).collect();
    let mut samples = vec![[vec![], vec![], vec![]]; cases.len()];
    for _ in 0..env.either(3, 1) {
        for (&(page, clients), samples) in cases.iter().zip(&mut samples) {
            let made = sample(env, &image, &trace, page, clients)?;
            samples.iter_mut().zip(made).for_each(|(all, one)| all.push(one));
        }
    }
    let mut rows = Vec::new();
    for ((page, clients), samples) in cases.iter().zip(&samples) {
        let [per_s, hits, mib] = samples.each_ref().map(|all| median(all));
        let figures = [format!("{per_s:.0}"), format!("{hits:.1} %"), format!("{mib:.0} MiB")];
        rows.push([[(*page).to_owned(), (*clients).to_owned()].as_slice(), &figures].concat());
    }
    table::print(&["page", "clients", "requests/s", "hits", "read from the store"], &rows);
    for clients in CLIENTS {
        let of_clients = cases.iter().zip(&samples).filter(|(case, _)| case.1 == clients);
        let rates: Vec<_> =
            of_clients.map(|((page, _), samples)| (*page, median(&samples[0]))).collect();
        let best = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1));
        let (page, rate) = best.context("no case was run")?;
        let all: Vec<_> = rates.iter().map(|(page, rate)| format!("{page} {rate:.0}")).collect();
        claims.against(
            format!("requests/s of a database with {clients} clients, by page size: a table"),
            format!("{page} wins with {rate:.0}"),
            all.join(", "),
            *rate > 0.0,
        );
    }
    Ok(())
}

/// A trace of the table and index of a database that is walked and read by transactions.
fn database(env: &Env, requests: &str) -> Result<PathBuf> {
    let [whole, data] = ["whole.ltr", "database.ltr"].map(|name| env.file(name));
    let (larder, pages) = (&env.larder, (IMAGE_MIB * 256).to_string());
    let (synth, seed) = (["trace", "synth", "database"], env.options.seed.to_string());
    text(cmd!(
        600,
        "{larder} {synth...} {whole} --pages {pages} --requests {requests} --seed {seed}"
    ))?;
    text(cmd!(600, "{larder} trace filter {whole} {data} --volume data"))?;
    Ok(data)
}

/// Requests a second, hits in per cent of the pages that were read, MiB read from the store.
fn sample(env: &Env, image: &Path, trace: &Path, page: &str, clients: &str) -> Result<[f64; 3]> {
    let server = env.serve(image, &format!("--memory 128MiB --page-size {page}"))?;
    let (larder, uri) = (&env.larder, server.uri());
    let how = ["--json", "--wrap", "--connections", clients];
    let replayed = json_of(cmd!(600, "{larder} trace replay {how...} --to {uri} {trace}"))?;
    let volume = server.volume(larder, "stats", "")?;
    server.stop_clean()?;
    let hits = 100.0 * number(&volume, "read_hits")? / number(&volume, "read_pages")?;
    let read = number(&volume, "/counters/store_read_bytes")? / to_f64(MIB);
    Ok([number(&replayed, "requests_per_s")?, hits, read])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_gathered_by_policy_in_order() {
        let row = |policy: &str, ratio: f64| json!({"policy": policy, "hit_ratio": ratio});
        let mut all = vec![row("lru", 0.25), row("arc", 0.5), row("lru", 0.75), row("arc", 1.0)];
        let ratios = by_policy(&json!({ "rows": all })).unwrap();
        assert_eq!((&ratios["lru"], &ratios["arc"]), (&vec![25.0, 75.0], &vec![50.0, 100.0]));
        all.push(row("arc", 1.0));
        assert!(by_policy(&json!({ "rows": all })).is_err());
        assert!(by_policy(&json!({ "rows": [{"policy": "lru"}] })).is_err());
    }
}
