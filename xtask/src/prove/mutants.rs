//! The share of sampled mutations of larder-core that its tests detect.
//!
//! cargo-mutants changes one position of the code at a time, builds it and runs the tests, in a
//! copy of the workspace.

use super::prelude::*;
use crate::nextest;

/// The version of cargo-mutants, which determines the mutations.
const VERSION: &str = "27.1.0";
/// The sample: every 57th mutation of all files, about 100; in the short form every 1000th.
const SAMPLES: [&str; 2] = ["0/57", "0/1000"];
/// The minimum percentage of detected mutations.
const CAUGHT_MIN: usize = 77;
/// The timeout of the tests of one mutation in seconds; a mutation that exceeds it counts as
/// detected.
const TESTS_S_MAX: &str = "300";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    nextest::install()?;
    if capture(run::cargo(&env.root).args(["mutants", "--version"]))?.stdout.trim()
        != format!("cargo-mutants {VERSION}")
    {
        let install = ["install", "--locked", "cargo-mutants", "--version", VERSION];
        run::show(run::cargo(&env.root).args(install))?;
    }
    let mut cargo = run::cargo(&env.root);
    cargo.args(["mutants", "--package", "larder-core", "--test-package", "larder-core"]);
    cargo.args(["--test-tool", "nextest", "--cargo-test-arg=--fail-fast", "--jobs", "1"]);
    cargo.args(["--sharding", "round-robin", "--shard", env.choose(SAMPLES[0], SAMPLES[1])]);
    cargo.args(["--timeout-multiplier", "10", "--minimum-test-timeout", TESTS_S_MAX]);
    cargo.arg("--output").arg(env.dir());
    cargo.env("CARGO_INCREMENTAL", "1");
    cargo.envs([("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_PROFILE_TEST_DEBUG", "0")]);
    // The copy of the workspace; cargo-mutants does not remove it if it is killed.
    cargo.env("TMPDIR", env.dir());
    let out = capture(cargo)?;
    // 2: a mutation was missed; 3: tests took too long. Any other code means incomplete lists.
    let is_complete = matches!(out.code, Some(0 | 2 | 3));
    ensure!(is_complete, "cargo mutants: exit code {:?}\n{}", out.code, run::tail(&out.stderr));
    let listed = |name: &str| {
        let path = env.file("mutants.out").join(name);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("read {}\n{}", path.display(), run::tail(&out.stderr)))?;
        Ok::<_, anyhow::Error>(text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let missed = listed("missed.txt")?;
    for mutation in &missed {
        outln!("   missed: {mutation}");
    }
    let caught = listed("caught.txt")?.len() + listed("timeout.txt")?.len();
    let all = caught + missed.len();
    ensure!(all > 0, "no mutation could be built");
    let share = 100 * caught / all;
    let figure = format!("{caught} of {all}, {share} %");
    claims.add(format!("at least {CAUGHT_MIN} % are caught"), figure, share >= CAUGHT_MIN);
    Ok(())
}
