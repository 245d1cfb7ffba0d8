//! Proofs that run benchmarks of a crate, or its tests with a long budget.

use super::prelude::*;
use crate::ledger::{self, Ledger, SeedResults};

/// Runs a benchmark, whose claims become those of the proof. `arguments` are its package and the
/// further arguments.
pub(super) fn bench(env: &Env, claims: &mut Claims, of: &str) -> Result<()> {
    let mut cargo = run::cargo(&env.root);
    cargo.args(["bench", "--quiet", "--package"]).args(of.split(' '));
    cargo.args(env.choose(None, Some("--quick")));
    claims.collect(&stdout_of(cargo)?)
}

/// Runs the integration tests of a package that a filter selects; returns their output.
fn tests(env: &Env, package: &str, filter: &str, variables: &[(&str, &str)]) -> Result<String> {
    let mut cargo = run::cargo(&env.root);
    cargo.args(["test", "--release", "--package", package, "--test", "it", filter]);
    cargo.args(["--", "--nocapture", "--test-threads", "1"]).env("LARDER_BINARY", &env.larder);
    cargo.env("LARDER_BUDGET", env.choose("long", "short"));
    stdout_of(cargo.envs(variables.iter().copied()))
}

/// The mark of the line in which libtest reports that all tests passed, including skipped ones.
pub(super) const RESULT: &str = "test result: ";

/// Adds a claim that holds if the tests succeed and print a line with `mark`; the rest of the line
/// is the figure. Skips of the tests become skips of the claim.
pub(super) fn add_test_claim(
    env: &Env,
    claims: &mut Claims,
    statement: &str,
    (package, filter, mark): (&str, &str, &str),
    variables: &[(&str, &str)],
) {
    let out = tests(env, package, filter, variables);
    let lines = out.iter().flat_map(|out| out.lines());
    let skipped: Vec<&str> =
        lines.filter_map(|line| Some(line.split_once("skipped: ")?.1)).collect();
    for &reason in &skipped {
        claims.skip(statement, reason);
    }
    // The result of a skipped test proves nothing.
    if skipped.is_empty() || mark != RESULT {
        claims.check(statement, || figure(&out?, mark));
    }
}

/// Returns the figures that tests have printed after `mark`.
pub(super) fn figure(out: &str, mark: &str) -> Result<String> {
    let add_test_claim: Vec<&str> =
        out.lines().filter_map(|line| Some(line.split_once(mark)?.1.trim())).collect();
    let is_any = !add_test_claim.is_empty() && !out.contains(" 0 passed;");
    ensure!(is_any, "the tests printed no figure:\n{out}");
    for line in &add_test_claim {
        outln!("   {line}");
    }
    Ok(if add_test_claim.len() > 4 {
        format!("{} lines", add_test_claim.len())
    } else {
        add_test_claim.join("; ")
    })
}

/// The number of steps of a long world.
const STEPS: u64 = 1_000_000;
/// The number of long worlds of one run without `--for`, and of all runs on the same code together.
const WORLDS: [u64; 2] = [50, 1000];
/// The number of long worlds after which the ledger is written.
const BATCH: u64 = 5;

/// Runs many seeds of operations with a crash or a fault at any store call, and the next long ones.
pub(super) fn simulation(env: &Env, claims: &mut Claims) -> Result<()> {
    let seeds = env.choose("20000", "200");
    let statement = format!("{seeds} seeds, and all short sequences");
    let of = ("larder-core", "simulation::", RESULT);
    add_test_claim(env, claims, &statement, of, &[("LARDER_SEEDS", seeds)]);
    if !env.options.quick {
        let statement = format!("worlds of {STEPS} steps on this code, of {}", WORLDS[1]);
        claims.check(statement, || long_worlds(env));
    }
    Ok(())
}

