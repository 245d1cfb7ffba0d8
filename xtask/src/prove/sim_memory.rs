//! Memory of a sweep: many caches in one pass need little more than the caches themselves.
//!
//! The need of a cache is the memory of a separate simulation of it at its end, minus that of a
//! cache of one page. The end is the last [`END`] of all samples of `/proc`: at the very last
//! sample the process may already be exiting, and the peak occurs while the trace is read.

use std::process::Stdio;

use super::prelude::*;
use crate::server::kib_field;

const POLICIES: [&str; 8] =
    ["lru", "fifo", "sieve", "arc", "s3fifo", "lirs", "wtinylfu", "clock2q+"];
/// The sizes in pages.
const SIZES: [&str; 8] =
    ["50000p", "100000p", "200000p", "400000p", "600000p", "800000p", "1000000p", "1500000p"];
/// The memory limit of a sweep: the need of its caches times this factor, plus this many bytes.
const TIMES: f64 = 1.5;
const SPARE_BYTES: u64 = 64 * MIB;
/// The end of a simulation: the last one of this many parts of all samples.
const END: usize = 8;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let (larder, zipf) = (&env.larder, env.file("zipf.ltr"));
    let (synth, requests) = (["trace", "synth", "zipf"], env.choose("10000000", "500000"));
    let arguments = ["--pages", "4000000", "--exponent", "0.8"];
    stdout_of(cmd!("{larder} {synth...} {zipf} {arguments...} --requests {requests}"))?;
    check_sweep(env, "zipf", &zipf, claims)?;
    match env.trace("arc_P3.lis.zst") {
        Some(p3) => check_sweep(env, "P3", &p3, claims)?,
        None => claims.skip("P3: memory of a sweep", "it is not in ../shared/traces"),
    }
    Ok(())
}

fn check_sweep(env: &Env, name: &str, trace: &Path, claims: &mut Claims) -> Result<()> {
    let count = env.choose(SIZES.len(), 2);
    let (sizes, policies) = (&SIZES[..count], &POLICIES[..count]);
    let (_, bare) = resident_bytes(env, trace, "lru", "1p", "1")?;
    let mut need = 0;
    for policy in policies {
        for size in sizes {
            need += resident_bytes(env, trace, policy, size, "1")?.1.saturating_sub(bare);
        }
    }
    let (most, _) = resident_bytes(env, trace, &policies.join(","), &sizes.join(","), "2")?;
    let (caches, spare) = (count * count, SPARE_BYTES / MIB);
    claims.add_with_peer(
        format!(
            "{name}: a sweep of {caches} caches holds at most {TIMES} times what they need and \
             {spare} MiB"
        ),
        format!("{} MiB, {:.2} times", most / MIB, to_f64(most) / to_f64(need.max(1))),
        format!("one by one: {} MiB", need / MIB),
        to_f64(most) <= TIMES * to_f64(need) + to_f64(SPARE_BYTES),
    );
    Ok(())
}

/// Returns the resident memory of a simulation in bytes: its peak, and at its end.
fn resident_bytes(
    env: &Env,
    trace: &Path,
    policy: &str,
    size: &str,
    threads: &str,
) -> Result<(u64, u64)> {
    let (larder, arguments) = (&env.larder, "--level replacement --page-size 4KiB --format csv");
    let arguments = arguments.split(' ');
    let sim = ["--policy", policy, "--size", size, "--threads", threads];
    let mut command = cmd!("{larder} sim {trace} {sim...} {arguments...}");
    let mut child = command.stdout(Stdio::null()).spawn().context("start larder sim")?;
    let status = format!("/proc/{}/status", child.id());
    let (mut most, mut samples) = (0, Vec::new());
    let ended = loop {
        // A process that has just ended reports no memory.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        if let (Some(peak), Some(now)) = (kib_field(&text, "VmHWM"), kib_field(&text, "VmRSS")) {
            most = most.max(peak);
            samples.push(now);
        }
        if let Some(ended) = child.try_wait().context("wait for larder sim")? {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    ensure!(ended.success(), "larder sim --policy {policy} --size {size}: {ended}");
    ensure!(most > 0, "read VmHWM in {status}: the simulation ended too soon");
    let end = samples.len() - samples.len().div_ceil(END);
    Ok((most, samples[end..].iter().copied().max().unwrap_or(0)))
}
