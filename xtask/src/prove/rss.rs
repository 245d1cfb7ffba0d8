//! Memory: with a full cache, the process holds at most `--memory` plus 32 MiB, at the end and at
//! its peak.

use super::prelude::*;
use crate::image::GIB;
use crate::server::kib_field;

/// The maximum memory of the process beyond the cache.
const SPARE_BYTES: u64 = 32 * MIB;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    check_memory(env, 256 * MIB, "--page-size 4KiB", claims)?;
    if env.options.quick {
        return Ok(());
    }
    check_memory(env, 256 * MIB, "--page-size 64KiB", claims)?;
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let available = kib_field(&meminfo, "MemAvailable").context("no MemAvailable")?;
    require((available < 6 * GIB).then(|| format!("{} MiB available", available / MIB)))?;
    check_memory(env, 4 * GIB, "--page-size 4KiB", claims)
}

fn check_memory(env: &Env, memory: u64, options: &str, claims: &mut Claims) -> Result<()> {
    let image = image::create_sparse(&env.file("rss.img"), memory + memory / 4)?;
    let line = format!("--memory {}MiB {options}", memory / MIB);
    let server = env.serve(&image, &line)?;
    fio::run(&server.uri(), 0, &["--rw=read", "--bs=1m", "--iodepth=4"])?;
    let random = ["--rw=randrw", "--bs=4k", "--iodepth=32", "--numjobs=4", "--norandommap"];
    fio::run(&server.uri(), env.choose(20, 3), &random)?;
    let (now, most) = (server.memory_bytes("VmRSS")?, server.memory_bytes("VmHWM")?);
    let over = |value: u64| (value.cast_signed() - memory.cast_signed()) / MIB.cast_signed();
    // A cache that is not full proves nothing.
    let is_full = now > memory / 10 * 9;
    let note = if is_full { "" } else { ": the cache is not full" };
    claims.add(
        format!("resident with {line}, at most 32 MiB more"),
        format!("{:+} MiB, most ever {:+} MiB{note}", over(now), over(most)),
        is_full && most <= memory + SPARE_BYTES,
    );
    server.stop_clean()?;
    std::fs::remove_file(&image).context("remove the image")
}
