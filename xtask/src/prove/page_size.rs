//! Page sizes under a database: how many requests a second, by size and by client threads.
//!
//! Nothing is promised here: it is the table that tells which page size wins on this machine, as
//! 8 KiB did in 1998. Each case has a new server; cases take turns, round by round, and the figure
//! is the median of the rounds. The image is full of data and four times the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::speed::median;
use super::{Claims, Lab};
use crate::{image, run, table};

const PAGE_SIZES: [&str; 4] = ["4KiB", "8KiB", "32KiB", "64KiB"];
const CLIENTS: [usize; 3] = [1, 2, 4];
const IMAGE_MIB: u64 = 512;
const MEMORY: &str = "128MiB";

/// What one case did in one round.
struct Sample {
    per_s: f64,
    /// Of the pages that were read, in per cent.
    hits: f64,
    store_read_mib: f64,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let rounds = lab.either(3, 1);
    let trace = database(lab, lab.either(100_000, 5_000))?;
    let image = image::filled(&lab.file("database.img"), IMAGE_MIB, lab.options.seed)?;
    let cases: Vec<_> = PAGE_SIZES
        .into_iter()
        .flat_map(|page| CLIENTS.into_iter().map(move |clients| (page, clients)))
        .collect();
    let mut samples: Vec<Vec<Sample>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (&(page, clients), samples) in cases.iter().zip(&mut samples) {
            samples.push(sample(lab, &image, &trace, page, clients)?);
        }
    }
    let of = |samples: &[Sample], figure: fn(&Sample) -> f64| {
        median(&samples.iter().map(figure).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    for (&(page, clients), samples) in cases.iter().zip(&samples) {
        rows.push(vec![
            page.to_owned(),
            clients.to_string(),
            format!("{:.0}", of(samples, |sample| sample.per_s)),
            format!("{:.1} %", of(samples, |sample| sample.hits)),
            format!("{:.0} MiB", of(samples, |sample| sample.store_read_mib)),
        ]);
    }
    table::print(&["page", "clients", "requests/s", "hits", "read from the store"], &rows);
    for clients in CLIENTS {
        let of_clients = cases.iter().zip(&samples).filter(|(case, _)| case.1 == clients);
        let rates: Vec<_> = of_clients
            .map(|((page, _), samples)| (*page, of(samples, |sample| sample.per_s)))
            .collect();
        let best = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1));
        let (page, rate) = best.context("no case was run")?;
        let in_words: Vec<_> =
            rates.iter().map(|(page, rate)| format!("{page} {rate:.0}")).collect();
        claims.against(
            format!("requests/s of a database with {clients} clients, by page size: a table"),
            format!("{page} wins with {rate:.0}"),
            in_words.join(", "),
            *rate > 0.0,
        );
    }
    std::fs::remove_file(&image).with_context(|| format!("remove {}", image.display()))
}

/// The table and index of a database that is walked and read by transactions.
fn database(lab: &Lab, requests: u64) -> Result<PathBuf> {
    let [whole, data] = ["whole.ltr", "database.ltr"].map(|name| lab.file(name));
    let larder = |args: &[&str]| {
        let mut command = run::client(600, &lab.binary.to_string_lossy());
        run::text(command.arg("trace").args(args))
    };
    let (pages, requests) = ((IMAGE_MIB * 256).to_string(), requests.to_string());
    let seed = lab.options.seed.to_string();
    let [from, to] = [&whole, &data].map(|path| path.to_string_lossy().into_owned());
    larder(&[
        "synth",
        "database",
        &from,
        "--pages",
        &pages,
        "--requests",
        &requests,
        "--seed",
        &seed,
    ])?;
    larder(&["filter", &from, &to, "--volume", "data"])?;
    Ok(data)
}

fn sample(lab: &Lab, image: &Path, trace: &Path, page: &str, clients: usize) -> Result<Sample> {
    let server = lab.serve(image, &format!("--memory {MEMORY} --page-size {page}"))?;
    let binary = lab.binary.to_string_lossy();
    let mut replay = run::client(600, &binary);
    replay.args(["trace", "replay", "--json", "--wrap", "--connections", &clients.to_string()]);
    let replayed = run::text(replay.args(["--to", &server.uri()]).arg(trace))?;
    let replayed: Value = serde_json::from_str(&replayed).context("parse what replay printed")?;
    let mut stats = run::client(30, &binary);
    stats.args(["ctl", "stats", "--format", "json", "--control"]).arg(server.control());
    let stats: Value =
        serde_json::from_str(&run::text(&mut stats)?).context("parse what ctl stats printed")?;
    server.stop_clean()?;
    let volume = &stats["volumes"][0];
    let number = |value: &Value, name: &str| {
        value[name].as_f64().with_context(|| format!("no number {name}"))
    };
    Ok(Sample {
        per_s: number(&replayed, "requests_per_s")?,
        hits: 100.0 * number(volume, "read_hits")? / number(volume, "read_pages")?,
        store_read_mib: number(&volume["counters"], "store_read_bytes")? / f64::from(1 << 20),
    })
}
