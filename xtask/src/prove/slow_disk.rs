//! The benchmarks where their numbers are known beforehand: on a disk that does 100 operations per
//! second, each in one command with its chart.
//!
//! The disk is a loop device limited in the root group, so that write-back is charged as well.
//! Fileload reads fragmented and contiguous files on it; clients load it until it has enough; the
//! leak squeezes the page cache of a memory group; and the scenarios of Probe run against a server
//! in front of it. The limit counts requests before the kernel joins them, so what is read block by
//! block where pages cross extents costs more here than on a real disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Claims, Lab};
use crate::disk::SlowDisk;
use crate::image::{self, MIB};
use crate::memory_group::MemoryGroup;
use crate::run;
use crate::undo::Undo;

const PER_S: u32 = 100;
/// How much more the disk may seem to do: it saves up for a moment.
const SLACK: f64 = 1.2;

/// Files of each kind, and extents of a fragmented one: eight to what is read ahead by default.
const FILES: &str = "2";
const FILE: &str = "2MiB";
const EXTENTS: &str = "128";
/// Reading in order, contiguous files must be so many times as fast.
const CONTIGUOUS_LEAST: f64 = 2.0;

/// The cache of the server in front of the disk: that of the published scenarios.
const MEMORY: &str = "26MiB";
/// Where the file fits, so many times the cycles of where it does not.
const FITS_LEAST: f64 = 5.0;

/// Memory that the leak and the page cache share, and how much of it the leak takes.
const GROUP_MIB: u64 = 96;
const LEAK: &str = "72MiB";
/// More than the group has.
const MORE: &str = "160MiB";
/// What of a file of 30 MiB may be left.
const LEFT_MOST: f64 = 0.8;

/// Clients of the steps: they think for 50 ms, so sixteen ask for more than the disk does.
const CLIENTS: &str = "1,2,4,8,16,32";

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if let Some(reason) = SlowDisk::missing() {
        claims.skip("benchmarks on a slow disk", reason);
        return Ok(());
    }
    let disk = SlowDisk::unlimited(&image::sparse(&lab.file("slow-disk.img"), 512 * MIB)?)?;
    let (device, numbers) = (disk.path().to_path_buf(), disk.numbers().to_owned());
    let mounted = Mounted::new(lab, disk.path())?;
    make_fragments(lab, mounted.path())?;
    disk.limit(PER_S)?;
    fileload(lab, claims, mounted.path())?;
    server(lab, claims, mounted.path())?;
    leak(lab, claims, mounted.path())?;
    drop(mounted);
    scenarios(lab, claims, disk.path())?;
    drop(disk);
    claims
        .tried("afterwards: no limit, no device, no mount", || nothing_is_left(&device, &numbers));
    Ok(())
}

/// A file system on the disk, unmounted whatever happens.
struct Mounted {
    path: PathBuf,
    _undo: Undo,
}

