//! kill -9 under load: every write before the last acknowledged flush is in the image.
//!
//! What this needs of the product is one hidden subcommand in two forms:
//!
//! * `larder load --uri URI --seed N --connections 4 --log FILE` opens that many connections to one
//!   export and drives random writes of mixed length, reads and flushes from the seed until a
//!   connection breaks, which is its expected end: exit code 0. Each write carries what identifies
//!   it. FILE gets what is needed to know, for every block, the write that the last acknowledged
//!   flush covers and the writes sent after it (a write acknowledged on any connection before a
//!   flush was sent is covered by that flush). A record is in FILE, handed to the kernel, before
//!   the request it announces is sent, or after the answer it reports has come.
//! * `larder load --check IMAGE --log FILE` reads the image without the cache and prints one line
//!   `N writes promised, M missing` as its last; exit code 0 if none is missing, else 1. A block
//!   may hold what was promised or anything written to it later, whole.
//!
//! The image is new in each round, smaller than what is written and larger than the cache.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::unrest::Unrest;
use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::random::Random;
use crate::run;

/// The load runs at least and at most so long before the kill.
const LOAD_MS: (u64, u64) = (300, 1500);

/// Between two changes of settings, in the rounds that have them: every second one.
const PAUSE: Duration = Duration::from_millis(20);

/// What the memory changes to.
const MEMORY: [&str; 3] = ["8MiB", "16MiB", "64MiB"];

/// The settings that take turns; the cache is a quarter of the image.
const OPTIONS: [&str; 4] = [
    "--memory 16MiB --write-mode back",
    "--memory 16MiB --write-mode back --page-size 64KiB",
    "--memory 128MiB --write-mode back",
    "--memory 16MiB --write-mode through",
];

const IMAGE_MIB: u64 = 64;

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    std::fs::create_dir(lab.file("kill")).context("make a directory")?;
    let rounds: usize = lab.either(100, 3);
    let mut random = Random::seeded(lab.options.seed);
    let (mut promised, mut changes) = (0, 0);
    let mut broken = Vec::new();
    for number in 0..rounds {
        let options = OPTIONS[number / 2 % OPTIONS.len()];
        match round(lab, options, number % 2 == 1, &mut random) {
            Ok(round) => {
                promised += round.promised;
                changes += round.changes;
            }
            Err(error) => {
                println!("round {number} ({options}): {error:#}");
                broken.push(number);
            }
        }
        if number % 10 == 9 {
            println!("   {} rounds, {promised} writes promised", number + 1);
        }
    }
    claims.add(
        format!("{rounds} rounds of kill -9 under load, 4 connections"),
        format!(
            "{promised} writes promised, {changes} changes of settings meanwhile, {} rounds broken",
            broken.len()
        ),
        // In the short form the first change may not be over when the only such round ends.
        broken.is_empty() && promised > 0 && (lab.options.quick || changes > 0),
    );
    Ok(())
}

/// What a round has seen.
struct Round {
    /// Writes that had been promised.
    promised: u64,
    /// Changes of settings until the kill.
    changes: usize,
}

/// One round, in which settings may change all the time.
fn round(lab: &Lab, options: &str, changing: bool, random: &mut Random) -> Result<Round> {
    let seed = random.next();
    let image = image::sparse(&lab.file("kill/image"), IMAGE_MIB * MIB)?;
    let log = lab.file("kill/log");
    let server = lab.serve(&image, options)?;
    let mut load = run::client(60, &lab.binary.to_string_lossy());
    load.args(["load", "--connections", "4", "--seed", &seed.to_string()]);
    load.args(["--uri", &server.uri(), "--log"]).arg(&log);
    let load = load.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let load = load.spawn().context("start the load")?;
    let unrest = changing.then(|| Unrest::begin(&lab.binary, &server, &MEMORY, PAUSE, seed, None));
    let span = random.next() % (LOAD_MS.1 - LOAD_MS.0);
    std::thread::sleep(Duration::from_millis(LOAD_MS.0 + span));
    server.kill()?;
    let changes = unrest.map_or(0, Unrest::end_after_a_kill);
    finish(load)?;
    let promised = check(lab, &image, &log)?;
    std::fs::remove_file(&log).context("remove the log")?;
    Ok(Round { promised, changes })
}

/// The load ends by itself when the server is gone.
fn finish(load: Child) -> Result<()> {
    let out = load.wait_with_output().context("wait for the load")?;
    if !out.status.success() {
        bail!("larder load: {}\n{}", out.status, run::tail(&String::from_utf8_lossy(&out.stderr)));
    }
    Ok(())
}

fn check(lab: &Lab, image: &Path, log: &Path) -> Result<u64> {
    let mut check = run::client(60, &lab.binary.to_string_lossy());
    check.args(["load", "--check"]).arg(image).arg("--log").arg(log);
    let out = run::text(&mut check)?;
    let line = out.lines().last().unwrap_or_default();
    let (writes, rest) = line.split_once(" writes promised, ").context("no last line")?;
    ensure!(rest == "0 missing", "{line}");
    writes.parse().with_context(|| format!("no number in '{line}'"))
}
