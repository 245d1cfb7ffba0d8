//! `larder advise` finds the bottleneck: six situations are provoked with parameters from a seed,
//! and judged by `--live`, by a record of `larder watch` and by the output of iostat.
//!
//! The disks are modeled ones: `larder model serve` behind nbdfuse and a loop device, so that the
//! kernel counts their queue and response times. The commands know the model of a healthy disk.

pub(super) mod situations;

use situations::{ModeledDisk, SITUATIONS, Situation};

use super::prelude::*;
use crate::daemon::{Daemon, poll_until};
use crate::memory_group::MemoryGroup;
use crate::record::Record;

/// Seeds, each with all situations.
const SEEDS: u64 = 10;
const SEEDS_QUICK: u64 = 2;
/// The minimum share of right answers.
const RIGHT_MIN: f64 = 0.9;
/// Seconds of a measurement.
const SECONDS: u64 = 6;

/// The sources of the counters.
const SOURCES: [&str; 3] = ["--live", "larder watch", "iostat"];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(MemoryGroup::unavailable_reason())?;
    require(run::unmet_requirement(&["nbdfuse", "fio", "iostat", "losetup"]))?;
    let seeds = env.choose(SEEDS, SEEDS_QUICK);
    let settings = json!({ "seeds": seeds, "first seed": env.options.seed, "seconds": SECONDS });
    let statement = "the bottleneck of six provoked situations, by three sources";
    let mut record = Record::new(&env.root, statement, &["fio"], &settings)?;
    let (mut right, mut all) = ([0.0; SOURCES.len()], 0.0);
    for situation in &SITUATIONS {
        let mut of_situation = [const { Vec::new() }; SOURCES.len()];
        for seed in env.options.seed..env.options.seed + seeds {
            let answers = provoke(env, situation, seed)?;
            for (source, answer) in answers.iter().enumerate() {
                let is_right = answer["kind"] == situation.kind;
                of_situation[source].push(if is_right { 1.0 } else { 0.0 });
                if !is_right {
                    let (name, source) = (situation.name, SOURCES[source]);
                    outln!("   {name}, seed {seed}: {source} says {}", answer["verdict"]);
                    outln!("      {}", answer["reasons"]);
                }
            }
        }
        all += to_f64(seeds);
        let sums = of_situation.each_ref().map(|it| it.iter().sum::<f64>());
        for (source, name) in SOURCES.iter().enumerate() {
            right[source] += sums[source];
            let series = format!("{}: right by {name}", situation.name);
            record.series(&series, "answers", &of_situation[source], 0);
        }
        outln!("   {}: right {sums:?} of {seeds}, by {SOURCES:?}", situation.name);
    }
    for (source, name) in SOURCES.iter().take(2).enumerate() {
        let share = right[source] / all;
        let statement = format!("{name}: at least 90 % of the answers are right");
        let figure = format!("{:.0} of {all:.0} ({:.1} %)", right[source], share * 100.0);
        claims.add(statement, figure, share >= RIGHT_MIN);
    }
    let statement = "iostat alone, which counts no processes, waiting tasks and repeated reads";
    outln!("   {statement}: {:.0} of {all:.0}", right[2]);
    if !env.options.quick {
        outln!("   recorded in {}", record.write("bottleneck")?);
    }
    Ok(())
}

/// Provokes a situation; returns the answers by all sources.
fn provoke(env: &Env, situation: &Situation, seed: u64) -> Result<[Value; SOURCES.len()]> {
    let mut rng = Rng::with_seed(seed * 1000 + situation.number);
    let made = (situation.make)(&mut rng);
    let disk = ModeledDisk::start(env, &made.model)?;
    let group = made.memory_mib.map(MemoryGroup::with_limit).transpose()?;
    let mut loads = Vec::new();
    for load in &made.loads {
        let mut command = load.command(disk.path(), seed);
        if let Some(group) = &group {
            command = group.wrap(&command);
        }
        loads.push(Daemon::start("a load", env.dir(), |_| command)?);
    }
    std::thread::sleep(Duration::from_secs(made.warm_up_s));
    let answers = answers(env, &made.healthy)?;
    for load in &mut loads {
        load.check_alive()?;
    }
    drop(loads);
    drop(group);
    disk.stop()?;
    Ok(answers)
}

/// Measures from all sources at the same time.
fn answers(env: &Env, healthy: &str) -> Result<[Value; SOURCES.len()]> {
    let (larder, seconds) = (&env.larder, SECONDS.to_string());
    let time = format!("{seconds}s");
    let record = env.file("watch.json");
    let start = |name: &str, command: Command| Daemon::start(name, env.dir(), |_| command);
    let watch = cmd!("{larder} watch --for {time} -o {record} --json");
    let watch = start("larder watch", watch)?;
    // The first report is that since boot.
    let reports = (SECONDS + 1).to_string();
    let iostat = start("iostat", cmd!("iostat -xk 1 {reports}"))?;
    let live = json_of(cmd!("{larder} advise --live --for {time} --disk {healthy} --json"))?;
    let limit = Duration::from_secs(30);
    let reports = |text: &str| text.matches("avg-cpu").count() as u64;
    poll_until("iostat ends", limit, || Ok(reports(&iostat.stdout()) > SECONDS))?;
    let text = env.file("iostat.txt");
    std::fs::write(&text, iostat.stdout()).context("keep the output of iostat")?;
    watch.wait(limit)?;
    let of_file = |file: &Path| json_of(cmd!("{larder} advise {file} --disk {healthy} --json"));
    Ok([live, of_file(&record)?, of_file(&text)?])
}