impl Mounted {
    fn new(lab: &Lab, device: &Path) -> Result<Self> {
        let path = lab.file("mounted");
        std::fs::create_dir(&path).context("make a mount point")?;
        run::text(Command::new("mkfs.ext4").arg("-q").arg(device))?;
        let undo = Undo::with("umount \"$1\"", &[&path.to_string_lossy()])?;
        run::text(Command::new("mount").arg(device).arg(&path))?;
        Ok(Self { path, _undo: undo })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Runs `larder bench` with these words; its record, and the page made of it.
fn bench(command: &mut Command, lab: &Lab, name: &str) -> Result<(Value, String)> {
    let record = lab.file(&format!("{name}.json"));
    let text = run::text(command.arg("--output").arg(&record))?;
    println!("{text}");
    let page = lab.file(&format!("{name}.html"));
    run::text(Command::new(&lab.binary).arg("report").arg(&record).arg("--output").arg(&page))?;
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
    };
    let record = serde_json::from_str(&read(&record)?).context("parse a record")?;
    Ok((record, read(&page)?))
}

fn larder(lab: &Lab, words: &str, target: &Path) -> Command {
    let mut command = Command::new(&lab.binary);
    command.arg("bench").args(words.split_whitespace()).arg(target);
    command
}

/// The median of a series.
fn median(record: &Value, series: &str) -> Result<f64> {
    let samples = record["samples"].as_array().context("a record has samples")?;
    let sample = samples.iter().find(|sample| sample["series"] == series);
    let values = sample.and_then(|sample| sample["values"].as_array());
    let values = values.with_context(|| format!("no series {series}"))?;
    let mut values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().with_context(|| format!("no value of {series}"))
}

/// A claim that the page has charts with these titles.
fn charts(claims: &mut Claims, what: &str, page: &str, titles: &[&str]) {
    let missing = titles.iter().find(|title| {
        let drawn = |svg: &str| svg.split("</svg>").next().is_some_and(|svg| svg.contains(*title));
        !page.split("<svg").skip(1).any(drawn)
    });
    let figure = missing.map_or_else(
        || format!("{} charts", page.matches("<svg").count()),
        |title| format!("no chart of {title}"),
    );
    claims.add(format!("{what}: one command, its charts"), figure, missing.is_none());
}

fn make_fragments(lab: &Lab, folder: &Path) -> Result<()> {
    let mut command = larder(lab, "fragments", folder);
    command.args(["--files", FILES, "--size", FILE, "--extents", EXTENTS]);
    println!("{}", run::text(&mut command)?);
    Ok(())
}

fn fileload(lab: &Lab, claims: &mut Claims, folder: &Path) -> Result<()> {
    let trials = lab.either("6", "2");
    let play = ["--trials", trials, "--confidence", "off"];
    let mut command = larder(lab, "fileload --read 8KiB --mode sequential", folder);
    let (record, page) = bench(command.args(play), lab, "fileload-sequential")?;
    let of = |set: &str| median(&record, &format!("throughput, {set}"));
    let (fragmented, contiguous) = (of("fragmented")?, of("contiguous")?);
    let ratio = contiguous / fragmented;
    claims.against(
        format!("Fileload, sequential: contiguous {CONTIGUOUS_LEAST} times fragmented"),
        format!("{:.1} MB/s, {ratio:.1} times", contiguous / 1e6),
        format!("fragmented {:.1} MB/s", fragmented / 1e6),
        ratio >= CONTIGUOUS_LEAST,
    );
    charts(claims, "Fileload", &page, &["throughput, fragmented", "throughput, contiguous"]);
    let mut command = larder(lab, "fileload --read 8KiB --mode random --start cold", folder);
    // Past the page cache, or a place that is read again would cost the disk nothing.
    command.args(play).args(["--reads", "150", "--hint", "no-buffering"]);
    let (record, page) = bench(&mut command, lab, "fileload-random")?;
    let per_s = median(&record, "reads, fragmented")?;
    claims.add(
        format!("Fileload, random and unbuffered: the {PER_S} reads/s of the disk, within a fifth"),
        format!("{per_s:.1} reads/s"),
        per_s <= f64::from(PER_S) * SLACK && per_s >= f64::from(PER_S) / SLACK,
    );
    charts(claims, "Fileload, answer times", &page, &["answer time", "reads, fragmented"]);
    Ok(())
}

fn server(lab: &Lab, claims: &mut Claims, folder: &Path) -> Result<()> {
    let mut command =
        larder(lab, "server --unbuffered --size 4KiB --record 4KiB --items 8", folder);
    command.args(["--clients", CLIENTS, "--mix", "read=60,write=30,copy=10", "--think", "50,10"]);
    command.args(["--warm-up", "1s", "--measure", lab.either("4s", "1s")]);
    command.args(["--trials", lab.either("3", "1"), "--confidence", "off"]);
    let (record, page) = bench(&mut command, lab, "server")?;
    let steps = record["samples"].as_array().context("a record has samples")?;
    let steps = steps.iter().filter(|sample| sample["group"] == "throughput").count();
    let said = page.split_once("Stress point at ").and_then(|(_, rest)| rest.split_once("</p>"));
    let said = said.map_or("none", |(said, _)| said);
    claims.add(format!("server load in {steps} steps: a stress point"), said, said != "none");
    let transactions = median(&record, "transactions at clients 32")?;
    claims.add(
        "with 32 clients no more transactions than the disk reads and writes",
        format!("{transactions:.1} transactions/s"),
        transactions <= 2.0 * f64::from(PER_S) * SLACK,
    );
    let titles = ["throughput over clients", "answer time over clients", "stress point</text>"];
    charts(claims, "server load", &page, &titles);
    Ok(())
}

fn leak(lab: &Lab, claims: &mut Claims, folder: &Path) -> Result<()> {
    if let Some(reason) = MemoryGroup::missing() {
        claims.skip("Probe: a leak squeezes the page cache", reason);
        return Ok(());
    }
    let group = MemoryGroup::of(GROUP_MIB)?;
    let words = "probe --scenario leak --memory 48MiB --pattern R --length 8s --start warm";
    let mut command = larder(lab, words, folder);
    command.args(["--leak", LEAK, "--trials", "1", "--confidence", "off"]);
    let record_at = lab.file("leak.json");
    command.arg("--output").arg(&record_at);
    println!("{}", run::text(&mut group.enter(&command))?);
    let text = std::fs::read_to_string(&record_at).context("read a record")?;
    let record: Value = serde_json::from_str(&text).context("parse a record")?;
    let (taken, left) = (median(&record, "memory taken")?, median(&record, "file left in memory")?);
    let file = record["settings"]["file_bytes"].as_f64().context("a file has a size")?;
    claims.add(
        "Probe, leak: the page cache of the file shrinks while it is read",
        format!("{:.0} MB taken, {:.1} of {:.1} MB left", taken / 1e6, left / 1e6, file / 1e6),
        left < file * LEFT_MOST && taken > 0.0,
    );
    let page = lab.file("leak.html");
    run::text(Command::new(&lab.binary).arg("report").arg(&record_at).arg("-o").arg(&page))?;
    let page = std::fs::read_to_string(&page).context("read a page")?;
    charts(claims, "Probe, leak", &page, &["memory taken", "file left in memory"]);
    claims.tried("memory that runs out: the leak is ended, the run is not, and it is said", || {
        let words = "probe --scenario leak --memory 16MiB --pattern R --length 8s --start warm";
        let mut command = larder(lab, words, folder);
        command.args(["--leak", MORE, "--trials", "1", "--confidence", "off"]);
        let said = run::text(&mut group.enter(&command))?;
        let line = said.lines().find(|line| line.contains("takes memory was ended"));
        line.map(str::to_owned).context("nothing is said of it")
    });
    Ok(())
}

fn scenarios(lab: &Lab, claims: &mut Claims, device: &Path) -> Result<()> {
    let mut cycles = Vec::new();
    for scenario in ["fits", "overrun", "favoured"] {
        let memory = if scenario == "favoured" { "40MiB" } else { MEMORY };
        let server = lab.serve(device, &format!("--memory {memory}"))?;
        // What fits is in memory beforehand, as it was there after some of the ten minutes.
        let mut warm = Command::new(&lab.binary);
        warm.args(["bench", "probe", &server.uri(), "--start", "as-is", "--trials", "1"]);
        warm.args(["--size", "16MiB", "--pattern", "R", "--order", "sequential"]);
        run::text(warm.args(["--record", "256KiB", "--length", "4s"]))?;
        let mut command = Command::new(&lab.binary);
        command.args(["bench", "probe", &server.uri(), "--scenario", scenario]);
        command.args(["--memory", memory, "--overwrite", "--start", "as-is"]);
        command.args(["--length", lab.either("8s", "4s"), "--trials", lab.either("3", "1")]);
        command.args(["--confidence", "off"]);
        let (record, page) = bench(&mut command, lab, scenario)?;
        cycles.push(median(&record, "cycles")?);
        charts(claims, &format!("Probe, {scenario}"), &page, &["cycles", "answer time"]);
        server.stop_clean()?;
    }
    let ratio = cycles[0] / cycles[1];
    claims.against(
        format!("Probe: a file that fits, {FITS_LEAST} times one that does not"),
        format!("{:.0} cycles/s, {ratio:.1} times", cycles[0]),
        format!("overrun {:.0}, favoured {:.0}", cycles[1], cycles[2]),
        ratio >= FITS_LEAST,
    );
    Ok(())
}

fn nothing_is_left(device: &Path, numbers: &str) -> Result<String> {
    let shown = device.to_string_lossy();
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
    ensure!(!mounts.lines().any(|line| line.starts_with(&*shown)), "{shown} is mounted");
    let devices = run::text(Command::new("losetup").arg("--list").arg("--noheadings"))?;
    let still = devices.lines().any(|line| line.contains("slow-disk.img"));
    ensure!(!still, "{shown} is still there");
    ensure!(!SlowDisk::is_limited(numbers)?, "{numbers} still has a limit");
    Ok("as before".into())
}
