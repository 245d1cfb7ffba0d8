//! The floor: a volume keeps the memory that `--min` guarantees, while another volume floods the
//! pool and while a process leaks memory until the kernel kills it.
//!
//! A server, a process that reads a file through the page cache and one that leaks share one memory
//! cgroup with a limit. A chart of the recorded run is in the documentation.

use super::prelude::*;
use crate::daemon::Daemon;
use crate::memory_group::MemoryGroup;
use crate::nbd::Client;
use crate::record::Record;
use crate::stats::Spread;

/// The memory limit of the cgroup.
const LIMIT_MIB: u64 = 640;
/// The pool of the server, and the part of it that the volume "hot" keeps.
const MEMORY: &str = "160MiB";
const MIN: &str = "hot=100MiB";
const HOT_MIB: u64 = 80;
const FLOOD_MIB: u64 = 512;
/// The size of the file that is read through the page cache.
const FILE_MIB: u64 = 256;
/// The interval between samples.
const STEP: Duration = Duration::from_millis(500);
/// The number of samples before the leak begins, and the maximum number of samples.
const CALM_STEPS: usize = 8;
const STEPS_MAX: usize = 120;
const READER: &str = "while cat \"$0\" > /dev/null; do :; done";

/// The series of the record; the last one is for the claims only.
const SERIES: [&str; 5] =
    ["time", "file cache of the kernel", "the process that leaks", "volume with a floor", "hits"];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(MemoryGroup::unavailable_reason())?;
    let settings = json!({ "limit_mib": LIMIT_MIB, "memory": MEMORY, "min": MIN });
    let statement =
        "a leak, the kernel's file cache, and a volume with a floor, in one memory group";
    let mut record = Record::new(&env.root, statement, &["fio", "nbdkit", "qemu-nbd"], &settings)?;
    let group = MemoryGroup::with_limit(LIMIT_MIB)?;
    for (name, mib) in [("hot", HOT_MIB), ("flood", FLOOD_MIB), ("file", FILE_MIB)] {
        image::create_filled(&env.file(name), mib, env.options.seed)?;
    }
    let [hot, flood] = ["hot", "flood"].map(|it| format!("{it}={}", env.file(it).display()));
    let larder = env.larder(&[&hot, &flood], &format!("--memory {MEMORY} --min {MIN} --lock"));
    let server = larder.start_as(env.dir(), |command| group.wrap(&command))?;
    let mut client = Client::connect(&server.socket(), "hot")?;
    read_all(&mut client)?;
    let statement =
        format!("{HOT_MIB} MiB under a floor stay while {FLOOD_MIB} MiB flood the pool");
    claims.check(statement, || {
        let uri = server.uri_of("flood");
        stdout_of(cmd!(120, "nbdcopy {uri} null:"))?;
        let mib = resident_mib(env, &server)?;
        ensure!(mib >= to_f64(HOT_MIB), "only {mib:.1} MiB are resident");
        Ok(format!("{mib:.1} MiB"))
    });
    let series = watch(env, &group, (&server, &mut client))?;
    judge(&series, claims);
    drop(client);
    let statement = "after the leak the server stops cleanly";
    claims.check(statement, || server.stop_clean().map(|_| "exit code 0".into()));
    for (name, values) in SERIES.iter().zip(&series).take(4) {
        record.series(name, if *name == SERIES[0] { "s" } else { "MiB" }, values, 2);
    }
    if !env.options.quick {
        let path = record.write_as("leak")?;
        outln!("   recorded in {path}; cargo xtask docs updates the chart");
    }
    Ok(())
}

/// Samples all [`SERIES`] while a process leaks memory, until the kernel kills it.
fn watch(
    env: &Env,
    group: &MemoryGroup,
    (server, client): (&Server, &mut Client),
) -> Result<[Vec<f64>; 5]> {
    let file = env.file("file");
    // The file has been in the page cache since it was written, charged to another cgroup.
    stdout_of(cmd!("dd of={file} oflag=nocache conv=notrunc,fdatasync count=0"))?;
    let _reader = group.start("the reader", env.dir(), &cmd!("sh -c {READER} {file}"))?;
    let (mut leak, mut series) = (None, [const { Vec::new() }; 5]);
    let (started, mut before) = (Instant::now(), read_hits(env, server)?);
    for step in 0..STEPS_MAX {
        if step == CALM_STEPS {
            leak = Some(group.leak(env.dir(), "0.2")?);
        }
        read_all(client)?;
        let after = read_hits(env, server)?;
        let mib = |bytes: u64| to_f64(bytes) / to_f64(MIB);
        let others = group.bytes("rss")?.saturating_sub(server.memory_bytes("VmRSS")?);
        let hits = (after.0 - before.0) / (after.1 - before.1);
        let (cache, hot) = (mib(group.bytes("cache")?), resident_mib(env, server)?);
        let sample = [started.elapsed().as_secs_f64(), cache, mib(others), hot, hits];
        series.iter_mut().zip(sample).for_each(|(series, value)| series.push(value));
        before = after;
        if leak.as_mut().map_or(Ok(false), Daemon::has_ended)? {
            break;
        }
        std::thread::sleep(STEP);
    }
    Ok(series)
}

/// Reads the hot volume once, in pieces of 64 KiB.
fn read_all(client: &mut Client) -> Result<()> {
    let mut piece = vec![0; 1 << 16];
    for offset in (0..client.bytes()).step_by(piece.len()) {
        client.read(offset, &mut piece)?.ok().context("the server refused a read")?;
    }
    Ok(())
}

fn resident_mib(env: &Env, server: &Server) -> Result<f64> {
    let volume = server.volume(&env.larder, "volumes", "hot")?;
    Ok(number(&volume, "resident_bytes")? / to_f64(MIB))
}

/// Returns the number of page hits of reads of the hot volume, and of all pages that they
/// referenced.
fn read_hits(env: &Env, server: &Server) -> Result<(f64, f64)> {
    let volume = server.volume(&env.larder, "stats", "hot")?;
    Ok((number(&volume, "read_hits")?, number(&volume, "read_pages")?))
}

fn judge([_, kernel, _, hot, hits]: &[Vec<f64>; 5], claims: &mut Claims) {
    let least = Spread::of(kernel.get(CALM_STEPS..).unwrap_or_default()).min;
    let most = Spread::of(kernel).max;
    claims.add(
        "a leak squeezes the kernel's file cache to a tenth or less",
        format!("from {most:.0} to {least:.1} MiB"),
        // Less at the start would mean that the reader was not in the cgroup.
        most >= to_f64(FILE_MIB) / 2.0 && least <= most / 10.0,
    );
    let [hot, hits] = [hot, hits].map(|series| Spread::of(series).min);
    claims.add(
        format!("meanwhile the {HOT_MIB} MiB under the floor stay, and every read hits"),
        format!("{hot:.1} MiB at least, {:.2} % hits at least", 100.0 * hits),
        hot >= to_f64(HOT_MIB) && hits >= 1.0,
    );
}