/// Runs the next long worlds, on all processors; returns the figures of all worlds on this code.
fn long_worlds(env: &Env) -> Result<String> {
    let code = ledger::hash_files(&env.root, &[Path::new("crates/core")])?;
    let key = ["simulation", "long", &code];
    let mut ledger = Ledger::open(&env.root, "hardening")?;
    let [count, goal] = WORLDS;
    let first = ledger.next_seed(key);
    let end = if env.options.time.is_some() { goal } else { goal.min(first + count) };
    let deadline = Instant::now() + Duration::from_secs(env.fuzz_seconds());
    let processors = std::thread::available_parallelism()?.get();
    let batches: Vec<u64> = (first..end).step_by(usize::try_from(BATCH)?).collect();
    for batches in batches.chunks(processors) {
        if Instant::now() >= deadline {
            break;
        }
        let outcomes: Vec<Result<SeedResults>> = std::thread::scope(|scope| {
            let worlds = |&first| scope.spawn(move || long_batch(env, first));
            let running: Vec<_> = batches.iter().map(worlds).collect();
            running.into_iter().map(|it| it.join().expect("a batch does not panic")).collect()
        });
        for (&first, outcome) in batches.iter().zip(outcomes) {
            ledger.add(key, first..first + BATCH, &outcome?)?;
        }
    }
    let all = ledger.outcome(key).context("no world was run")?;
    let [steps, requests, crashes] = ["steps", "executions", "crashes"].map(|name| all.count(name));
    let seeds = ledger.next_seed(key);
    Ok(format!("{seeds} seeds, {steps} steps, {requests} requests, {crashes} crashes"))
}

/// Runs the long worlds of a batch of seeds.
fn long_batch(env: &Env, first: u64) -> Result<SeedResults> {
    let [seed, seeds, steps] = [first, BATCH, STEPS].map(|number| number.to_string());
    let variables = [("LARDER_SEED", &*seed), ("LARDER_SEEDS", &seeds), ("LARDER_STEPS", &steps)];
    let out = tests(env, "larder-core", "simulation::a_random_world", &variables)?;
    let line = figure(&out, "simulation: ")?;
    let mut outcome = SeedResults::default();
    for (name, unit) in [("steps", "steps"), ("executions", "requests"), ("crashes", "crashes")] {
        outcome.add_count(name, number_before(&line, unit)?);
    }
    Ok(outcome)
}

/// Returns the number before a word.
fn number_before(line: &str, word: &str) -> Result<u64> {
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let at = words.windows(2).find(|pair| pair[1] == word);
    let at = at.with_context(|| format!("no number of {word} in: {line}"))?;
    at[0].parse().with_context(|| format!("read the number of {word} in: {line}"))
}

/// Runs a fuzz test for the requested time.
fn add_fuzz_claim(
    env: &Env,
    claims: &mut Claims,
    statement: &str,
    (package, filter): (&str, &str),
) {
    let (seconds, seed) = (env.fuzz_seconds().to_string(), env.options.seed.to_string());
    let variables = [("LARDER_FUZZ_SECONDS", seconds.as_str()), ("LARDER_SEED", &seed)];
    let statement = format!("{statement} for {seconds} s, seed {seed}");
    add_test_claim(env, claims, &statement, (package, filter, "fuzzed: "), &variables);
}

/// Runs mutated inputs of every trace format through every reader, and random records through every
/// writer and back.
pub(super) fn trace_fuzz(env: &Env, claims: &mut Claims) -> Result<()> {
    add_fuzz_claim(env, claims, "mutated traces", ("larder-lab", "trace::fuzz"));
    Ok(())
}

/// Runs sessions of malformed clients in parallel with a healthy one.
pub(super) fn wrong_input(env: &Env, claims: &mut Claims) -> Result<()> {
    add_fuzz_claim(env, claims, "malformed NBD sessions", ("larder", "control::fuzz"));
    Ok(())
}

/// Writes to a setuid program as another user, and starts it immediately, also during writes.
pub(super) fn setuid(env: &Env, claims: &mut Claims) -> Result<()> {
    let attempts = env.choose("10000", "100");
    let statement = format!("{attempts} attempts of each kind, none runs as root");
    let of = ("larder-io", "directory::privileges::what_another_user", "test result: ");
    add_test_claim(env, claims, &statement, of, &[("LARDER_SETUID_ATTEMPTS", attempts)]);
    Ok(())
}

/// Tests three file systems on four schedulers, read back in each cell, a chart for each column,
/// and an unchanged machine, also after `kill -9`.
pub(super) fn matrix(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]))?;
    let statement = "file systems made, measured and removed; the machine is unchanged";
    let trials = ("LARDER_MATRIX_TRIALS", env.choose("6", "2"));
    add_test_claim(env, claims, statement, ("larder", "matrix::", "shown: "), &[trials]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_figure_is_an_error() {
        assert!(figure("test result: ok. 0 passed; 0 failed", "test result: ").is_err());
        assert_eq!(figure("test x ... fuzzed: 17 inputs\n", "fuzzed: ").unwrap(), "17 inputs");
    }
}
