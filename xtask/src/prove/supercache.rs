//! The reason to exist: a disk that does 100 operations per second, and a cache below the file
//! system, as SuperCache was used.
//!
//! Whoever works has a memory group of [`GROUP_MIB`] on both sides, page cache included; Larder has
//! [`MEMORY_MIB`] more, outside of it. PostMark, and IOzone's writes of a file that fits the cache
//! and of one twice as large, first on ext4 on the disk alone, then on ext4 on a volume of it that
//! Larder shows as a file, once keeping flushes and once ignoring them. Each write begins with
//! nothing left to be written, on both sides. A rewrite comes right after the write, when the cache
//! is full of what that left: how it goes is told, but nobody has claimed anything of it.
//! [`equal`] is about the same memory on both sides.

mod equal;

use std::path::{Path, PathBuf};
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
use crate::{rings, run};

const PER_S: u32 = 100;
const IMAGE_MIB: u64 = 3072;
/// What the programs and the kernel's page cache share.
const GROUP_MIB: u64 = 64;
/// What Larder has.
const MEMORY_MIB: u64 = 256;
/// File sizes of IOzone: what fits the cache and leaves room, and twice the cache.
const FILES: [&str; 2] = ["128MiB", "512MiB"];
const RECORD: &str = "4MiB";

/// What was measured in 2000 with SuperCache, and has to be reached.
const POSTMARK_LEAST: f64 = 1.97;
/// For each of [`FILES`], where flushes are ignored.
const WRITE_LEAST: [f64; 2] = [8.0, 1.25];

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
    write: [f64; FILES.len()],
    /// The same for the rewrite.
    rewrite: [f64; FILES.len()],
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
    let _rings = rings::on()?;
    let alone = stand(lab, Side::Alone, GROUP_MIB, measure)?;
    let mut cached_postmark = Vec::new();
    for flush in ["keep", "ignore"] {
        let cached = stand(lab, Side::Cached(flush), GROUP_MIB, measure)?;
        cached_postmark.push((flush, cached.postmark));
        let gain = alone.postmark / cached.postmark;
        claims.against(
            format!("PostMark, --flush {flush}: at least {POSTMARK_LEAST} times as fast"),
            format!("{:.1} s, {gain:.2} times", cached.postmark),
            format!("the disk alone: {:.1} s", alone.postmark),
            gain >= POSTMARK_LEAST,
        );
        for (number, (file, least)) in FILES.into_iter().zip(WRITE_LEAST).enumerate() {
            let [write, rewrite] =
                [(&cached.write, &alone.write), (&cached.rewrite, &alone.rewrite)]
                    .map(|(ours, disk)| (ours[number], disk[number]));
            let told = |(ours, disk): (f64, f64)| {
                let figure = format!("{:.0} MiB/s, {:.2} times", ours / 1024.0, ours / disk);
                (figure, format!("the disk alone: {:.0} MiB/s", disk / 1024.0))
            };
            let (figure, peer) = told(write);
            let what = format!("IOzone's write of {file}, --flush {flush}");
            if flush == "ignore" {
                let what = format!("{what}: at least {least} times");
                claims.against(what, figure, peer, write.0 / write.1 >= least);
            } else {
                claims.against(format!("{what} (told only)"), figure, peer, true);
            }
            let (figure, peer) = told(rewrite);
            let what = format!("IOzone's rewrite of {file}, --flush {flush} (told only)");
            claims.against(what, figure, peer, true);
        }
    }
    equal::run(lab, claims, &cached_postmark)
}

/// A file system on the slow disk, on one side, and what those who work there share.
struct Stand<'a> {
    lab: &'a Lab,
    disk: &'a SlowDisk,
    served: Option<&'a Served>,
    group: MemoryGroup,
    point: PathBuf,
}

impl Stand<'_> {
    /// Has everything written that was left to be, so that the next one does not wait for it.
    fn settle(&self) -> Result<()> {
        run::text(&mut Command::new("sync"))?;
        let Some(served) = self.served else { return Ok(()) };
        let mut flush = Command::new(&self.lab.binary);
        run::text(flush.args(["ctl", "flush", "--control"]).arg(served.server.control()))?;
        Ok(())
    }
}

