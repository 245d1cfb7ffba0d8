//! `larder load`: writes, reads and flushes over several connections, and what must be left of
//! them after a crash.
//!
//! It runs until a connection breaks or its time is up, and fails when a read returns what it must
//! not. `--check` compares an image with the log of a load, without the cache: exit code 1 if a
//! promised write is missing.

mod area;
mod check;
mod connection;
mod log;
mod sector;

use anyhow::{Context, Result, anyhow, ensure};
use area::Area;
use clap::Args;
use connection::{Connection, Load, LoadTotals};
use larder_io::front::nbd::wire;
use larder_io::nbd_client::{Client, ConnectOptions, NbdUri};
use larder_report::format;
use log::Log;
use sector::SECTOR_BYTES;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long the server may leave a request without an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The most runs of wrong sectors that are shown.
const FINDINGS_MAX: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The export to load.
    #[arg(long, required_unless_present = "check")]
    uri: Option<NbdUri>,

    /// Where all random numbers come from.
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

    /// How long, as 10s; without it, until a connection breaks.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,

    /// Where to log what was promised, or where to read it.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Check the image of a load that logged, instead of loading. It held zeros before.
    #[arg(long, value_name = "IMAGE", requires = "log", conflicts_with_all = ["uri", "time"])]
    check: Option<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
    seconds.map(Duration::from_secs).ok_or_else(|| format!("\"{text}\" is not a time; write 10s"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match (&arguments.check, &arguments.log, &arguments.uri) {
        (Some(image), Some(log), _) => run_check(image, log),
        (_, _, Some(uri)) => load(arguments, uri).map(|()| ExitCode::SUCCESS),
        _ => Err(anyhow!("load nothing: give --uri, or --check and --log")),
    }
}

fn run_check(image: &Path, log: &Path) -> Result<ExitCode> {
    let verdict = check::check(image, log)?;
    for finding in verdict.findings.iter().take(FINDINGS_MAX) {
        println!("{finding}")?;
    }
    if verdict.findings.len() > FINDINGS_MAX {
        println!("and {} more such runs", verdict.findings.len() - FINDINGS_MAX)?;
    }
    println!("{} writes promised, {} missing", verdict.promised, verdict.missing)?;
    Ok(ExitCode::from(u8::from(verdict.missing > 0)))
}

fn load(arguments: &Arguments, uri: &NbdUri) -> Result<()> {
    let clients = connect(uri, arguments.connections)?;
    let info = clients[0].info();
    let (bytes, min) = (info.length, info.block_sizes.min);
    let log = match &arguments.log {
        Some(path) => Log::create(path, arguments.seed, bytes / SECTOR_BYTES as u64)?,
        None => Log::none(),
    };
    let started = Instant::now();
    let load = Load {
        seed: arguments.seed,
        depth: usize::try_from(arguments.depth).context("keep so many requests in flight")?,
        log,
        until: arguments.time.map(|time| started + time),
        stop: AtomicBool::new(false),
    };
    let connections: Result<Vec<_>> = (0..)
        .zip(clients)
        .map(|(number, client)| {
            let area = Area::new(bytes, min, number, arguments.connections)?;
            Ok(Connection::new(&load, client, number, area))
        })
        .collect();
    let tally = run_all(connections?)?;
    report(&tally, started.elapsed())
}

/// Runs the connections to their ends; the first failure is the load's.
fn run_all(connections: Vec<Connection<'_>>) -> Result<LoadTotals> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            connections.into_iter().map(|connection| scope.spawn(|| connection.run())).collect();
        // All are waited for before a failure is handed on.
        let ended: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ended.into_iter().try_fold(LoadTotals::default(), |sum, tally| Ok(sum.plus(&tally?)))
    })
}

/// Opens the connections; every second one has structured replies.
fn connect(uri: &NbdUri, connections: u64) -> Result<Vec<Client>> {
    let connect = |number: u64| {
        let options = ConnectOptions {
            structured: number.is_multiple_of(2),
            base_allocation: false,
            timeout: Some(ANSWER_MAX),
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

fn report(tally: &LoadTotals, time: Duration) -> Result<()> {
    println!(
        "{} writes ({}), {} reads ({}), {} flushes in {:.1} s; {} connections broke",
        tally.writes,
        format::bytes(tally.written_bytes),
        tally.reads,
        format::bytes(tally.read_bytes),
        tally.flushes,
        time.as_secs_f64(),
        tally.broken
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
