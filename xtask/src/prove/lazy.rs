//! Lazy write on a slow disk: many times as fast as write-through, without repeated writes.

use super::prelude::*;
use crate::disk::Disk;

const PER_S: u32 = 100;
const BLOCK_BYTES: u64 = 4096;
const RATIO_LEAST: f64 = 50.0;
/// The working set is an eighth of the cache.
const WORK: [&str; 5] = ["--rw=randwrite", "--bs=4k", "--iodepth=8", "--norandommap", "--size=32m"];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    let disk = Disk::attach(&image::create_sparse(&env.file("slow.img"), 512 * MIB)?)?;
    disk.limit(PER_S)?;
    let (back, claimed) = pass(env, &disk, "back")?;
    let (through, _) = pass(env, &disk, "through")?;
    let ratio = back.per_s / through.per_s;
    let (stop_s, requests, blocks, new_dirty) = claimed;
    claims.add_with_peer(
        format!("4 KiB random writes at {PER_S} operations per second: 50 times write-through"),
        format!("{ratio:.0} times, {:.0} per s, stop {stop_s:.1} s", back.per_s),
        format!("write-through {:.0} per s", through.per_s),
        ratio >= RATIO_LEAST,
    );
    claims.add_with_peer(
        "blocks written: no more than became dirty",
        format!("{blocks} blocks in {requests} writes, {} acknowledged", back.requests),
        format!("{new_dirty} became dirty"),
        blocks <= new_dirty && blocks > 0,
    );
    Ok(())
}

/// Returns the result of fio in one write mode: seconds until the stop, writes and blocks that
/// reached the disk, and blocks that became dirty.
fn pass(env: &Env, disk: &Disk, mode: &str) -> Result<(fio::LoadResult, (f64, u64, u64, u64))> {
    let server = env.serve(disk.path(), &format!("--memory 256MiB --write-mode {mode}"))?;
    let (requests, bytes) = disk.write_counts()?;
    let outcome = fio::run(&server.uri(), env.choose(30, 4), &WORK)?;
    let volume = server.volume(&env.larder, "stats", "")?;
    let new_dirty = volume["counters"]["write_new_dirty_pages"].as_u64();
    let stop_s = server.stop_clean()?.took.as_secs_f64();
    let (all_requests, all_bytes) = disk.write_counts()?;
    let blocks = (all_bytes - bytes) / BLOCK_BYTES;
    let new_dirty = new_dirty.context("no counter of blocks that became dirty")?;
    Ok((outcome, (stop_s, all_requests - requests, blocks, new_dirty)))
}