/// Works on one side, on a disk and a file system of its own that is not slow yet.
fn stand<T>(
    lab: &Lab,
    side: Side,
    group_mib: u64,
    work: impl FnOnce(&Stand<'_>) -> Result<T>,
) -> Result<T> {
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
    let done = work(&Stand {
        lab,
        disk: &disk,
        served: served.as_ref(),
        group: MemoryGroup::of(group_mib)?,
        point: file_system.point().to_owned(),
    });
    // What is still to be written need not take long.
    disk.limit(0)?;
    let done = done?;
    file_system.unmount()?;
    file_system.detach()?;
    if let Some(served) = served {
        served.stop_clean()?;
    }
    drop(disk);
    std::fs::remove_file(&image).context("remove the image")?;
    Ok(done)
}

fn serve(lab: &Lab, disk: &Path, flush: &str) -> Result<Served> {
    let options = format!("--memory {MEMORY_MIB}MiB --flush {flush}");
    Setup { lab, image: disk, options: &options }.serve()
}

fn measure(stand: &Stand<'_>) -> Result<Measured> {
    stand.disk.limit(PER_S)?;
    let seconds = postmark(stand)?;
    let folder = stand.point.join("iozone");
    std::fs::create_dir(&folder).context("make a folder for IOzone")?;
    let mut rates = Vec::new();
    for _ in 0..stand.lab.either(5, 1) {
        for file in FILES {
            stand.settle()?;
            rates.push((file, iozone(stand, &folder, file)?));
        }
    }
    let median_of = |pass: usize| {
        let of = |file: &str| -> Vec<f64> {
            rates.iter().filter(|(of, _)| *of == file).map(|(_, rates)| rates[pass]).collect()
        };
        FILES.map(|file| median(&of(file)))
    };
    Ok(Measured { postmark: seconds, write: median_of(0), rewrite: median_of(1) })
}

/// Writes and rewrites a file as IOzone does, once; both in KiB per second.
fn iozone(Stand { lab, group, .. }: &Stand<'_>, folder: &Path, file: &str) -> Result<[f64; 2]> {
    let record = lab.file("iozone.json");
    let mut iozone = Command::new(&lab.binary);
    iozone.args(["bench", "iozone"]).arg(folder).args(["--test", "0", "--record", RECORD]);
    iozone.args(["--file", file, "--trials", "1", "--same-speed", "off"]);
    run::text(&mut group.enter(iozone.arg("--output").arg(&record)))?;
    let text = std::fs::read_to_string(&record).context("read the record of IOzone")?;
    let record: Value = serde_json::from_str(&text).context("parse the record of IOzone")?;
    Ok([rate(&record, "write")?, rate(&record, "rewrite")?])
}

/// Runs Debian's PostMark; seconds.
fn postmark(Stand { lab, group, point, .. }: &Stand<'_>) -> Result<f64> {
    let size = lab.either((4000, 8000), (2000, 1000));
    let folder = point.join("postmark");
    std::fs::create_dir(&folder).context("make a folder for PostMark")?;
    let script = lab.file("postmark.script");
    crate::postmark::write_script(&script, &folder, size, 100_000)?;
    let begun = Instant::now();
    let said = run::text(&mut group.enter(Command::new("postmark").arg(&script)))?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(said.contains("deleted"), "PostMark did not come to its end");
    Ok(took)
}

/// The rate of a pass, in KiB per second.
fn rate(record: &Value, pass: &str) -> Result<f64> {
    let samples = record["samples"].as_array().context("a record has samples")?;
    let cell = samples.iter().find(|sample| sample["group"] == pass);
    let value = cell.and_then(|cell| cell["values"][0].as_f64());
    Ok(value.with_context(|| format!("{pass} did not come to its end"))? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_its_pass() {
        let record = serde_json::json!({ "samples": [
            { "group": "write", "values": [4096.0] },
            { "group": "rewrite", "values": [] },
        ] });
        assert!((rate(&record, "write").unwrap() - 4.0).abs() < 1e-9);
        assert!(rate(&record, "rewrite").is_err(), "no trial of it came to its end");
        assert!(rate(&record, "read").is_err(), "it was not measured");
    }
}
