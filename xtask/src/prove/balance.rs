//! `larder balance` on four loop devices of different speed: a recorded mixed load, the plan, its
//! script on the real tree, and the utilization afterwards.
//!
//! The devices have limits of operations in the root cgroup, which is their model. A throttled
//! request waits before it reaches the device, so that the busy time of the device does not show
//! the limit: utilization is the rate of requests divided by the limit, in the prediction as in the
//! measurement. The load has constant rates, so that it is the same before and after the moves.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, OFlags, fadvise};

use super::prelude::*;
use super::{long_tests, watch};
use crate::disk::{Disk, FileSystem, Kind};
use crate::record::Record;

/// The maximum relative difference between the predicted and the measured utilization.
const APART_MAX: f64 = 0.1;
const PAGE_BYTES: u64 = 4096;
/// Pages of each file: more than are read while the load runs.
const PAGES: u64 = 12_288;
/// Operations per second of each device, for reads and for writes.
const LIMITS: [u32; 4] = [100, 200, 400, 800];
/// Files: the number of the device, reads and writes per second.
const FILES: [(&str, usize, u32, u32); 7] = [
    ("mail", 0, 30, 0),
    ("it's a \"data base\"", 0, 25, 0),
    ("log\nof lines", 0, 10, 15),
    ("-web", 0, 14, 0),
    ("index", 1, 20, 5),
    ("images", 2, 40, 20),
    ("archive", 3, 80, 0),
];

/// The four disks with their file systems.
struct Disks {
    disks: Vec<Disk>,
    file_systems: Vec<FileSystem>,
}

impl Disks {
    fn make(env: &Env) -> Result<Disks> {
        let (mut disks, mut file_systems) = (Vec::new(), Vec::new());
        for (number, limit) in LIMITS.iter().enumerate() {
            let directory = env.file(&format!("disk{number}"));
            std::fs::create_dir_all(&directory).context("make a directory")?;
            let image = image::create_sparse(&directory.join("balance.img"), 512 * MIB)?;
            let disk = Disk::attach(&image)?;
            let file_system = FileSystem::on(&directory, disk.path(), Kind::Ext4)?;
            file_system.make()?;
            file_system.mount()?;
            for (name, ..) in FILES.iter().filter(|file| file.1 == number) {
                image::create_filled(
                    &file_system.point().join(name),
                    PAGES * PAGE_BYTES / MIB,
                    env.options.seed,
                )?;
            }
            disk.limit(*limit)?;
            disks.push(disk);
            file_systems.push(file_system);
        }
        Ok(Disks { disks, file_systems })
    }

    fn file(&self, index: usize) -> PathBuf {
        self.file_systems[FILES[index].1].point().join(FILES[index].0)
    }

    fn name(&self, disk: usize) -> String {
        let name = self.disks[disk].path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Makes accesses at a constant rate to random pages, each once, until the end.
fn access(path: &Path, per_s: u32, is_write: bool, seed: u64, end: &AtomicBool) -> Result<()> {
    let mut options = File::options();
    options.read(true).write(is_write);
    if is_write {
        options.custom_flags(OFlags::DSYNC.bits().cast_signed());
    }
    let file = options.open(path).with_context(|| format!("open {}", path.display()))?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut pages: Vec<u64> = (0..PAGES).filter(|page| page % 2 == u64::from(is_write)).collect();
    Rng::with_seed(seed).shuffle(&mut pages);
    let (mut buffer, begun) = ([0; 4096], Instant::now());
    for (number, page) in (0_u32..).zip(pages) {
        let at = begun + Duration::from_secs(1) * number / per_s;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if end.load(Ordering::Relaxed) {
            return Ok(());
        }
        if is_write {
            file.write_all_at(&buffer, page * PAGE_BYTES)?;
        } else {
            file.read_exact_at(&mut buffer, page * PAGE_BYTES)?;
        }
    }
    bail!("{} has too few pages for the load", path.display())
}

/// Runs the load under `larder watch`; returns its record.
fn record_load(env: &Env, disks: &Disks, seconds: u64) -> Result<Value> {
    stdout_of(cmd!("sync"))?;
    for index in 0..FILES.len() {
        let file = File::open(disks.file(index)).context("open a file")?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    let watching = watch::watch(env, &[])?;
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, (_, _, reads, writes)) in FILES.iter().enumerate() {
            for (per_s, is_write) in [(*reads, false), (*writes, true)] {
                if per_s > 0 {
                    let (path, end) = (disks.file(index), &end);
                    let seed = env.options.seed + index as u64;
                    threads.push(scope.spawn(move || access(&path, per_s, is_write, seed, end)));
                }
            }
        }
        std::thread::sleep(Duration::from_secs(seconds));
        end.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|it| it.join().expect("the load does not panic"))
    })?;
    watch::result(env, watching)
}

/// Returns the utilization of a disk in a record.
fn utilization(record: &Value, name: &str, limit: u32) -> Result<f64> {
    let total = &record["total"];
    let seconds = number(total, "duration_ns")? / 1e9;
    let disks = total["disks"].as_array().context("the record has no disks")?;
    let Some(disk) = disks.iter().find(|disk| disk["name"] == name) else { return Ok(0.0) };
    let requests = number(disk, "reads")?.max(number(disk, "writes")?);
    Ok(requests / seconds / f64::from(limit))
}

