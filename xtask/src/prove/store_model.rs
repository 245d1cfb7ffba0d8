//! Store models with rates, against a throttled disk: the same trace through a server and through
//! the simulation of the whole cache, with 1, 8 and 32 requests in flight.
//!
//! The disk is a loop device with a limit of reads and one of writes in the root cgroup. One model
//! has these limits, the other one is fitted to a measurement of the device. A measurement reads
//! only, so the fitted model is compared over a trace of reads. The limits are far below the speed
//! of the device. One request at a time also takes the time of the device and of the processes, so
//! that claim is skipped on a machine so busy that the replay takes long without a limit, too.

use super::prelude::*;
use super::same_cache::{Case, replay_to_server, simulate};
use crate::disk::Disk;
use crate::record::Record;

/// The maximum difference between the predicted and the measured time of the run.
const APART_MAX: f64 = 0.1;
/// The maximum share of the predicted time that the replay at depth 1 takes without a limit.
const OWN_MAX: f64 = 0.1;
const DEPTHS: [u32; 3] = [1, 8, 32];
/// The memory of the cache: each client of a simulation needs 1 MiB of it.
const MEMORY: &str = "48MiB";
/// Pages of the trace: five times the cache.
const PAGES: u64 = 60_000;

/// A workload on a disk with a limit.
struct Workload {
    name: &'static str,
    /// Reads, and writes, per second that the disk completes.
    per_s: u32,
    requests: u64,
    writes: &'static str,
    write_mode: &'static str,
    is_fitted: bool,
}

const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "reads",
        per_s: 100,
        requests: 2_500,
        writes: "0%",
        write_mode: "write-back",
        is_fitted: true,
    },
    Workload {
        name: "mixed",
        per_s: 50,
        requests: 1_500,
        writes: "30%",
        write_mode: "write-through",
        is_fitted: false,
    },
];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    let image = image::create_filled(&env.file("store-model.img"), 256, env.options.seed)?;
    let disk = Disk::attach(&image)?;
    let settings = json!({ "memory": MEMORY, "pages": PAGES });
    let mut record = Record::new(&env.root, "store models with rates", &[], &settings)?;
    for workload in WORKLOADS {
        compare(env, &disk, &workload, (claims, &mut record))?;
    }
    let numbers = disk.numbers.clone();
    drop(disk);
    claims.check("afterwards: no limit", || {
        ensure!(!Disk::is_limited(&numbers)?, "{numbers} still has a limit");
        Ok("as before".into())
    });
    if !env.options.quick {
        outln!("   recorded in {}", record.write("store-model")?);
    }
    Ok(())
}

fn compare(
    env: &Env,
    disk: &Disk,
    workload: &Workload,
    (claims, record): (&mut Claims, &mut Record),
) -> Result<()> {
    let &Workload { name, per_s, writes, write_mode, is_fitted, .. } = workload;
    let requests = (workload.requests / env.choose(1, 5)).to_string();
    let (larder, trace) = (&env.larder, env.file(&format!("{name}.ltr")));
    let (pages, seed) = (PAGES.to_string(), env.options.seed.to_string());
    let shape = ["--requests", &requests, "--pages", &pages, "--writes", writes, "--seed", &seed];
    stdout_of(cmd!("{larder} trace synth zipf {trace} {shape...}"))?;
    let case = Case { name, trace, image: disk.path().to_path_buf(), image_bytes: 256 * MIB };
    let options = format!("--policy lru --write-mode {write_mode}");
    let replay = |depth: u32| {
        let line = format!("--memory {MEMORY} {options}");
        let connections = ["--connections", &depth.to_string()];
        replay_to_server(env, (&case, disk.path()), &line, &connections)
    };
    disk.limit(0)?;
    let own = replay(1)?.duration_ns / 1e9;
    record.series(&format!("{name} at depth 1 without a limit, measured"), "s", &[own], 3);
    disk.limit(per_s)?;
    // The kernel's throttle grants the operations of 100 ms together.
    let mut models = vec![("limits", format!("read-iops:{per_s},write-iops:{per_s},slice:100ms"))];
    if is_fitted {
        let store = format!("measure:{}", disk.path().display());
        let options = format!("--level whole --policy lru --store {store}");
        let row = simulate(env, &case, PAGES, &options)?;
        models.push(("fitted", row["store"].as_str().context("no store")?.to_owned()));
    }
    for depth in DEPTHS {
        let served = replay(depth)?;
        let measured = served.duration_ns / 1e9;
        record.series(&format!("{name} at depth {depth}, measured"), "s", &[measured], 3);
        for (kind, store) in &models {
            let whole = format!("--level whole --read-ahead off --clients {depth} {options}");
            let row = simulate(env, &case, served.pages, &format!("{whole} --store {store}"))?;
            let predicted = number(&row, "elapsed_ns")? / 1e9;
            let series = format!("{name} at depth {depth}, predicted, {kind}");
            record.series(&series, "s", &[predicted], 3);
            let apart = predicted / measured - 1.0;
            let statement = format!("{name}, depth {depth}: the time by {store} within 10 %");
            if depth == 1 && own > OWN_MAX * predicted {
                claims.skip(statement, format!("without a limit the replay takes {own:.2} s"));
                continue;
            }
            claims.add_with_peer(
                statement,
                format!("{predicted:.2} s ({:+.1} %)", 100.0 * apart),
                format!("measured: {measured:.2} s"),
                apart.abs() <= APART_MAX,
            );
        }
    }
    Ok(())
}
