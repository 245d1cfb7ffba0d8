//! Lazy write on a slow disk: many times as fast as write-through, and nothing written twice.

use super::prelude::*;
use crate::disk::Disk;

const PER_S: u32 = 100;
const BLOCK_BYTES: u64 = 4096;
const RATIO_LEAST: f64 = 50.0;
/// The working set is an eighth of the cache.
const WORK: [&str; 5] = ["--rw=randwrite", "--bs=4k", "--iodepth=8", "--norandommap", "--size=32m"];

/// What one write mode did on the slow disk.
#[derive(Debug)]
struct Pass {
    per_s: f64,
    requests: u64,
    device_requests: u64,
    device_blocks: u64,
    /// Blocks that became dirty.
    new_dirty: u64,
    stop_s: f64,
}

/// Runs the proof.
pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    if claims.skipped("lazy write on a slow disk", Disk::missing()) {
        return Ok(());
    }
    let disk = Disk::over(&image::sparse(&env.file("slow.img"), 512 * MIB)?)?;
    disk.limit(PER_S)?;
    let back = pass(env, &disk, "back")?;
    let through = pass(env, &disk, "through")?;
    let ratio = back.per_s / through.per_s;
    claims.against(
        format!("4 KiB random writes at {PER_S} operations per second: 50 times write-through"),
        format!("{ratio:.0} times, {:.0} per s, stop {:.1} s", back.per_s, back.stop_s),
        format!("write-through {:.0} per s", through.per_s),
        ratio >= RATIO_LEAST,
    );
    let Pass { requests, device_requests, device_blocks, new_dirty, .. } = back;
    claims.against(
        "blocks written, at most those that became dirty",
        format!("{device_blocks} blocks in {device_requests} writes, {requests} acknowledged"),
        format!("{new_dirty} became dirty"),
        device_blocks <= new_dirty && device_blocks > 0,
    );
    Ok(())
}

fn pass(env: &Env, disk: &Disk, mode: &str) -> Result<Pass> {
    let server = env.serve(disk.path(), &format!("--memory 256MiB --write-mode {mode}"))?;
    let (requests_before, bytes_before) = disk.written()?;
    let outcome = fio::run(&server.uri(), env.either(30, 4), &WORK)?;
    let volume = server.volume(&env.larder, "stats", "")?;
    let new_dirty = volume["counters"]["write_new_dirty_pages"].as_u64();
    let ended = server.stop_clean()?;
    let (requests, bytes) = disk.written()?;
    Ok(Pass {
        per_s: outcome.per_s,
        requests: outcome.requests,
        device_requests: requests - requests_before,
        device_blocks: (bytes - bytes_before) / BLOCK_BYTES,
        new_dirty: new_dirty.context("no counter of blocks that became dirty")?,
        stop_s: ended.took.as_secs_f64(),
    })
}
