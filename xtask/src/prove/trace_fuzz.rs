//! Traces that are wrong: mutated inputs of every format through every reader, and random records
//! through every writer and back.

use std::time::Duration;

use anyhow::Result;

use super::{Claims, Lab};
use crate::run;

/// Runs the fuzzing, which is a test of larder-lab that goes on for as long as it is told.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let long = lab.either(Duration::from_hours(1), Duration::from_secs(5));
    let seconds = lab.options.fuzz.unwrap_or(long).as_secs();
    let mut cargo = run::cargo(&lab.root);
    cargo.args(["test", "--release", "--package", "larder-lab", "--test", "trace", "fuzz"]);
    cargo.args(["--", "--nocapture"]);
    cargo.env("LARDER_FUZZ_SECONDS", seconds.to_string());
    cargo.env("LARDER_SEED", lab.options.seed.to_string());
    let figure = figure(&run::text(&mut cargo)?)?;
    claims.add(format!("mutated traces for {seconds} s, seed {}", lab.options.seed), figure, true);
    Ok(())
}

/// What the test says that it did.
fn figure(out: &str) -> Result<String> {
    let done = out.lines().find_map(|line| line.trim().strip_prefix("fuzzed: "));
    done.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no fuzzing took place:\n{out}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_fuzzing_proves_nothing() {
        assert!(figure("running 0 tests\ntest result: ok. 0 passed").is_err());
        assert_eq!(figure("fuzzed: 17 inputs\n").unwrap(), "17 inputs");
    }
}
