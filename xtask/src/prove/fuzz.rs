//! Coverage-guided fuzzing: runs each target of larder-fuzz for a time, and counts the executions
//! since the last change of its code.
//!
//! `bench-runs/fuzz.json` accumulates the executions. An entry holds for one version of its
//! target's code, identified by git tree hashes; when the code changes, the entry starts again.

use super::prelude::*;

/// The version of cargo-fuzz.
const VERSION: &str = "0.13.2";
/// Path of the record of executions in the repository.
const LEDGER: &str = "bench-runs/fuzz.json";
/// Limits for one input: seconds, and MiB with the sanitizer.
const LIMITS: [&str; 2] = ["-timeout=25", "-rss_limit_mb=1536"];

/// A target, and the directories with the code that it tests.
const TARGETS: &[(&str, &[&str])] = &[
    ("config", &["crates/cli/src/commands/serve", "crates/cli/src/args.rs"]),
    ("control", &["crates/report/src"]),
    ("control-api", &["crates/cli/src/control", "crates/cli/src/commands/serve"]),
    ("escape", &["crates/report/src"]),
    ("fuse-folder", &["crates/io/src/front", "crates/io/src/store/files"]),
    ("fuse-volumes", &["crates/io/src/front"]),
    ("ltr", &["crates/lab/src/trace"]),
    ("nbd-client", &["crates/io/src/nbd_client", "crates/io/src/front/nbd"]),
    ("nbd-server", &["crates/io/src/front/nbd"]),
    ("nbd-uri", &["crates/io/src/nbd_client"]),
    ("perfmon", &["crates/report/src"]),
    ("record", &["crates/report/src"]),
    ("rules", &["crates/io/src/front/fuse/folder/rules"]),
    ("sizing", &["crates/lab/src", "crates/report/src"]),
    ("trace", &["crates/lab/src"]),
    ("trace-file", &["crates/lab/src"]),
    ("warm-list", &["crates/io/src/warm_list"]),
    ("watch", &["crates/report/src"]),
    ("workload", &["crates/lab/src/workload"]),
];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    need(run::missing(&["rustup"]))?;
    let list = keep(nightly(env, &["fuzz", "list"]));
    if !list.is_ok_and(|out| out.ok()) {
        let install = ["install", "--locked", "cargo-fuzz", "--version", VERSION];
        run::show(run::cargo(&env.root).args(install))?;
    }
    let listed = text(nightly(env, &["fuzz", "list"]))?;
    let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    ensure!(listed.lines().eq(known), "the list of targets differs from that of cargo fuzz");
    let path = env.root.join(LEDGER);
    let empty = json!({ "schema": "larder-fuzz", "version": 1, "targets": {} });
    let mut ledger = record::read(&path).unwrap_or(empty);
    let seconds = env.fuzz_seconds().div_ceil(TARGETS.len() as u64);
    for (name, folders) in TARGETS {
        let code = code(env, folders)?;
        let before = &ledger["targets"][*name];
        let before = if before["code"] == code { before.clone() } else { json!({}) };
        let count = |field: &str| before[field].as_u64().unwrap_or(0);
        let (done, found) = fuzz(env, name, seconds)?;
        let executions = count("executions") + done;
        let all = count("seconds") + seconds;
        let commit = text(cmd!("git rev-parse --short HEAD").current_dir(&env.root))?;
        ledger["targets"][*name] = json!({
            "executions": executions, "seconds": all, "code": code, "commit": commit.trim(),
        });
        let figure = match &found {
            None => format!("{done} now; {executions} in {all} s since its code changed"),
            Some(input) => format!("found {input}"),
        };
        claims.add(format!("{name}: nothing is found"), figure, found.is_none());
        std::fs::write(&path, format!("{ledger:#}\n"))
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the version of the code in these directories, and of the targets.
fn code(env: &Env, folders: &[&str]) -> Result<String> {
    let mut git = cmd!("git rev-parse HEAD:crates/fuzz/src");
    git.args(folders.iter().map(|folder| format!("HEAD:{folder}"))).current_dir(&env.root);
    let trees = text(git)?;
    Ok(trees.lines().map(|tree| &tree[..12]).collect::<Vec<_>>().join(" "))
}

/// Fuzzes one target for some seconds; returns the executions, and the input that failed.
fn fuzz(env: &Env, name: &str, seconds: u64) -> Result<(u64, Option<String>)> {
    let below = |folder: &str| run::target_dir().map(|target| target.join(folder).join(name));
    let (grown, findings) = (below("fuzz-corpus")?, below("fuzz-findings")?);
    [&grown, &findings].into_iter().try_for_each(std::fs::create_dir_all)?;
    let mut cargo = nightly(env, &["fuzz", "run", "--target-dir"]);
    cargo.arg(run::target_dir()?.join("fuzz")).args([name]).arg(grown);
    cargo.arg(env.root.join("fuzz/corpus").join(name)).arg("--").args(LIMITS);
    // Threads of a mount keep memory: each input would run twice and be searched for leaks.
    cargo.args(name.starts_with("fuse-").then_some("-detect_leaks=0"));
    cargo.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    cargo.arg(format!("-artifact_prefix={}/", findings.display()));
    let out = keep(cargo)?;
    let stat = |mark: &str| out.stderr.lines().find_map(|line| line.split_once(mark));
    let executions = stat("stat::number_of_executed_units:");
    let executions = executions.and_then(|(_, number)| number.trim().parse().ok());
    let found = stat("Test unit written to ").map(|(_, path)| path.to_owned());
    ensure!(out.ok() || found.is_some(), "fuzz {name}: {}", run::tail(&out.stderr));
    if found.is_some() {
        say!("{}", run::tail(&out.stderr));
    }
    Ok((executions.unwrap_or(0), found))
}

/// Returns the nightly cargo, which the fuzzers need.
fn nightly(env: &Env, words: &[&str]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo"]).args(words).current_dir(&env.root);
    rustup
}