/// Plans the moves from the record of the load before.
fn plan(env: &Env, disks: &Disks, script: &Path) -> Result<Value> {
    let (larder, before) = (&env.larder, env.file("before.json"));
    let models = (0..LIMITS.len()).map(|disk| {
        let (name, limit) = (disks.name(disk), LIMITS[disk]);
        format!("--disk={name}=read-iops:{limit},write-iops:{limit}")
    });
    let points = disks.file_systems.iter().map(|it| it.point().display().to_string());
    let points = points.collect::<Vec<_>>().join(",");
    let (page, models) = (env.file("plan.html"), models.collect::<Vec<_>>());
    let models = &models;
    outln!(
        "{}",
        stdout_of(cmd!(
            "{larder} balance {before} {models...} --to {points} --script {script} -o {page}"
        ))?
    );
    json_of(cmd!("{larder} balance {before} {models...} --to {points} --json"))
}

/// Runs an action of the script.
fn act(env: &Env, script: &Path, action: &str) -> Result<String> {
    let state = env.file("state");
    let mut command = cmd!(300, "bash {script} {action}");
    command.env("LARDER_BALANCE_STATE", state).env("LARDER_BALANCE_INTERVAL", "2");
    let printed = stdout_of(command).with_context(|| format!("run the script: {action}"))?;
    outln!("{printed}");
    Ok(printed)
}

/// Returns the content of all files.
fn contents(disks: &Disks) -> Result<Vec<Vec<u8>>> {
    let read = |index| std::fs::read(disks.file(index)).context("read a file");
    (0..FILES.len()).map(read).collect()
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(Disk::unavailable_reason())?;
    require(missing_program(&["bash", "getfattr", "tar"]))?;
    let statement = "the highest utilization, at most 1.1 times that of exhaustive search";
    let test = "balance::tests::a_plan_is_at_most_a_tenth_worse_than_exhaustive_search";
    claims.check(statement, || {
        let (mut cargo, budget) = (run::cargo(&env.root), env.choose("long", "short"));
        cargo.args(["test", "--release", "--package", "larder-lab", "--lib", test, "--"]);
        let out = stdout_of(cargo.args(["--exact", "--nocapture"]).env("LARDER_BUDGET", budget));
        long_tests::figure(&out?, "shown: ")
    });
    let disks = Disks::make(env)?;
    let seconds = env.choose(60, 15);
    let before = record_load(env, &disks, seconds)?;
    std::fs::write(env.file("before.json"), before.to_string()).context("keep the record")?;
    let script = env.file("plan.sh");
    let planned = plan(env, &disks, &script)?;
    let moves = planned["moves"].as_array().map_or(0, Vec::len);
    let original = contents(&disks)?;
    for action in ["check", "move", "verify"] {
        act(env, &script, action)?;
    }
    claims.check("the moved files have the same bytes", || {
        ensure!(moves > 0 && contents(&disks)? == original, "they differ");
        Ok(format!("{moves} moves"))
    });
    let after = record_load(env, &disks, seconds)?;
    compare(env, claims, &disks, &planned, (&before, &after))?;
    let written = contents(&disks)?;
    act(env, &script, "undo")?;
    claims.check("undo: all files at their places, with what was written meanwhile", || {
        let are_files = (0..FILES.len()).all(|it| !disks.file(it).is_symlink());
        ensure!(are_files && contents(&disks)? == written, "they differ");
        Ok("as before".into())
    });
    for file_system in disks.file_systems {
        file_system.end()?;
    }
    let numbers: Vec<String> = disks.disks.iter().map(|disk| disk.numbers.clone()).collect();
    drop(disks.disks);
    claims.check("afterwards: no limit", || {
        for each in &numbers {
            ensure!(!Disk::is_limited(each)?, "{each} still has a limit");
        }
        Ok("as before".into())
    });
    Ok(())
}

/// Compares the predicted use of each disk with the measured one.
fn compare(
    env: &Env,
    claims: &mut Claims,
    disks: &Disks,
    planned: &Value,
    (before, after): (&Value, &Value),
) -> Result<()> {
    let settings = json!({ "limits": LIMITS, "files": FILES.map(|it| (it.1, it.2, it.3)) });
    let mut record = Record::new(&env.root, "moves planned by larder balance", &[], &settings)?;
    let listed = planned["disks"].as_array().context("the plan has no disks")?;
    let (mut highest, mut lowest) = (0.0_f64, 0.0_f64);
    for (disk, limit) in LIMITS.iter().enumerate() {
        let name = disks.name(disk);
        let of_disk = listed.iter().find(|it| it["name"] == *name);
        let of_disk = of_disk.with_context(|| format!("the plan has no {name}"))?;
        let predicted = number(&of_disk["after"], "utilization")?;
        let measured = utilization(after, &name, *limit)?;
        let was = utilization(before, &name, *limit)?;
        highest = highest.max(measured);
        lowest = lowest.max(was);
        let statement = format!("{limit} operations/s: predicted within 10 % of the measured");
        let apart = predicted / measured - 1.0;
        let percent = |it: f64| format!("{:.1} %", 100.0 * it);
        let figure = format!(
            "before {}, predicted {}, measured {}",
            percent(was),
            percent(predicted),
            percent(measured)
        );
        claims.add(statement, figure, apart.abs() <= APART_MAX);
        for (series, value) in [("before", was), ("predicted", predicted), ("measured", measured)] {
            record.series(&format!("{series}: {limit} operations/s"), "%", &[100.0 * value], 1);
        }
    }
    let figure = format!("{:.1} % before, {:.1} % after", 100.0 * lowest, 100.0 * highest);
    claims.add("the highest utilization is lower than before", figure, highest < lowest);
    if !env.options.quick {
        outln!("   recorded in {}", record.write("balance")?);
    }
    Ok(())
}
