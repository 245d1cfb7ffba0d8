//! The reason to exist: a disk that does 100 operations per second, and a cache below the file
//! system, as SuperCache was used.
//!
//! Whoever works has a memory group of [`GROUP_MIB`] on both sides, page cache included; Larder has
//! [`MEMORY`] more, outside of it. PostMark, and IOzone's writes of a file that fits the cache and
//! of one twice as large, first on ext4 on the disk alone, then on ext4 on a volume of it that
//! Larder shows as a file, once keeping flushes and once ignoring them.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::fuse_volume::mounted::{FileSystem, Kind, Served, Setup};
use super::speed::median;
use super::{Claims, Lab};
use crate::disk::SlowDisk;
use crate::image::{self, MIB};
use crate::memory_group::MemoryGroup;
use crate::run;

const PER_S: u32 = 100;
const IMAGE_MIB: u64 = 3072;
/// What the programs and the kernel's page cache share.
const GROUP_MIB: u64 = 64;
/// What Larder has.
const MEMORY: &str = "256MiB";
/// File sizes of IOzone: what fits the cache and leaves room, and twice the cache.
const FILES: [&str; 2] = ["128MiB", "512MiB"];
const RECORD: &str = "4MiB";

/// What was measured in 2000 with SuperCache, and has to be reached.
const POSTMARK_LEAST: f64 = 1.97;
const FITS_LEAST: f64 = 8.0;
const TWICE_LEAST: f64 = 1.25;

/// Where the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// On the disk.
    Alone,
    /// On a volume, with this for `--flush`.
    Cached(&'static str),
}

/// What came out on one side.
struct Measured {
    /// Seconds of PostMark, from its start to its end.
    postmark: f64,
    /// KiB per second of IOzone's write, for each of [`FILES`].
    write: Vec<f64>,
    /// The same for the rewrite.
    rewrite: Vec<f64>,
}

/// Why this cannot be tried here, if so.
fn missing() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse");
    }
    if !run::installed("postmark") {
        return Some("no postmark");
    }
    SlowDisk::missing().or_else(MemoryGroup::missing)
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if let Some(reason) = missing() {
        claims.skip("a cache below the file system, on a slow disk", reason);
        return Ok(());
    }
    let alone = measure(lab, Side::Alone)?;
    for flush in ["keep", "ignore"] {
        let cached = measure(lab, Side::Cached(flush))?;
        let gain = alone.postmark / cached.postmark;
        claims.against(
            format!("PostMark, --flush {flush}: at least {POSTMARK_LEAST} times as fast"),
            format!("{:.1} s, {gain:.2} times", cached.postmark),
            format!("the disk alone: {:.1} s", alone.postmark),
            gain >= POSTMARK_LEAST,
        );
        let bars = [FITS_LEAST, TWICE_LEAST];
        for (number, (file, least)) in FILES.into_iter().zip(bars).enumerate() {
            for (pass, of) in [
                ("write", (&cached.write, &alone.write)),
                ("rewrite", (&cached.rewrite, &alone.rewrite)),
            ] {
                let (ours, disk) = (of.0[number], of.1[number]);
                let figure = format!("{:.0} MiB/s, {:.2} times", ours / 1024.0, ours / disk);
                let peer = format!("the disk alone: {:.0} MiB/s", disk / 1024.0);
                let what = format!("IOzone's {pass} of {file}, --flush {flush}");
                // With flushes kept there is no bar.
                let (what, holds) = if flush == "ignore" {
                    (format!("{what}: at least {least} times"), ours / disk >= least)
                } else {
                    (what, true)
                };
                claims.against(what, figure, peer, holds);
            }
        }
    }
    Ok(())
}

/// Does the work on one side, on a disk and a file system of its own.
fn measure(lab: &Lab, side: Side) -> Result<Measured> {
    let image = image::sparse(&lab.file("supercache.img"), IMAGE_MIB * MIB)?;
    let disk = SlowDisk::unlimited(&image)?;
    let served = match side {
        Side::Alone => None,
        Side::Cached(flush) => Some(serve(lab, disk.path(), flush)?),
    };
    let mut file_system = match &served {
        Some(served) => FileSystem::attach(lab, &served.file(), Kind::Ext4)?,
        None => FileSystem::on(lab, disk.path(), Kind::Ext4)?,
    };
    file_system.make()?;
    file_system.mount()?;
    disk.limit(PER_S)?;
    let group = MemoryGroup::of(GROUP_MIB)?;
    let settle = || settle(lab, served.as_ref());
    let measured = work(lab, &group, file_system.point(), settle);
    drop(group);
    // What is still to be written need not take long.
    disk.limit(0)?;
    let measured = measured?;
    file_system.unmount()?;
    file_system.detach()?;
    if let Some(served) = served {
        served.stop_clean()?;
    }
    drop(disk);
    std::fs::remove_file(&image).context("remove the image")?;
    Ok(measured)
}

