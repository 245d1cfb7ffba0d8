//! kill -9 under load: no write before the last acknowledged flush is lost. Over NBD, through a
//! mount, and on ext4 on a volume; the rounds accumulate in bench-runs/hardening.json.
//!
//! `larder load` logs each request before it is sent and each reply after it is received; with
//! `--check` it reads the image without the cache. The image is new in each round, smaller than the
//! written data and larger than the cache. Through mounts and on volumes files are written and
//! fsynced, and read without the cache, or through a new server.

use super::changes::Changes;
use super::fuse_volume;
use super::mount::fuse::{FuseMount, Program};
use super::prelude::*;
use crate::daemon::Daemon;
use crate::disk::Kind;
use crate::ledger::{self, Ledger, SeedResults};

/// The number of rounds to accumulate on the same code.
const GOAL: u64 = 1000;
/// The number of rounds after which the ledger is written; also the kills of one image of a volume.
const BATCH: u64 = 5;
/// The minimum and maximum time of the load before the kill.
const LOAD_MS: (u64, u64) = (300, 1500);
/// The interval between changes of settings, in every second round.
const PAUSE: Duration = Duration::from_millis(20);
/// The memory sizes to set.
const MEMORY: [&str; 3] = ["8MiB", "16MiB", "64MiB"];
/// The settings of the rounds, in turn; the cache is a quarter of the image.
const OPTIONS: [&str; 4] = [
    "--memory 16MiB --write-mode back",
    "--memory 16MiB --write-mode back --page-size 64KiB",
    "--memory 128MiB --write-mode back",
    "--memory 16MiB --write-mode through",
];
const IMAGE_MIB: u64 = 64;

/// Settings of mounts, in turn; with the last one only fsync causes writeback.
const MOUNTS: [Program; 4] = [
    mount("LARDER mount --control none --memory 16MiB"),
    mount("LARDER mount --control none --memory 16MiB --page-size 64KiB"),
    mount("LARDER mount --control none --memory 16MiB --write-mode through"),
    mount(
        "LARDER mount --control none --memory 64MiB --set first-delay=60000 --set idle-delay=60000 \
         --set age-max=600000",
    ),
];

const fn mount(line: &'static str) -> Program {
    Program { name: "larder", line }
}

/// The killed command, and the number of rounds of one run in the long and in the short form.
struct KillTarget {
    variant: &'static str,
    statement: &'static str,
    rounds: [u64; 2],
    unmet_requirement: fn() -> Option<String>,
    batch: fn(&Env, u64, u64) -> Result<SeedResults>,
}

const TARGETS: [KillTarget; 3] = [
    KillTarget {
        variant: "nbd",
        statement: "over NBD, 4 connections",
        rounds: [100, 3],
        unmet_requirement: || None,
        batch: |env, first, count| run_rounds(first, count, |number| nbd_round(env, number)),
    },
    KillTarget {
        variant: "mount",
        statement: "larder mount, fsynced files of 4 threads",
        rounds: [100, 2],
        unmet_requirement: || run::unmet_requirement(&["umount"]),
        batch: |env, first, count| run_rounds(first, count, |number| mount_round(env, number)),
    },
    KillTarget {
        variant: "volume-ext4",
        statement: "ext4 on a volume, fsynced files of 4 threads",
        rounds: [50, 1],
        unmet_requirement: || run::unmet_requirement(&["losetup", "mkfs.ext4"]),
        batch: |env, first, count| {
            let mut kills = Some(fuse_volume::kills(env, Kind::Ext4, count, seed_of(env, first)));
            run_rounds(first, count, |_| Ok((kills.take().unwrap_or(Ok(0))?, 0)))
        },
    },
];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let code = ledger::code_hash(&env.root, env.options.binary.as_deref())?;
    let mut ledger = Ledger::open(&env.root, "hardening")?;
    let (mut total, mut earlier, mut broken) = (0, 0, 0);
    for target in &TARGETS {
        let statement = format!("kill -9 under load, {}", target.statement);
        if let Some(reason) = (target.unmet_requirement)() {
            claims.skip(statement, reason);
            continue;
        }
        let outcome = accumulate(env, target, &mut ledger, &code)?;
        let (rounds, promised) = (outcome.count("executions"), outcome.count("promised"));
        total += rounds;
        earlier += outcome.earlier;
        broken += outcome.failed.len();
        claims.add(
            statement,
            format!(
                "{rounds} rounds, {promised} writes or files promised, {} changes of settings \
                 meanwhile, {} rounds broken",
                outcome.count("changes"),
                outcome.failed.len()
            ),
            outcome.failed.is_empty() && promised > 0,
        );
    }
    if !env.options.quick {
        let statement = format!("rounds on this code, of {GOAL}, without a loss of flushed data");
        let figure =
            format!("{total} ({broken} broken), {earlier} on earlier code; can be repeated");
        claims.add(statement, figure, broken == 0);
    }
    Ok(())
}

