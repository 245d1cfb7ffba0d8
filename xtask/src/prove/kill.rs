//! kill -9 under load: every write before the last acknowledged flush is in the image.
//!
//! `larder load` logs each request before it is sent and each answer after it is received; with
//! `--check` it reads the image without the cache. The image is new in each round, smaller than
//! what is written and larger than the cache.

use super::changes::Changes;
use super::prelude::*;
use crate::daemon::Daemon;

/// The load runs at least and at most so long before the kill.
const LOAD_MS: (u64, u64) = (300, 1500);
/// Interval between changes of settings, in every second round.
const PAUSE: Duration = Duration::from_millis(20);
/// Memory sizes that are set.
const MEMORY: [&str; 3] = ["8MiB", "16MiB", "64MiB"];
/// The settings that take turns; the cache is a quarter of the image.
const OPTIONS: [&str; 4] = [
    "--memory 16MiB --write-mode back",
    "--memory 16MiB --write-mode back --page-size 64KiB",
    "--memory 128MiB --write-mode back",
    "--memory 16MiB --write-mode through",
];
const IMAGE_MIB: u64 = 64;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let rounds: usize = env.either(100, 3);
    let mut random = Rng::with_seed(env.options.seed);
    let (mut promised, mut changes, mut broken) = (0, 0, 0);
    for number in 0..rounds {
        let options = OPTIONS[number / 2 % OPTIONS.len()];
        match round(env, options, number % 2 == 1, &mut random) {
            Ok((writes, settings)) => {
                (promised, changes) = (promised + writes, changes + settings);
            }
            Err(error) => {
                say!("round {number} ({options}): {error:#}");
                broken += 1;
            }
        }
        if number % 10 == 9 {
            say!("   {} rounds, {promised} writes promised", number + 1);
        }
    }
    claims.add(
        format!("{rounds} rounds of kill -9 under load, 4 connections"),
        format!(
            "{promised} writes promised, {changes} changes of settings meanwhile, {broken} rounds \
             broken"
        ),
        // In the short form the first change may not be over when the only such round ends.
        broken == 0 && promised > 0 && (env.options.quick || changes > 0),
    );
    Ok(())
}

/// Runs one round, in which settings change if `is_changing`. Returns how many writes were
/// promised, and how many changes were made.
fn round(env: &Env, options: &str, is_changing: bool, random: &mut Rng) -> Result<(u64, usize)> {
    let (larder, seed) = (&env.larder, random.u64(..));
    let image = image::sparse(&env.file("image"), IMAGE_MIB * MIB)?;
    let (log, server) = (env.file("log"), env.serve(&image, options)?);
    let (uri, number) = (server.uri(), seed.to_string());
    let load = Daemon::start("larder load", env.dir(), |_| {
        cmd!("{larder} load --connections 4 --seed {number} --uri {uri} --log {log}")
    })?;
    let changes = is_changing.then(|| Changes::begin(env, &server, &MEMORY, PAUSE, seed, None));
    std::thread::sleep(Duration::from_millis(random.u64(LOAD_MS.0..LOAD_MS.1)));
    server.kill()?;
    let changes = changes.map_or(0, |changes| changes.end().0);
    // The load ends by itself when the server is gone.
    let ended = load.wait(Duration::from_mins(1))?;
    ensure!(ended.code == Some(0), "larder load: {:?}\n{}", ended.code, run::tail(&ended.stderr));
    let out = text(cmd!(60, "{larder} load --check {image} --log {log}"))?;
    let line = out.lines().last().unwrap_or_default();
    let (writes, rest) = line.split_once(" writes promised, ").context("no last line")?;
    ensure!(rest == "0 missing", "{line}");
    std::fs::remove_file(&log).context("remove the log")?;
    Ok((writes.parse().with_context(|| format!("no number in '{line}'"))?, changes))
}