fn serve(lab: &Lab, disk: &Path, flush: &str) -> Result<Served> {
    let options = format!("--memory {MEMORY} --flush {flush}");
    Setup { lab, image: disk, options: &options }.serve()
}

/// Has everything written that PostMark left, so that IOzone does not wait for it.
fn settle(lab: &Lab, served: Option<&Served>) -> Result<()> {
    run::text(&mut Command::new("sync"))?;
    let Some(served) = served else { return Ok(()) };
    let mut flush = Command::new(&lab.binary);
    run::text(flush.args(["ctl", "flush", "--control"]).arg(served.server.control()))?;
    Ok(())
}

fn work(
    lab: &Lab,
    group: &MemoryGroup,
    point: &Path,
    settle: impl Fn() -> Result<()>,
) -> Result<Measured> {
    let seconds = postmark(lab, group, point)?;
    settle()?;
    let folder = point.join("iozone");
    std::fs::create_dir(&folder).context("make a folder for IOzone")?;
    let record = lab.file("iozone.json");
    let mut iozone = Command::new(&lab.binary);
    iozone.args(["bench", "iozone"]).arg(&folder).args(["--test", "0", "--record", RECORD]);
    iozone.args(FILES.iter().flat_map(|file| ["--file", file]));
    let trials = lab.either("3", "1");
    iozone.args(["--trials", trials, "--same-speed", "off", "--output"]).arg(&record);
    println!("{}", run::text(&mut group.enter(&iozone))?);
    let text = std::fs::read_to_string(&record).context("read the record of IOzone")?;
    let record: Value = serde_json::from_str(&text).context("parse the record of IOzone")?;
    Ok(Measured {
        postmark: seconds,
        write: rates(&record, "write")?,
        rewrite: rates(&record, "rewrite")?,
    })
}

/// Runs Debian's PostMark; seconds.
fn postmark(lab: &Lab, group: &MemoryGroup, point: &Path) -> Result<f64> {
    let (files, transactions) = lab.either((4000, 8000), (2000, 1000));
    let folder = point.join("postmark");
    std::fs::create_dir(&folder).context("make a folder for PostMark")?;
    let script = lab.file("postmark.script");
    let commands = format!(
        "set location {}\nset number {files}\nset size 500 100000\nset subdirectories 5\n\
         set transactions {transactions}\nset read 4096\nset write 4096\nrun\nquit\n",
        folder.display()
    );
    std::fs::write(&script, commands).context("write a script for PostMark")?;
    let begun = Instant::now();
    let said = run::text(&mut group.enter(Command::new("postmark").arg(&script)))?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(said.contains("deleted"), "PostMark did not come to its end");
    Ok(took)
}

/// The medians of a pass, in KiB per second, for each of [`FILES`] in their order.
fn rates(record: &Value, pass: &str) -> Result<Vec<f64>> {
    let samples = record["samples"].as_array().context("a record has samples")?;
    let of_pass = samples.iter().filter(|sample| sample["group"] == pass);
    let rates = of_pass.map(|sample| -> Result<(f64, f64)> {
        let file = sample["at"]["file_bytes"].as_f64().context("a cell is of a file")?;
        let values = sample["values"].as_array().context("a cell has values")?;
        let values: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
        ensure!(!values.is_empty(), "no trial of {pass} came to its end");
        Ok((file, median(&values) / 1024.0))
    });
    let mut rates = rates.collect::<Result<Vec<_>>>()?;
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    ensure!(rates.len() == FILES.len(), "{} cells of {pass}", rates.len());
    Ok(rates.into_iter().map(|(_, rate)| rate).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_medians_in_the_order_of_the_files() {
        let cell = |pass: &str, file: u64, values: &[f64]| {
            let at = serde_json::json!({ "file_bytes": file });
            serde_json::json!({ "group": pass, "at": at, "values": values })
        };
        let record = serde_json::json!({ "samples": [
            cell("write", 9, &[4096.0]),
            cell("rewrite", 9, &[1.0]),
            cell("write", 3, &[1024.0, 3072.0, 2048.0]),
        ] });
        assert_eq!(rates(&record, "write").unwrap(), [2.0, 4.0]);
        assert!(rates(&record, "rewrite").is_err(), "a cell is missing");
    }
}
