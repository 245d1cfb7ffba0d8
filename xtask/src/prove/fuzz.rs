//! Coverage-guided fuzzing: runs each target of larder-fuzz, and counts the executions.
//!
//! The ledger `bench-runs/fuzz.json` accumulates the executions of each target, as seeds; a hash
//! identifies the version of its code. A target with enough executions, in all and on the
//! present version, is not run again.

use super::prelude::*;
use crate::ledger::{self, Ledger, SeedResults};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The version of cargo-fuzz.
const VERSION: &str = "0.13.2";
/// Executions that each target is to have in all, and on the present version of its code.
const EXECUTIONS: [u64; 2] = [10_000_000, 1_000_000];
/// Limits for one input: seconds, and MiB with the sanitizer.
const LIMITS: [&str; 2] = ["-timeout=25", "-rss_limit_mb=1536"];

/// A fuzz target.
struct Target {
    name: &'static str,
    /// The directories of the code under test.
    directories: &'static [&'static str],
    /// The sanitizer: the address sanitizer finds errors of unsafe code only, and doubles the time.
    sanitizer: &'static str,
}

/// Returns a target whose code contains no `unsafe` of this repository.
const fn safe(name: &'static str, directories: &'static [&'static str]) -> Target {
    Target { name, directories, sanitizer: "none" }
}

/// Returns a target that reaches `unsafe` code.
const fn sanitized(name: &'static str, directories: &'static [&'static str]) -> Target {
    Target { name, directories, sanitizer: "address" }
}

const TARGETS: &[Target] = &[
    safe("config", &["crates/server/src"]),
    safe("control", &["crates/report/src", "crates/schema/src"]),
    safe("control-api", &["crates/server/src"]),
    safe("escape", &["crates/report/src"]),
    sanitized("fuse-directory", &["crates/io/src/front", "crates/io/src/store/files"]),
    sanitized("fuse-volumes", &["crates/io/src/front"]),
    safe("ltr", &["crates/lab/src/trace"]),
    sanitized("nbd-client", &["crates/io/src/nbd_client", "crates/io/src/front/nbd"]),
    sanitized("nbd-server", &["crates/io/src/front/nbd"]),
    safe("nbd-uri", &["crates/io/src/nbd_client"]),
    safe("perfmon", &["crates/report/src", "crates/schema/src"]),
    safe("record", &["crates/report/src", "crates/schema/src"]),
    safe("rules", &["crates/io/src/front/fuse/directory/rules"]),
    safe("sizing", &["crates/lab/src", "crates/report/src", "crates/schema/src"]),
    safe("trace", &["crates/lab/src"]),
    safe("trace-file", &["crates/lab/src"]),
    safe("warm-list", &["crates/io/src/warm_list"]),
    safe("watch", &["crates/report/src", "crates/schema/src"]),
    safe("workload", &["crates/lab/src/workload"]),
];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&["rustup"]))?;
    let list = capture(nightly(env, &["fuzz", "list"]));
    if !list.is_ok_and(|out| out.ok()) {
        let install = ["install", "--locked", "cargo-fuzz", "--version", VERSION];
        run::show(run::cargo(&env.root).args(install))?;
    }
    let listed = stdout_of(nightly(env, &["fuzz", "list"]))?;
    let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    ensure!(listed.lines().eq(known), "the list of targets differs from that of cargo fuzz");
    let deadline = Instant::now() + Duration::from_secs(env.fuzz_seconds());
    let processors = std::thread::available_parallelism()?.get();
    let queue = Mutex::new(TARGETS.iter().collect::<VecDeque<_>>());
    let fuzzed = Mutex::new((Ledger::open(&env.root, "fuzz")?, claims));
    let work = || -> Result<()> {
        loop {
            let (target, left) = {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(target) = queue.pop_front() else { return Ok(()) };
                (target, queue.len() + 1)
            };
            let code = code(env, target.directories)?;
            let key = ["fuzz", target.name, &*code];
            let (before, earlier) = {
                let fuzzed = fuzzed.lock().unwrap_or_else(PoisonError::into_inner);
                (fuzzed.0.next_seed(key), fuzzed.0.earlier(key))
            };
            let time = deadline.saturating_duration_since(Instant::now());
            let rounds = u32::try_from(left.div_ceil(processors))?;
            let [in_all, on_this_code] = EXECUTIONS;
            let runs = in_all.saturating_sub(before + earlier);
            let runs = runs.max(on_this_code.saturating_sub(before));
            let (begun, seconds) = (Instant::now(), (time / rounds).as_secs().max(1));
            let (done, found) = match runs {
                0 => (0, None),
                _ => fuzz(env, target, seconds, runs)?,
            };
            let executions = before + done;
            let mut outcome = SeedResults::default();
            outcome.add_count("executions", done);
            outcome.add_count("seconds", begun.elapsed().as_secs());
            let mut fuzzed = fuzzed.lock().unwrap_or_else(PoisonError::into_inner);
            let (ledger, claims) = &mut *fuzzed;
            if done > 0 {
                ledger.add(key, before..executions, &outcome)?;
            }
            let figure = match &found {
                None => format!("{done} now; {executions} on this code, {earlier} before"),
                Some(input) => format!("found {input}"),
            };
            claims.add(format!("{}: nothing is found", target.name), figure, found.is_none());
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

/// Returns the hash of the code in these directories, and of the targets.
fn code(env: &Env, directories: &[&str]) -> Result<String> {
    let paths = [&["crates/fuzz/src"], directories].concat();
    ledger::hash_files(&env.root, &paths.into_iter().map(Path::new).collect::<Vec<_>>())
}

/// Fuzzes one target for some seconds or executions; returns the number of executions, and the
/// failing input.
fn fuzz(env: &Env, target: &Target, seconds: u64, runs: u64) -> Result<(u64, Option<String>)> {
    let Target { name, sanitizer, .. } = target;
    let below = |directory: &str| run::target_dir().map(|target| target.join(directory).join(name));
    let (grown, findings) = (below("fuzz-corpus")?, below("fuzz-findings")?);
    [&grown, &findings].into_iter().try_for_each(std::fs::create_dir_all)?;
    // Each sanitizer has a directory, since its flags would rebuild everything.
    let builds = run::target_dir()?.join(format!("fuzz-{sanitizer}"));
    let mut cargo = nightly(env, &["fuzz", "run", "--sanitizer", sanitizer, "--target-dir"]);
    cargo.arg(builds).arg(name).arg(grown);
    cargo.arg(env.root.join("fuzz/corpus").join(name)).arg("--").args(LIMITS);
    // Threads of a mount keep memory: each input would run twice and be checked for leaks.
    cargo.args(name.starts_with("fuse-").then_some("-detect_leaks=0"));
    cargo.args([format!("-max_total_time={seconds}"), format!("-runs={runs}")]);
    cargo.arg("-print_final_stats=1");
    cargo.arg(format!("-artifact_prefix={}/", findings.display()));
    let out = capture(cargo)?;
    let stat = |mark: &str| out.stderr.lines().find_map(|line| line.split_once(mark));
    let executions = stat("stat::number_of_executed_units:");
    let executions = executions.and_then(|(_, number)| number.trim().parse().ok());
    let found = stat("Test unit written to ").map(|(_, path)| path.to_owned());
    ensure!(out.ok() || found.is_some(), "fuzz {name}: {}", run::tail(&out.stderr));
    if found.is_some() {
        outln!("{}", run::tail(&out.stderr));
    }
    Ok((executions.unwrap_or(0), found))
}

/// Returns the nightly cargo, which the fuzzers require.
fn nightly(env: &Env, words: &[&str]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo"]).args(words).current_dir(&env.root);
    rustup
}
