//! The benchmarks with figures that are known in advance: on a disk limited to 100 operations per
//! second, each in one command with its chart.
//!
//! The disk is a loop device with a limit in the root cgroup, so that the limit includes writeback.
//! The limit counts requests before the kernel merges them.

use super::prelude::*;
use crate::disk::{Disk, FileSystem, Kind};
use crate::memory_group::MemoryGroup;
use crate::record::series_median;

const PER_S: f64 = 100.0;
/// The maximum ratio by which the disk may exceed its limit: the throttle allows short bursts.
const SLACK: f64 = 1.2;
/// Options for the files of each kind. A fragmented one has eight extents per default read-ahead
/// window.
const FRAGMENTS: &str = "--files 2 --size 2MiB --extents 128";
/// The required ratio of contiguous to fragmented files in sequential reads.
const CONTIGUOUS_LEAST: f64 = 2.0;
/// The cache of the server in front of the disk: that of the published scenarios.
const MEMORY: &str = "26MiB";
/// The required ratio of cycles with a file that fits to those with one that does not.
const FITS_LEAST: f64 = 5.0;
/// The memory that the leak and the page cache share, and the maximum share of a file of 30 MiB
/// that stays cached.
const GROUP_MIB: u64 = 96;
const LEFT_MOST: f64 = 0.8;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    let disk = Disk::attach(&image::create_sparse(&env.file("slow-disk.img"), 512 * MIB)?)?;
    let (device, numbers) = (disk.path().to_path_buf(), disk.numbers.clone());
    let file_system = FileSystem::on(env.dir(), &device, Kind::Ext4)?;
    file_system.make()?;
    file_system.mount()?;
    let (larder, dir, options) = (&env.larder, file_system.point(), FRAGMENTS.split(' '));
    outln!("{}", stdout_of(cmd!("{larder} bench fragments {dir} {options...}"))?);
    disk.limit(100)?;
    fileload(env, claims, dir)?;
    server_load(env, claims, dir)?;
    leak(env, claims, dir)?;
    file_system.unmount_unchecked()?;
    scenarios(env, claims, disk.path())?;
    drop(disk);
    claims.check("afterwards: no limit, no device, no mount", || {
        let shown = device.to_string_lossy();
        let mounts = std::fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
        let mounted = mounts.lines().find(|line| line.split(' ').next() == Some(&*shown));
        ensure!(mounted.is_none(), "{} is mounted", mounted.unwrap_or_default());
        let devices = stdout_of(cmd!("losetup --list --noheadings"))?;
        ensure!(!devices.contains("slow-disk.img"), "{shown} is still there");
        ensure!(!Disk::is_limited(&numbers)?, "{numbers} still has a limit");
        Ok("as before".into())
    });
    Ok(())
}

/// Runs `larder bench` with arguments and a target, in a cgroup if one is given. Returns its
/// record, and adds a claim that its report has charts with these titles.
fn bench(
    env: &Env,
    claims: &mut Claims,
    name: &str,
    (words, target): (&str, &str),
    titles: &[&str],
    group: Option<&MemoryGroup>,
) -> Result<Value> {
    let (larder, words) = (&env.larder, words.split_whitespace());
    let (at, page) = (env.file("run.json"), env.file("run.html"));
    let mut command = cmd!("{larder} bench {words...} {target} --confidence off --output {at}");
    if let Some(group) = group {
        command = group.wrap(&command);
    }
    outln!("{}", stdout_of(command)?);
    stdout_of(cmd!("{larder} report {at} --output {page}"))?;
    let page = std::fs::read_to_string(&page).context("read a page")?;
    let missing = titles.iter().find(|title| {
        let drawn = |svg: &str| svg.split("</svg>").next().is_some_and(|svg| svg.contains(*title));
        !page.split("<svg").skip(1).any(drawn)
    });
    let figure = missing.map_or_else(
        || format!("{} charts", page.matches("<svg").count()),
        |title| format!("no chart of {title}"),
    );
    claims.add(format!("{name}: one command, its charts"), figure, missing.is_none());
    let mut record = record::read(&at)?;
    let stress_point =
        page.split_once("Stress point at ").and_then(|(_, rest)| rest.split_once("</p>"));
    record["stress_point"] = stress_point.map(|(text, _)| text).into();
    Ok(record)
}

fn fileload(env: &Env, claims: &mut Claims, dir: &Path) -> Result<()> {
    let (trials, dir) = (env.choose("6", "2"), &dir.to_string_lossy());
    let words = format!("fileload --read 8KiB --mode sequential --trials {trials}");
    let titles = ["throughput, fragmented", "throughput, contiguous"];
    let record = bench(env, claims, "Fileload", (&words, dir), &titles, None)?;
    let (fragmented, contiguous) =
        (series_median(&record, titles[0])?, series_median(&record, titles[1])?);
    let ratio = contiguous / fragmented;
    claims.add_with_peer(
        format!("Fileload, sequential: contiguous {CONTIGUOUS_LEAST} times fragmented"),
        format!("{:.1} MB/s, {ratio:.1} times", contiguous / 1e6),
        format!("fragmented {:.1} MB/s", fragmented / 1e6),
        ratio >= CONTIGUOUS_LEAST,
    );
    // Bypasses the page cache; otherwise a repeated read of a block would not access the disk.
    let words = format!(
        "fileload --read 8KiB --mode random --start cold --trials {trials} --reads 150 --hint \
         no-buffering"
    );
    let titles = ["response time", "reads, fragmented"];
    let record = bench(env, claims, "Fileload, response times", (&words, dir), &titles, None)?;
    let per_s = series_median(&record, "reads, fragmented")?;
    claims.add(
        format!("Fileload, random and unbuffered: the {PER_S} reads/s of the disk, within a fifth"),
        format!("{per_s:.1} reads/s"),
        (PER_S / SLACK..=PER_S * SLACK).contains(&per_s),
    );
    Ok(())
}

