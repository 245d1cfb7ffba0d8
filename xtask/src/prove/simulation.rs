//! The promise, simulated: many seeds of operations with a crash or a fault at any store call.

use anyhow::Result;

use super::{Claims, Lab};
use crate::run;

/// Runs the proof; the test itself says what it did.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let seeds = lab.either("20000", "200");
    let mut cargo = run::cargo(&lab.root);
    cargo.args(["test", "--release", "--package", "larder-core", "--test", "simulation"]);
    cargo.args(["--", "--nocapture"]).env("LARDER_SEEDS", seeds);
    let out = run::text(&mut cargo)?;
    println!("{}", run::tail(&out));
    let last = out.lines().rfind(|line| line.starts_with("test result:"));
    let figure = last.and_then(|line| line.split(';').next()).unwrap_or("no result was printed");
    claims.add(format!("{seeds} seeds, and all short sequences"), figure, last.is_some());
    Ok(())
}
