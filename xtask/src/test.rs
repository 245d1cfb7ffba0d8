//! `cargo xtask test`: rules, tests and the short form of the proofs, with one table at the end.
//!
//! Everything is built once, with all features, in one target directory. cargo-nextest runs the
//! tests while clippy and rustdoc check the same code, since most tests wait rather than compute.
//! The proofs run last, on their own, on the binary that the tests used.

mod skips;
mod stress;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::prove::{self, Options};
use crate::table::{self, Verdict};
use crate::{TaskStatus, docs, nextest, packages, rings, run, tidy, wheel};
use skips::Skips;

/// The proofs whose short form runs each time.
const QUICK: &[&str] = &["clients", "faults", "rss", "kill", "live", "postmark", "iozone", "pages"];

/// The timeout of one step in seconds.
const STEP_S_MAX: u64 = 40 * 60;

/// The tests of file systems, which run a second time with FUSE over io_uring.
const FILE_SYSTEMS: &str = "package(larder-io) and test(/^(directory|fuse)::/)";

/// A line of the final table.
#[derive(Debug)]
struct Line {
    name: String,
    note: String,
    verdict: Verdict,
}

/// `test [--stress ROUNDS [FILTER]]`.
pub(crate) fn command(args: &[String]) -> Result<TaskStatus> {
    match args {
        [] => Ok(run_everything()),
        [option, rounds, filter @ ..] if option == "--stress" && filter.len() <= 1 => {
            let rounds = rounds.parse().ok().filter(|rounds| *rounds > 0);
            let rounds = rounds.context("--stress needs a number of rounds, 1 or more")?;
            stress::command(rounds, filter.first().map_or("all()", String::as_str))
        }
        _ => bail!("test: the only arguments are --stress ROUNDS [FILTER]"),
    }
}

fn run_everything() -> TaskStatus {
    let mut lines = Vec::new();
    step(&mut lines, "install packages", packages::install);
    step(&mut lines, "install cargo-nextest", nextest::install);
    step(&mut lines, "format", || cargo(&["fmt", "--all", "--check"], &[]));
    step(&mut lines, "tidy", || check_status(tidy::command()?));
    step(&mut lines, "spelling", spelling);
    step(&mut lines, "build the tests", || nextest::build().map(drop));
    let skips = Skips::collect();
    let (ours, theirs) = std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let mut lines = Vec::new();
            step(&mut lines, "clippy", clippy);
            step(&mut lines, "documentation of the code", rustdoc);
            lines
        });
        let mut lines = Vec::new();
        step(&mut lines, "unit and integration tests", || nextest::run("all()", skips.file()));
        over_io_uring(&mut lines, &skips);
        (lines, checks.join().expect("a step reports its failure"))
    });
    lines.extend(ours);
    lines.extend(theirs);
    step(&mut lines, "default features", default_features);
    step(&mut lines, "generated documents", || {
        check_status(docs::command(&["--check".to_owned()])?)
    });
    short_proofs(&mut lines, &skips);
    skips.report(&mut lines);
    summary(&lines)
}

fn step(lines: &mut Vec<Line>, name: &str, work: impl FnOnce() -> Result<()>) {
    println!("\n== {name}");
    let begun = Instant::now();
    let (verdict, note) = match work() {
        Ok(()) => (Verdict::Holds, format!("{} s", begun.elapsed().as_secs())),
        Err(error) => {
            println!("{error:#}");
            let message = format!("{error:#}");
            (Verdict::Fails, message.lines().next().unwrap_or_default().to_owned())
        }
    };
    lines.push(Line { name: name.to_owned(), note, verdict });
}

/// The spelling checker, a Python package with a program.
const SPELLING: (&str, &str) = ("typos", "1.52.0");

/// Checks the spelling of all files; typos.toml has the exceptions.
fn spelling() -> Result<()> {
    let (name, version) = SPELLING;
    let program = wheel::file(name, version, &format!("bin/{name}"))?;
    let root = run::workspace()?;
    run::show(std::process::Command::new(program).args(["--format", "brief"]).current_dir(root))
}

fn clippy() -> Result<()> {
    let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--"];
    cargo(&[&args[..], &["--deny", "warnings"]].concat(), &[])
}

fn rustdoc() -> Result<()> {
    let args = ["doc", "--workspace", "--all-features", "--no-deps", "--document-private-items"];
    cargo(&args, &[("RUSTDOCFLAGS", "--deny warnings")])
}

/// Checks the default features, and a build without features.
fn default_features() -> Result<()> {
    let lint = ["--", "--deny", "warnings"];
    cargo(&[&["clippy", "--package", "larder"], &lint[..]].concat(), &[])?;
    let bare = ["clippy", "--package", "larder", "--no-default-features"];
    cargo(&[&bare[..], &lint].concat(), &[])
}

/// Runs the tests of file systems again, with FUSE over io_uring if the kernel has it.
fn over_io_uring(lines: &mut Vec<Line>, skips: &Skips) {
    let name = "file systems over io_uring";
    if let Some(reason) = rings::unavailable_reason() {
        skips.add(name, reason);
        return;
    }
    step(lines, name, || {
        // If the machine has it enabled, the first run used it, too.
        let _rings = rings::on()?;
        nextest::run(FILE_SYSTEMS, skips.file())
    });
}

fn check_status(ending: TaskStatus) -> Result<()> {
    ensure!(ending == TaskStatus::Passed, "see above");
    Ok(())
}

fn cargo(args: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = run::cargo_with_timeout(STEP_S_MAX, &run::workspace()?);
    run::show(command.args(args).envs(environment.iter().copied()))
}

/// Runs the short form of the proofs, on the binary that the tests used. A skipped claim is treated
/// like a skipped test.
fn short_proofs(lines: &mut Vec<Line>, skips: &Skips) {
    println!("\n== short proofs");
    let claims = nextest::binary().and_then(|binary: PathBuf| {
        let options = Options { quick: true, binary: Some(binary), ..Options::default() };
        prove::claims(QUICK, &options)
    });
    match claims {
        Ok(claims) => {
            for claim in claims {
                let name = format!("{}: {}", claim.proof, claim.statement);
                if claim.verdict == Verdict::Skipped {
                    skips.add(&name, &claim.figure);
                } else {
                    lines.push(Line { name, note: claim.figure, verdict: claim.verdict });
                }
            }
        }
        Err(error) => step(lines, "short proofs", || Err(error)),
    }
}

fn summary(lines: &[Line]) -> TaskStatus {
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| vec![line.name.clone(), line.note.clone(), line.verdict.word().to_owned()])
        .collect();
    println!();
    table::print(&["check", "figure", "holds"], &rows);
    let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    let [passed, failed, skipped] = [Verdict::Holds, Verdict::Fails, Verdict::Skipped].map(count);
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { TaskStatus::Passed } else { TaskStatus::Failed }
}
