//! Everything that takes minutes, in order, with one table at the end.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::prove::{self, Options};
use crate::table::{self, Verdict};
use crate::{Ending, docs, packages, rings, run, tidy};

/// The proofs that have a short form worth running each time.
const QUICK: &[&str] =
    &["clients", "faults", "wrong-input", "rss", "kill", "live", "postmark", "iozone"];

/// How long one call of cargo may take: a test that never ends is a test that fails.
const STEP_MAX_S: u64 = 40 * 60;

/// One line of the final table.
#[derive(Debug)]
struct Line {
    name: String,
    note: String,
    verdict: Verdict,
}

/// `test`.
pub(crate) fn command() -> Ending {
    let mut lines = Vec::new();
    step(&mut lines, "install what the tests need", packages::install);
    step(&mut lines, "format", || cargo(&["fmt", "--all", "--check"], &[]));
    step(&mut lines, "tidy", || held(tidy::command()?));
    step(&mut lines, "clippy", || {
        let args = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
        cargo(&args, &[])
    });
    step(&mut lines, "unit and integration tests", || {
        cargo(&["test", "--workspace", "--no-fail-fast"], &[])
    });
    by_rings(&mut lines);
    step(&mut lines, "block devices (feature ublk)", || {
        let both = ["--package", "larder-io", "--package", "larder", "--features", "ublk"];
        let lint = ["--all-targets", "--", "--deny", "warnings"];
        cargo(&[&["clippy"], &both[..], &lint].concat(), &[])?;
        cargo(&["test", "--package", "larder-io", "--features", "ublk", "--lib", "ublk"], &[])
    });
    step(&mut lines, "loom: every interleaving of the latches", loom);
    step(&mut lines, "shuttle: many schedules of threads on one cache", shuttle);
    step(&mut lines, "documentation", || {
        let args = ["doc", "--workspace", "--no-deps", "--document-private-items"];
        cargo(&args, &[("RUSTDOCFLAGS", "--deny warnings")])
    });
    step(&mut lines, "generated documents", || held(docs::command(&["--check".to_owned()])?));
    black_box(&mut lines);
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

/// The tests of file systems once more, by io_uring where that can be had.
fn by_rings(lines: &mut Vec<Line>) {
    let name = "file systems by io_uring";
    if let Some(reason) = rings::missing() {
        let (note, verdict) = (reason.to_owned(), Verdict::Skipped);
        lines.push(Line { name: name.to_owned(), note, verdict });
        return;
    }
    step(lines, name, || {
        // Where the machine has it switched on, they ran so before.
        let _rings = rings::on()?;
        // As they were built before: of one package alone all would be built anew.
        let which = ["--workspace", "--test", "folder", "--test", "fuse"];
        cargo(&[&["test", "--no-fail-fast"], &which[..]].concat(), &[])
    });
}

fn held(ending: Ending) -> Result<()> {
    ensure!(ending == Ending::Holds, "see above");
    Ok(())
}

fn cargo(args: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut command = run::cargo_within(STEP_MAX_S, &run::workspace()?);
    run::show(command.args(args).envs(environment.iter().copied()))
}

fn loom() -> Result<()> {
    model_check("loom", &["--package", "larder-mem", "--test", "loom"])
}

fn shuttle() -> Result<()> {
    model_check("shuttle", &["--package", "larder-core", "--lib", "--test", "threads", "schedule"])
}

/// A model check has a configuration of its own, hence a target directory of its own.
fn model_check(checker: &str, tests: &[&str]) -> Result<()> {
    let target = run::target_dir()?.join(checker);
    let target = target.to_str().context("the target directory is not UTF-8")?;
    let flags = format!("--cfg larder_{checker}");
    cargo(
        &[&["test", "--release"], tests].concat(),
        &[("RUSTFLAGS", flags.as_str()), ("CARGO_TARGET_DIR", target)],
    )
}

/// The short form of the proofs, from the outside of the binary.
fn black_box(lines: &mut Vec<Line>) {
    println!("\n== black-box checks");
    let options = Options { quick: true, ..Options::default() };
    match prove::claims(QUICK, &options) {
        Ok(claims) => lines.extend(claims.into_iter().map(|claim| Line {
            name: format!("{}: {}", claim.proof, claim.what),
            note: claim.figure,
            verdict: claim.verdict,
        })),
        Err(error) => step(lines, "black-box checks", || Err(error)),
    }
}

fn summary(lines: &[Line]) -> Ending {
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| vec![line.name.clone(), line.note.clone(), line.verdict.word().to_owned()])
        .collect();
    println!();
    table::print(&["check", "figure", "holds"], &rows);
    let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    let (passed, failed) = (count(Verdict::Holds), count(Verdict::Fails));
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 { Ending::Holds } else { Ending::Broken }
}
