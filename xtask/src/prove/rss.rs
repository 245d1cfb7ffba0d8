//! Memory: with the cache full, the process holds at most `--memory` and 32 MiB.
//!
//! fio reads an image larger than the cache, then writes at random, so that frames, tables, ghosts,
//! dirty pages and buffers in flight are all in use. Both what is resident at the end and the most
//! that ever was are judged.

use anyhow::{Context as _, Result};

use super::{Claims, Lab};
use crate::fio;
use crate::image::{self, GIB, MIB};

/// What the process may hold beyond the cache.
const SPARE_BYTES: u64 = 32 * MIB;

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    one(lab, 256 * MIB, "--page-size 4KiB", claims)?;
    if lab.options.quick {
        return Ok(());
    }
    one(lab, 256 * MIB, "--page-size 64KiB", claims)?;
    let available = available_bytes()?;
    if available < 6 * GIB {
        let reason = format!("{} MiB available", available / MIB);
        claims.skip("resident memory at --memory 4096MiB", reason);
        return Ok(());
    }
    one(lab, 4 * GIB, "--page-size 4KiB", claims)
}

fn one(lab: &Lab, memory: u64, options: &str, claims: &mut Claims) -> Result<()> {
    let bytes = memory + memory / 4;
    let image = image::sparse(&lab.file("rss.img"), bytes)?;
    let line = format!("--memory {}MiB {options}", memory / MIB);
    let server = lab.serve(&image, &line)?;
    fio::run(&server.uri(), 0, &["--rw=read", "--bs=1m", "--iodepth=4"])?;
    let seconds = lab.either(20, 3);
    let random = ["--rw=randrw", "--bs=4k", "--iodepth=32", "--numjobs=4", "--norandommap"];
    fio::run(&server.uri(), seconds, &random)?;
    let (now, most) = (server.memory_bytes("VmRSS")?, server.memory_bytes("VmHWM")?);
    let over = |value: u64| value.cast_signed() - memory.cast_signed();
    let mib = |value: i64| value / MIB.cast_signed();
    // A cache that is not full proves nothing.
    let full = now > memory / 10 * 9;
    claims.add(
        format!("resident with {line}, at most 32 MiB more"),
        format!(
            "{:+} MiB, most ever {:+} MiB{}",
            mib(over(now)),
            mib(over(most)),
            if full { "" } else { ": the cache is not full" }
        ),
        full && over(most) <= SPARE_BYTES.cast_signed(),
    );
    server.stop_clean()?;
    std::fs::remove_file(&image).context("remove the image")
}

/// Memory that could be had without swapping.
fn available_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.context("/proc/meminfo has no MemAvailable")? * 1024)
}
