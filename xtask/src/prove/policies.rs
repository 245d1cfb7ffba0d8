//! Page sizes under a database: nothing is promised, the table shows which one wins on this machine.
//!
//! Each case has a new server; cases take turns, round by round, and the figure is the median of the
//! rounds. The image is full of data and four times the cache.

use super::prelude::*;
use crate::stats::median;

/// The traces, and their names in the table.
pub(super) const TRACES: [(&str, &str); 4] = [
    ("arc_OLTP.lis.zst", "OLTP"),
    ("arc_P3.lis.zst", "P3"),
    ("cloudPhysicsIO.vscsi", "CloudPhysics"),
    ("mqsim_tpcc-small.trace", "TPC-C"),
];
const PAGE_SIZES: [&str; 4] = ["4KiB", "8KiB", "32KiB", "64KiB"];
const CLIENTS: [&str; 3] = ["1", "2", "4"];
const IMAGE_MIB: u64 = 512;

/// The traces that are there, with their names for the table.
pub(super) fn traces(env: &Env) -> Vec<(PathBuf, &'static str)> {
    TRACES.iter().filter_map(|&(file, name)| Some((env.trace(file)?, name))).collect()
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
