//! Everything changes while clients verify what they read: no error, no difference, and no more
//! delay than a change is worth.
//!
//! fio verifies with four connections while memory, page size, policy and write mode change every
//! second and a further volume, used by a client of its own, comes or goes. The same load on an
//! unchanged server comes before and after, for its delays.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::clients::{fio_verify, verified_image};
use super::guest::Guest;
use super::unrest::Unrest;
use super::{Claims, Lab};
use crate::fio::Outcome;
use crate::image::{self, MIB};

/// Between two changes.
const PAUSE: Duration = Duration::from_secs(1);

/// What the memory changes to; the middle one is that of the unchanged server.
const MEMORY: [&str; 5] = ["16MiB", "32MiB", "64MiB", "96MiB", "128MiB"];

const IMAGE_MIB: u64 = 256;

/// At most so many times the delay of an unchanged server, at the 99.9th percentile.
const DELAY_MAX: f64 = 2.0;

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let seconds = lab.either(60, 6);
    let image = image::sparse(&lab.file("live.img"), IMAGE_MIB * MIB)?;
    let before = calm(lab, &image, seconds)?;
    let mut restless_outcome = None;
    let what = "while all settings change and a volume comes or goes every second";
    claims.tried(format!("fio verify for {seconds} s {what}"), || {
        let (outcome, count) = restless(lab, &image, seconds)?;
        restless_outcome = Some(outcome);
        Ok(format!("{count} changes, {} requests, no error, no difference", outcome.requests))
    });
    let after = calm(lab, &image, seconds)?;
    let Some(changed) = restless_outcome else { return Ok(()) };
    let unchanged = before.p999_ms.midpoint(after.p999_ms);
    let ratio = changed.p999_ms / unchanged;
    // The short form runs among tests, where whatever else the machine does may decide.
    let bound = lab.either(
        format!("at most {DELAY_MAX} times that without changes"),
        "beside that without changes (told only)".to_owned(),
    );
    claims.against(
        format!("p99.9 of these requests, {bound}"),
        format!("{:.0} ms, {ratio:.2} times", changed.p999_ms),
        format!("{:.0} and {:.0} ms", before.p999_ms, after.p999_ms),
        lab.options.quick || ratio <= DELAY_MAX,
    );
    std::fs::remove_file(&image).with_context(|| format!("remove {}", image.display()))
}

/// The load on a server whose settings stay.
fn calm(lab: &Lab, image: &Path, seconds: u64) -> Result<Outcome> {
    let server = lab.serve(image, &format!("--memory {}", MEMORY[2]))?;
    let outcome = fio_verify(&server.uri(), IMAGE_MIB, seconds)?;
    server.stop_clean()?;
    Ok(outcome)
}

/// The load on a server whose settings change; and how often they did.
fn restless(lab: &Lab, image: &Path, seconds: u64) -> Result<(Outcome, usize)> {
    let server = lab.serve(image, &format!("--memory {}", MEMORY[2]))?;
    let guest = Some(Guest::new(lab, &server)?);
    let unrest = Unrest::begin(&lab.binary, &server, &MEMORY, PAUSE, lab.options.seed, guest);
    let outcome = fio_verify(&server.uri(), IMAGE_MIB, seconds);
    let changes = unrest.end();
    let (outcome, changes) = (outcome?, changes?);
    let least = lab.either(seconds / 2 + 1, 2);
    ensure!(changes as u64 >= least, "only {changes} changes in {seconds} s");
    verified_image(lab, server, image)?;
    Ok((outcome, changes))
}