fn server_load(env: &Env, claims: &mut Claims, dir: &Path) -> Result<()> {
    // With a think time of 50 ms, sixteen clients exceed the rate of the disk.
    let (measure, trials) = env.choose(("4s", "3"), ("1s", "1"));
    let words = format!(
        "server --unbuffered --size 4KiB --record 4KiB --items 8 --clients 1,2,4,8,16,32 --mix \
         read=60,write=30,copy=10 --think 50,10 --warm-up 1s --measure {measure} --trials {trials}"
    );
    let titles = ["throughput over clients", "response time over clients", "stress point</text>"];
    let dir = &dir.to_string_lossy();
    let record = bench(env, claims, "server load", (&words, dir), &titles, None)?;
    let steps = record["samples"].as_array().context("a record has samples")?;
    let steps = steps.iter().filter(|sample| sample["group"] == "throughput").count();
    let stress_point = record["stress_point"].as_str();
    let statement = format!("server load in {steps} steps: a stress point");
    claims.add(statement, stress_point.unwrap_or("none"), stress_point.is_some());
    let transactions = series_median(&record, "transactions at clients 32")?;
    claims.add(
        "with 32 clients no more transactions than the disk reads and writes",
        format!("{transactions:.1} transactions/s"),
        transactions <= 2.0 * PER_S * SLACK,
    );
    Ok(())
}

fn leak(env: &Env, claims: &mut Claims, dir: &Path) -> Result<()> {
    if let Some(reason) = MemoryGroup::unavailable_reason() {
        claims.skip("Probe: a leak squeezes the page cache", reason);
        return Ok(());
    }
    let (group, dir) = (MemoryGroup::with_limit(GROUP_MIB)?, &dir.to_string_lossy().into_owned());
    let words = "probe --scenario leak --pattern R --length 8s --start warm --trials 1";
    let first = format!("{words} --memory 48MiB --leak 72MiB");
    let titles = ["memory taken", "file left in memory"];
    let record = bench(env, claims, "Probe, leak", (&first, dir), &titles, Some(&group))?;
    let (taken, left) = (series_median(&record, titles[0])?, series_median(&record, titles[1])?);
    let file = number(&record, "/settings/file_bytes")?;
    claims.add(
        "Probe, leak: the page cache of the file shrinks while it is read",
        format!("{:.0} MB taken, {:.1} of {:.1} MB left", taken / 1e6, left / 1e6, file / 1e6),
        left < file * LEFT_MOST && taken > 0.0,
    );
    claims.check("memory that runs out: the leak is ended, the run is not, and it is said", || {
        // The leak is larger than the cgroup.
        let (larder, words) = (&env.larder, words.split(' '));
        let more = "--memory 16MiB --leak 160MiB --confidence off".split(' ');
        let output = stdout_of(group.wrap(&cmd!("{larder} bench {words...} {more...} {dir}")))?;
        let line = output.lines().find(|line| line.contains("takes memory was ended"));
        line.map(str::to_owned).context("nothing is said of it")
    });
    Ok(())
}

fn scenarios(env: &Env, claims: &mut Claims, device: &Path) -> Result<()> {
    let mut cycles = Vec::new();
    for scenario in ["fits", "overrun", "favored"] {
        let memory = if scenario == "favored" { "40MiB" } else { MEMORY };
        let server = env.serve(device, &format!("--memory {memory}"))?;
        let (larder, uri) = (&env.larder, server.uri());
        // The fitting file is cached in advance, as it would be after some of the ten minutes.
        let warm =
            "--start as-is --trials 1 --size 16MiB --pattern R --order sequential".split(' ');
        stdout_of(cmd!("{larder} bench probe {uri} {warm...} --record 256KiB --length 4s"))?;
        let (length, trials) = env.choose(("8s", "3"), ("4s", "1"));
        let words = format!(
            "probe --scenario {scenario} --memory {memory} --overwrite --start as-is --length \
             {length} --trials {trials}"
        );
        let (name, titles) = (format!("Probe, {scenario}"), ["cycles", "response time"]);
        let record = bench(env, claims, &name, (&words, &uri), &titles, None)?;
        cycles.push(series_median(&record, "cycles")?);
        server.stop_clean()?;
    }
    let ratio = cycles[0] / cycles[1];
    claims.add_with_peer(
        format!("Probe: a file that fits, {FITS_LEAST} times one that does not"),
        format!("{:.0} cycles/s, {ratio:.1} times", cycles[0]),
        format!("overrun {:.0}, favored {:.0}", cycles[1], cycles[2]),
        ratio >= FITS_LEAST,
    );
    Ok(())
}
