//! Proofs that are tests of a crate, run for longer or with more than the test run does.

use super::prelude::*;

/// Runs tests of a package with their output shown; what they printed.
fn tests(env: &Env, package: &str, words: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let mut cargo = run::cargo(&env.root);
    cargo.args(["test", "--release", "--package", package, "--test", "it"]).args(words);
    cargo.env("LARDER_BUDGET", env.either("long", "short"));
    text(cargo.args(["--", "--nocapture"]).envs(variables.iter().copied()))
}

/// The result line of the tests.
fn result(out: &str) -> Option<&str> {
    let last = out.lines().rfind(|line| line.starts_with("test result:"));
    last.and_then(|line| line.split(';').next())
}

/// Many seeds of operations with a crash or a fault at any store call.
pub(super) fn simulation(env: &Env, claims: &mut Claims) -> Result<()> {
    let seeds = env.either("20000", "200");
    let out = tests(env, "larder-core", &["simulation::"], &[("LARDER_SEEDS", seeds)])?;
    say!("{}", run::tail(&out));
    let figure = result(&out);
    let what = format!("{seeds} seeds, and all short sequences");
    claims.add(what, figure.unwrap_or("no result was printed"), figure.is_some());
    Ok(())
}

/// Mutated inputs of every trace format through every reader, and random records through every
/// writer and back.
pub(super) fn trace_fuzz(env: &Env, claims: &mut Claims) -> Result<()> {
    let (seconds, seed) = (env.fuzz_seconds().to_string(), env.options.seed.to_string());
    let variables = [("LARDER_FUZZ_SECONDS", seconds.as_str()), ("LARDER_SEED", &seed)];
    let out = tests(env, "larder-lab", &["trace::fuzz"], &variables)?;
    claims.add(format!("mutated traces for {seconds} s, seed {seed}"), fuzzed(&out)?, true);
    Ok(())
}

/// What the fuzzing test says that it did.
fn fuzzed(out: &str) -> Result<&str> {
    let done = out.lines().find_map(|line| line.trim().strip_prefix("fuzzed: "));
    done.with_context(|| format!("no fuzzing took place:\n{out}"))
}

/// Tests of the program `larder` in their long form; what they say that they have shown.
pub(super) fn shown(env: &Env, words: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let larder = env.larder.to_string_lossy();
    let variables = [variables, &[("LARDER_BINARY", &larder)]].concat();
    let out = tests(env, "larder", words, &variables)?;
    let shown = out.lines().filter_map(|line| Some(line.split_once("shown: ")?.1));
    let shown: Vec<&str> = shown.collect();
    ensure!(!shown.is_empty(), "the tests did not run in their long form:\n{out}");
    Ok(shown.join("; "))
}

/// Three file systems on four schedulers, as read back in each, a chart for each column, and the
/// machine as before, also after `kill -9`.
pub(super) fn matrix(env: &Env, claims: &mut Claims) -> Result<()> {
    let what = "file systems made, measured and removed; the machine as before";
    if !claims.skipped(what, run::missing(&["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"])) {
        let trials = ("LARDER_MATRIX_TRIALS", env.either("6", "2"));
        claims.tried(what, || shown(env, &["matrix::"], &[trials]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_fuzzing_proves_nothing() {
        assert!(fuzzed("running 0 tests\ntest result: ok. 0 passed").is_err());
        assert_eq!(fuzzed("fuzzed: 17 inputs\n").unwrap(), "17 inputs");
    }
}
