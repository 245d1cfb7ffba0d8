//! Memory of a sweep: many caches in one pass need little more than the caches themselves.
//!
//! What a cache needs is measured from outside: what a simulation of it alone held at its end, less
//! what the same simulation of a cache of one page held. The sum over all caches of a sweep is set
//! beside the most that the sweep ever held. Both are read from `/proc` while the process runs. Its
//! end is the last [`END`] of all looks, and the most that these saw: at the very last one the
//! process may be on its way out. (The peak of a single one says nothing: it comes while the trace
//! is read, when its cache is still empty.)

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Claims, Lab, to_f64};
use crate::image::MIB;
use crate::run;

const POLICIES: [&str; 8] =
    ["lru", "fifo", "sieve", "arc", "s3fifo", "lirs", "wtinylfu", "clock2q+"];
/// Sizes in pages.
const SIZES: [u64; 8] = [50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_500_000];
/// What a sweep may hold: so many times what its caches need, and so much on top.
const TIMES: f64 = 1.5;
const SPARE_BYTES: u64 = 64 * MIB;
/// The end of a simulation: one look in so many.
const END: usize = 8;
/// How often the peak is read.
const LOOK: Duration = Duration::from_millis(2);

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let zipf = lab.file("zipf.ltr");
    let mut synth = Command::new(&lab.binary);
    synth.args(["trace", "synth", "zipf"]).arg(&zipf).args(["--pages", "4000000"]);
    let requests = lab.either("10000000", "500000");
    run::text(synth.args(["--exponent", "0.8", "--requests", requests]))?;
    one(lab, "zipf", &zipf, claims)?;
    let p3 = lab.root.join("../shared/traces/arc_P3.lis.zst");
    if p3.exists() {
        one(lab, "P3", &p3, claims)?;
    } else {
        claims.skip("P3: memory of a sweep", "it is not in ../shared/traces");
    }
    Ok(())
}

fn one(lab: &Lab, name: &str, trace: &Path, claims: &mut Claims) -> Result<()> {
    let sizes = lab.either(&SIZES[..], &SIZES[..2]);
    let policies = lab.either(&POLICIES[..], &POLICIES[..2]);
    let bare = held(lab, trace, "lru", "1p", "1")?.last;
    let mut need = 0;
    for policy in policies {
        for size in sizes {
            let alone = held(lab, trace, policy, &format!("{size}p"), "1")?.last;
            need += alone.saturating_sub(bare);
        }
    }
    let list = sizes.iter().map(|size| format!("{size}p")).collect::<Vec<_>>().join(",");
    let most = held(lab, trace, &policies.join(","), &list, "2")?.most;
    claims.against(
        format!(
            "{name}: a sweep of {} caches holds at most {TIMES} times what they need and {} MiB",
            sizes.len() * policies.len(),
            SPARE_BYTES / MIB
        ),
        format!("{} MiB, {:.2} times", most / MIB, to_f64(most) / to_f64(need.max(1))),
        format!("one by one: {} MiB", need / MIB),
        to_f64(most) <= TIMES * to_f64(need) + to_f64(SPARE_BYTES),
    );
    Ok(())
}

/// What a simulation held resident, in bytes: the most ever, and at its end.
#[derive(Clone, Copy, Debug)]
struct Held {
    most: u64,
    last: u64,
}

fn held(lab: &Lab, trace: &Path, policy: &str, size: &str, threads: &str) -> Result<Held> {
    let mut command = Command::new(&lab.binary);
    command.arg("sim").arg(trace).args(["--policy", policy, "--size", size]);
    command.args(["--page-size", "4KiB", "--format", "csv", "--threads", threads]);
    let mut child = command.stdout(Stdio::null()).spawn().context("start larder sim")?;
    let status = format!("/proc/{}/status", child.id());
    let (mut most, mut looks) = (0, Vec::new());
    let ended = loop {
        // A process that has just ended has no memory left to tell of.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        if let Some([peak, now]) = resident(&text) {
            most = most.max(peak);
            looks.push(now);
        }
        if let Some(ended) = child.try_wait().context("wait for larder sim")? {
            break ended;
        }
        std::thread::sleep(LOOK);
    };
    ensure!(ended.success(), "larder sim --policy {policy} --size {size}: {ended}");
    ensure!(most > 0, "read VmHWM in {status}: the simulation ended too soon");
    let end = looks.len() - looks.len().div_ceil(END);
    let last = looks[end..].iter().copied().max().unwrap_or(0);
    Ok(Held { most, last })
}

/// The most ever and now.
fn resident(status: &str) -> Option<[u64; 2]> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some([field("VmHWM:")?, field("VmRSS:")?])
}
