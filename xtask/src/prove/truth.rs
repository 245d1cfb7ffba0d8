//! Predictions beside measurements: workloads on a server in front of a throttled disk, and the
//! simulation of the same server over the trace of the workload.
//!
//! A workload is a recorded block trace, a pattern of fio, or programs on a file system on the
//! volume. Patterns of fio are recorded once by a server with other settings, and run again for
//! each combination. Programs are recorded by the server that is measured, since their requests
//! differ from run to run. Each combination differs from the base of its workload in one or two
//! settings.
//!
//! fio and replays also have a predicted time. The simulation has the limits of the disk, and the
//! time that clients and server themselves need for the requests, measured without that limit.
//! Requires root.

mod calibration;
mod combination;
mod own_times;
mod program;
mod simulation;
mod workload;

use super::prelude::*;
use crate::disk::Disk;
use crate::record::Record;
use crate::stats::mean_and_max;
use calibration::{Calibration, DEPTHS, DiskImage, PER_S};
use combination::Combination;
use own_times::OwnTimes;
use program::{Compared, Program};
use workload::Workload;

/// The maximum difference of hit ratios in points: on average, and in the worst combination.
const MEAN_POINTS: f64 = 1.0;
const WORST_POINTS: f64 = 3.0;
/// The maximum difference of the bytes that the store reads, and of the time.
const BYTES_APART: f64 = 0.05;
const TIME_APART: f64 = 0.1;
/// The minimum number of combinations.
const COMBINATIONS_MIN: usize = 60;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    require(run::unmet_requirement(&["fio", "postmark", "mkfs.ext4", "sqlite3"]))?;
    let settings = json!({ "per_s": PER_S, "quick": env.options.quick });
    let title = "predictions beside measurements";
    let mut record = Record::new(&env.root, title, &["fio"], &settings)?;
    let calibration = Calibration::measure(env)?;
    let Calibration { byte_ns, transfer } = &calibration;
    outln!("   ns per byte by depth {byte_ns:.3?}; transfer {:.0} MB/s", transfer / 1e6);
    let mut all = Vec::new();
    for workload in workload::all(env)? {
        let compared = compare(env, &workload, &calibration, &mut record);
        let name = workload.name;
        match compared {
            Ok(compared) => all.extend(compared),
            Err(error) => {
                claims.add(format!("{name}: the comparison"), format!("{error:#}"), false);
            }
        }
    }
    ensure!(!all.is_empty(), "no combination was compared");
    judge(env, &all, claims);
    if !env.options.quick {
        outln!("   recorded in {}", record.write("truth")?);
    }
    Ok(())
}

/// Runs all combinations of a workload, and prints a line for each.
fn compare(
    env: &Env,
    workload: &Workload,
    calibration: &Calibration,
    record: &mut Record,
) -> Result<Vec<Compared>> {
    let image = DiskImage::create(workload.image_bytes)?;
    let disk = Disk::attach(&image.path)?;
    disk.limit(PER_S)?;
    let trace = workload.trace(env, &disk)?;
    disk.limit(0)?;
    let summary = workload::TraceSummary::of(env, &trace)?;
    let own_times = OwnTimes::measure(env, (workload, &trace, &summary), &disk, calibration)?;
    disk.limit(PER_S)?;
    let program = Program { workload, trace: &trace, summary, disk: &disk, calibration, own_times };
    let mut all = Vec::new();
    for combination in Combination::of(workload).iter().take(env.choose(usize::MAX, 2)) {
        let compared = program.compare(env, combination)?;
        outln!("   {compared}");
        compared.add_to(record);
        all.push(compared);
    }
    Ok(all)
}

fn judge(env: &Env, all: &[Compared], claims: &mut Claims) {
    let count = all.len();
    let points: Vec<f64> = all.iter().map(Compared::points).collect();
    let (mean, worst) = mean_and_max(&points);
    claims.add(
        format!(
            "hit ratio of {count} combinations: mean {MEAN_POINTS}, worst {WORST_POINTS} points"
        ),
        format!("mean {mean:.2}, worst {worst:.2} points"),
        mean <= MEAN_POINTS && worst <= WORST_POINTS,
    );
    let bytes: Vec<f64> = all.iter().map(Compared::bytes_apart).collect();
    add_shares(claims, "bytes read from the store", &bytes, BYTES_APART);
    for depth in DEPTHS {
        let at = all.iter().filter(|it| it.depth == depth);
        let times: Vec<f64> = at.filter_map(Compared::time_apart).collect();
        if !times.is_empty() {
            add_shares(claims, &format!("time at depth {depth}"), &times, TIME_APART);
        }
    }
    if !env.options.quick {
        claims.add(
            format!("at least {COMBINATIONS_MIN} combinations"),
            count.to_string(),
            count >= COMBINATIONS_MIN,
        );
    }
}

/// Adds a claim that each of these relative differences is at most `max`.
fn add_shares(claims: &mut Claims, what: &str, apart: &[f64], max: f64) {
    let (mean, worst) = mean_and_max(apart);
    let within = apart.iter().filter(|&&it| it <= max).count();
    let percent = 100.0 * max;
    claims.add(
        format!("{what}: within {percent:.0} % in {} combinations", apart.len()),
        format!("{within}; mean {:.1} %, worst {:.1} %", 100.0 * mean, 100.0 * worst),
        worst <= max,
    );
}
