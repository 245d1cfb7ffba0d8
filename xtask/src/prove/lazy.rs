//! Lazy write on a slow disk: many times as fast as write-through, and nothing written twice.
//!
//! The disk is a loop device limited to 100 operations per second. fio writes 4 KiB blocks at
//! random into a working set that fits the dirty limit, first with write-back, then with
//! write-through. The blocks that reached the disk are counted by the kernel; the blocks that
//! became dirty are read from the table that the server prints on SIGUSR1, the row whose name
//! holds `new` and `dirty`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::{Claims, Lab};
use crate::disk::SlowDisk;
use crate::fio;
use crate::image::{self, MIB};
use crate::server::Server;

const PER_S: u32 = 100;
const BLOCK_BYTES: u64 = 4096;
const RATIO_LEAST: f64 = 50.0;

/// The working set; an eighth of the cache.
const WORKING_SET: &str = "--size=32m";

/// What one write mode did on the slow disk.
#[derive(Debug)]
struct Pass {
    per_s: f64,
    requests: u64,
    device_requests: u64,
    device_blocks: u64,
    /// Blocks that became dirty, if the server counts them.
    new_dirty: Option<u64>,
    stop: Duration,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if let Some(reason) = SlowDisk::missing() {
        claims.skip("lazy write on a slow disk", reason);
        return Ok(());
    }
    let image = image::sparse(&lab.file("slow.img"), 512 * MIB)?;
    let disk = SlowDisk::over(&image, PER_S)?;
    let seconds = lab.either(30, 4);
    let back = pass(lab, &disk, "back", seconds)?;
    let through = pass(lab, &disk, "through", seconds)?;
    let ratio = back.per_s / through.per_s;
    claims.against(
        format!("4 KiB random writes at {PER_S} operations per second: 50 times write-through"),
        format!("{ratio:.0} times, {:.0} per s, stop {:.1} s", back.per_s, back.stop.as_secs_f64()),
        format!("write-through {:.0} per s", through.per_s),
        ratio >= RATIO_LEAST,
    );
    judge_blocks(&back, claims);
    Ok(())
}

fn judge_blocks(back: &Pass, claims: &mut Claims) {
    let what = "blocks written, at most those that became dirty";
    let figure = format!(
        "{} blocks in {} writes, {} acknowledged",
        back.device_blocks, back.device_requests, back.requests
    );
    match back.new_dirty {
        Some(dirty) => {
            let holds = back.device_blocks <= dirty && back.device_blocks > 0;
            claims.against(what, figure, format!("{dirty} became dirty"), holds);
        }
        None => claims.skip(what, format!("{figure}; no row `new dirty` on SIGUSR1")),
    }
}

fn pass(lab: &Lab, disk: &SlowDisk, mode: &str, seconds: u64) -> Result<Pass> {
    let server = lab.serve(disk.path(), &format!("--memory 256MiB --write-mode {mode}"))?;
    let (requests_before, bytes_before) = disk.written()?;
    let options = ["--rw=randwrite", "--bs=4k", "--iodepth=8", "--norandommap", WORKING_SET];
    let outcome = fio::run(&server.uri(), seconds, &options)?;
    let new_dirty = counter(&server, &["new", "dirty"])?;
    let ended = server.stop_clean()?;
    let (requests, bytes) = disk.written()?;
    Ok(Pass {
        per_s: outcome.per_s,
        requests: outcome.requests,
        device_requests: requests - requests_before,
        device_blocks: (bytes - bytes_before) / BLOCK_BYTES,
        new_dirty,
        stop: ended.took,
    })
}

/// A counter from the table on SIGUSR1: the first number in the row whose name holds these words.
fn counter(server: &Server, words: &[&str]) -> Result<Option<u64>> {
    // A server that does not catch the signal would end by it.
    if !handles_usr1(server.pid())? {
        return Ok(None);
    }
    let before = server.stderr().len();
    server.signal(Signal::USR1)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(50));
        let text = server.stderr();
        if let Some(value) = find(text.get(before..).unwrap_or_default(), words) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Whether a process catches SIGUSR1; others would die of it.
fn handles_usr1(pid: u32) -> Result<bool> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(Path::new(&path)).with_context(|| format!("read {path}"))?;
    let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1; SIGUSR1 is 10. A thread that waits for it shows in SigBlk instead.
    let blocked = text.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    Ok((mask.unwrap_or(0) | blocked.unwrap_or(0)) >> 9 & 1 == 1)
}

fn find(table: &str, words: &[&str]) -> Option<u64> {
    let row = table.lines().find(|line| words.iter().all(|word| line.contains(word)))?;
    row.split(|c: char| c.is_whitespace() || c == '|').find_map(|cell| {
        let digits: String = cell.chars().filter(|c| !",'".contains(*c)).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_in_a_table() {
        let table =
            "name            count  unit\nhit               12\nwrite_new_dirty  8,192  blocks";
        assert_eq!(find(table, &["new", "dirty"]), Some(8192));
        assert_eq!(find(table, &["ghost"]), None);
    }
}
