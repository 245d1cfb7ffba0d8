//! The advised allocation unit, against all units for more of the traffic.

use super::super::prelude::*;
use super::confusion::Confusion;
use super::{ADVICE, COMPARISON, SLOWER_MAX, advice};
use std::ffi::OsString;

/// Share of the space that a unit may leave unused.
const UNUSED_MAX: f64 = 0.1;
/// Name of a directory, and the length of each file by a random number from 0 to 1.
type Files = (&'static str, fn(f64) -> f64);
const FILES: [Files; 3] = [
    ("small files", |share| 1_000.0 * 40_f64.powf(share)),
    ("files of all sizes", |share| 2_000.0 * 10_000_f64.powf(share)),
    ("large files", |share| 4e6 * 20_f64.powf(share)),
];
const FILES_NUMBER: usize = 2_000;
/// Seed of the lengths.
const SEED: u64 = 1;

/// Makes the directories of files without content, and returns their names.
pub(super) fn directories(env: &Env) -> Result<Vec<(&'static str, PathBuf)>> {
    let make = |(number, (name, length)): (usize, Files)| {
        let directory = env.file(&format!("files{number}"));
        std::fs::create_dir(&directory).context("make a directory")?;
        let mut random = Rng::with_seed(SEED);
        for file in 0..FILES_NUMBER {
            let file = std::fs::File::create(directory.join(file.to_string()))?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a length"
            )]
            file.set_len(length(random.f64()) as u64)?;
        }
        Ok((name, directory))
    };
    FILES.into_iter().enumerate().map(make).collect()
}

/// Compares the advised unit for a trace and files with all units.
pub(super) fn check(
    env: &Env,
    claims: &mut Claims,
    (name, trace): (&str, &Path),
    (files, directory): &(&str, PathBuf),
    confusion: &mut Confusion,
) -> Result<()> {
    let of = |requests: &str| {
        let options = ["--disk", "disk", "--requests", requests, "--files"].map(OsString::from);
        advice(env, trace, options.into_iter().chain([directory.into()]))
    };
    let (advised, compared) = (of(ADVICE)?, of(COMPARISON)?);
    let index = usize::try_from(advised["advised_unit"].as_u64().context("no unit")?)?;
    let rows = compared["units"].as_array().context("no units")?;
    let (mut best, mut best_rate) = (&rows[0], 0.0);
    for row in rows {
        let rate = number(row, "requests_per_s")?;
        if number(row, "unused_share")? <= UNUSED_MAX && rate > best_rate {
            (best, best_rate) = (row, rate);
        }
    }
    let unit =
        |row: &Value| number(row, "unit_bytes").map(|bytes| format!("{} KiB", bytes / 1024.0));
    let own = rows.get(index).context("no such unit")?;
    let unused = number(own, "unused_share")?;
    let is_smallest = best_rate == 0.0 && index == 0;
    let slower = if is_smallest { 0.0 } else { 1.0 - number(own, "requests_per_s")? / best_rate };
    confusion.add(&unit(best)?, &unit(own)?);
    claims.add_with_peer(
        format!("{name}, {files}: the advised unit is the best or within 5 %, with its waste"),
        format!("{}, {:.1} % slower, {:.1} % unused", unit(own)?, 100.0 * slower, 100.0 * unused),
        format!("best: {}, {best_rate:.0} requests/s", unit(best)?),
        is_smallest || (slower <= SLOWER_MAX && unused <= UNUSED_MAX),
    );
    Ok(())
}