/// Runs the next rounds; returns the results of all rounds on this code.
fn accumulate(
    env: &Env,
    target: &KillTarget,
    ledger: &mut Ledger,
    code: &str,
) -> Result<SeedResults> {
    let key = ["kill", target.variant, code];
    let [long, quick] = target.rounds;
    if env.options.quick {
        return (target.batch)(env, 0, quick);
    }
    let first = ledger.next_seed(key);
    for first in (first..first + long).step_by(usize::try_from(BATCH)?) {
        let outcome = (target.batch)(env, first, BATCH)?;
        ledger.add(key, first..first + BATCH, &outcome)?;
    }
    ledger.outcome(key).context("no round was run")
}

/// Returns the results of rounds, each of which returns the numbers of acknowledged writes and of
/// changes of settings.
fn run_rounds(
    first: u64,
    count: u64,
    mut round: impl FnMut(u64) -> Result<(u64, u64)>,
) -> Result<SeedResults> {
    let mut outcome = SeedResults::default();
    for number in first..first + count {
        outcome.add_count("executions", 1);
        match round(number) {
            Ok((promised, changes)) => {
                outcome.add_count("passed", 1);
                outcome.add_count("promised", promised);
                outcome.add_count("changes", changes);
            }
            Err(error) => {
                outln!("round {number}: {error:#}");
                outcome.failed.insert(format!("round-{number}"), format!("{error:#}").into());
            }
        }
    }
    Ok(outcome)
}

fn seed_of(env: &Env, number: u64) -> u64 {
    Rng::with_seed(env.options.seed ^ (number << 32)).u64(..)
}

/// Runs one round on a mounted directory: fsynced data must be in SOURCE.
fn mount_round(env: &Env, number: u64) -> Result<(u64, u64)> {
    let seed = seed_of(env, number);
    let source = tempfile::tempdir_in(env.dir()).context("make a source")?;
    let program = MOUNTS[usize::try_from(number)? % MOUNTS.len()];
    let mount = FuseMount::start(env, program, source.path())?;
    let dir = mount.point.join("files");
    std::fs::create_dir(&dir).context("make a directory")?;
    let ((), kept) = fuse_volume::write_until_kill(&dir, seed, || mount.kill())?;
    fuse_volume::check_files(&source.path().join("files"), seed, &kept)
        .with_context(|| program.line)?;
    Ok((kept.iter().sum(), 0))
}

/// Runs one round over NBD; in every second round settings change continuously.
fn nbd_round(env: &Env, number: u64) -> Result<(u64, u64)> {
    let options = OPTIONS[usize::try_from(number / 2)? % OPTIONS.len()];
    let is_changing = number % 2 == 1;
    let mut random = Rng::with_seed(seed_of(env, number));
    let (larder, seed) = (&env.larder, random.u64(..));
    let image = image::create_sparse(&env.file("image"), IMAGE_MIB * MIB)?;
    let (log, server) = (env.file("log"), env.serve(&image, options)?);
    let (uri, number) = (server.uri(), seed.to_string());
    let load = Daemon::start("larder load", env.dir(), |_| {
        cmd!("{larder} load --connections 4 --seed {number} --uri {uri} --log {log}")
    })?;
    let changes = is_changing.then(|| Changes::begin(env, &server, &MEMORY, PAUSE, seed, None));
    std::thread::sleep(Duration::from_millis(random.u64(LOAD_MS.0..LOAD_MS.1)));
    server.kill()?;
    let changes = changes.map_or(0, |changes| changes.end().0);
    // The load ends when the server has ended.
    let ended = load.wait(Duration::from_mins(1))?;
    ensure!(ended.code == Some(0), "larder load: {:?}\n{}", ended.code, run::tail(&ended.stderr));
    let out = stdout_of(cmd!(60, "{larder} load --check {image} --log {log}"))?;
    let line = out.lines().last().unwrap_or_default();
    let (writes, rest) = line.split_once(" writes promised, ").context("no last line")?;
    ensure!(rest == "0 missing", "{options}: {line}");
    std::fs::remove_file(&log).context("remove the log")?;
    let writes = writes.parse().with_context(|| format!("no number in '{line}'"))?;
    Ok((writes, u64::try_from(changes)?))
}
