//! Page sizes for a database: there is no bound; the table shows the best size on this machine.
//!
//! Each case has a new server; the cases alternate round by round, and the figure is the median of
//! the rounds. The image is full of data and four times the cache.

use super::prelude::*;
use crate::stats::{median, run_alternating};

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

/// Returns the available traces, with their names for the table.
pub(super) fn traces(env: &Env) -> Vec<(PathBuf, &'static str)> {
    TRACES.iter().filter_map(|&(file, name)| Some((env.trace(file)?, name))).collect()
}

pub(super) fn page_size(env: &Env, claims: &mut Claims) -> Result<()> {
    let trace = database(env, env.choose("100000", "5000"))?;
    let image = image::create_filled(&env.file("database.img"), IMAGE_MIB, env.options.seed)?;
    for clients in CLIENTS {
        let mut samples = PAGE_SIZES.map(|_| [vec![], vec![], vec![]]);
        run_alternating(env.choose(3, 1), PAGE_SIZES.len(), |index| {
            let made = sample(env, &image, &trace, PAGE_SIZES[index], clients)?;
            samples[index].iter_mut().zip(made).for_each(|(all, one)| all.push(one));
            Ok(())
        })?;
        let (mut best, mut all) = (("", 0.0), Vec::new());
        for (page, samples) in PAGE_SIZES.into_iter().zip(samples) {
            let [rate, hits, mib] = samples.map(|all| median(&all));
            all.push(format!("{page} {rate:.0} ({hits:.1} % hits, {mib:.0} MiB read)"));
            best = if rate > best.1 { (page, rate) } else { best };
        }
        claims.add_with_peer(
            format!("requests/s of a database with {clients} clients, by page size: a table"),
            format!("{} wins with {:.0}", best.0, best.1),
            all.join(", "),
            best.1 > 0.0,
        );
    }
    Ok(())
}

/// Creates a trace of transactions on the data of a database.
pub(super) fn database(env: &Env, requests: &str) -> Result<PathBuf> {
    let [whole, data] = ["whole.ltr", "database.ltr"].map(|name| env.file(name));
    let (larder, pages) = (&env.larder, (IMAGE_MIB * 256).to_string());
    let arguments =
        ["--pages", &pages, "--requests", requests, "--seed", &env.options.seed.to_string()];
    stdout_of(cmd!(600, "{larder} trace synth database {whole} {arguments...}"))?;
    stdout_of(cmd!(600, "{larder} trace filter {whole} {data} --volume data"))?;
    Ok(data)
}

/// Returns requests per second, hits in percent of the pages read, and MiB read from the store.
fn sample(env: &Env, image: &Path, trace: &Path, page: &str, clients: &str) -> Result<[f64; 3]> {
    let server = env.serve(image, &format!("--memory 128MiB --page-size {page}"))?;
    let (larder, uri) = (&env.larder, server.uri());
    let arguments = ["--json", "--wrap", "--connections", clients];
    let replayed = json_of(cmd!(600, "{larder} trace replay {arguments...} --to {uri} {trace}"))?;
    let volume = server.volume(larder, "stats", "")?;
    server.stop_clean()?;
    let hits = 100.0 * number(&volume, "read_hits")? / number(&volume, "read_pages")?;
    let read = number(&volume, "/counters/store_read_bytes")? / to_f64(MIB);
    Ok([number(&replayed, "requests_per_s")?, hits, read])
}
