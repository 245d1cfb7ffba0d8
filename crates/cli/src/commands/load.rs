//! `larder load`: writes, reads and flushes over several connections, and a check of the data after
//! a crash.
//!
//! The load runs until a connection breaks or its time is up, and fails when a read returns wrong
//! data. `--check` compares an image with the log of a load, without the cache: exit code 1 if a
//! write is missing whose durability the server has acknowledged.

use crate::connection::NbdConnection;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use larder_io::nbd_client::{Client, ConnectOptions, NbdUri};
use larder_io::nbd_wire as wire;
use larder_io::owned_file;
use larder_lab::load::{self, LoadOptions, LoadTotals, Log};
use larder_schema::format;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Maximum number of runs of wrong sectors that are printed.
const FINDINGS_MAX: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The export to load.
    #[arg(long, required_unless_present = "check")]
    uri: Option<NbdUri>,

    /// Seed of all random numbers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Connections, each with its own stripes of the export.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,

    /// Requests in flight on each connection.
    #[arg(long, value_name = "NUMBER", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    depth: u64,

    /// Duration, for example 10s; without it, until a connection breaks.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,

    /// File for the log of acknowledged writes; with --check, the log to read.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Check the image of a load with a log, instead of loading. The image must have held zeros
    /// before the load.
    #[arg(long, value_name = "IMAGE", requires = "log", conflicts_with_all = ["uri", "time"])]
    check: Option<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
    seconds.map(Duration::from_secs).ok_or_else(|| format!("\"{text}\" is not a time; write 10s"))
}

pub(crate) fn run(arguments: &LoadArgs) -> Result<ExitCode> {
    match (&arguments.check, &arguments.log, &arguments.uri) {
        (Some(image), Some(log), _) => run_check(image, log),
        (_, _, Some(uri)) => load(arguments, uri).map(|()| ExitCode::SUCCESS),
        _ => Err(anyhow!("load nothing: give --uri, or --check and --log")),
    }
}

fn run_check(image: &Path, log: &Path) -> Result<ExitCode> {
    let result = load::check(image, log)?;
    for finding in result.findings.iter().take(FINDINGS_MAX) {
        println!("{finding}")?;
    }
    if result.findings.len() > FINDINGS_MAX {
        println!("and {} more such runs", result.findings.len() - FINDINGS_MAX)?;
    }
    println!("{} writes promised, {} missing", result.promised, result.missing)?;
    Ok(ExitCode::from(u8::from(result.missing > 0)))
}

fn load(arguments: &LoadArgs, uri: &NbdUri) -> Result<()> {
    let clients = connect(uri, arguments.connections)?;
    let info = clients[0].info();
    let (bytes, granule, seed) = (info.length, info.block_sizes.min, arguments.seed);
    let log = match &arguments.log {
        Some(path) => {
            let file = owned_file::create(path, 0o644);
            let file = file.with_context(|| format!("create the log {}", path.display()))?;
            Log::begin(file, seed, bytes)?
        }
        None => Log::none(),
    };
    let depth = usize::try_from(arguments.depth).context("keep so many requests in flight")?;
    let options = LoadOptions { bytes, granule, seed, depth, log, time: arguments.time };
    let started = Instant::now();
    let clients = clients.into_iter().map(NbdConnection::new).collect();
    let totals = load::run(clients, options).with_context(|| format!("load {uri}"))?;
    report(&totals, started.elapsed())
}

/// Opens the connections; every second one uses structured replies.
fn connect(uri: &NbdUri, connections: u64) -> Result<Vec<Client>> {
    let connect = |number: u64| {
        let options = ConnectOptions {
            structured: number.is_multiple_of(2),
            base_allocation: false,
            ..ConnectOptions::default()
        };
        let client = Client::connect_with(uri, options)?;
        let info = client.info();
        ensure!(!info.has(wire::FLAG_READ_ONLY), "load {uri}: it is read-only");
        let flags = wire::FLAG_SEND_FLUSH | wire::FLAG_SEND_FUA;
        ensure!(info.has(flags), "load {uri}: it has no flush, or no FUA");
        let shared = connections == 1 || info.has(wire::FLAG_CAN_MULTI_CONN);
        ensure!(shared, "load {uri} with {connections} connections: a flush is not for all");
        Ok(client)
    };
    (0..connections).map(connect).collect()
}

fn report(totals: &LoadTotals, time: Duration) -> Result<()> {
    println!(
        "{} writes ({}), {} reads ({}), {} flushes in {:.1} s; {} connections broke",
        totals.writes,
        format::bytes(totals.written_bytes),
        totals.reads,
        format::bytes(totals.read_bytes),
        totals.flushes,
        time.as_secs_f64(),
        totals.broken
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
