//! `release`: checks the tree, and makes all files of a release in target/release-VERSION.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::run::{self, cmd};
use crate::table::{self, Verdict};
use crate::{TaskStatus, docs, package, test, tools};

/// The version of cargo-cyclonedx to install.
const CYCLONEDX: &str = "0.5.9";

#[derive(Debug, Clone, Copy)]
struct Options {
    /// Runs all tests.
    test: bool,
    /// The entry of the changelog may be unreleased.
    candidate: bool,
}

/// `release [--no-test] [--candidate]`.
pub(crate) fn command(args: &[String]) -> Result<TaskStatus> {
    let mut options = Options { test: true, candidate: false };
    for arg in args {
        match arg.as_str() {
            "--no-test" => options.test = false,
            "--candidate" => options.candidate = true,
            other => bail!("release: no argument '{other}'; see `cargo xtask help`"),
        }
    }
    let root = run::workspace()?;
    let version = package::version(&root)?;
    let checks = checks(&root, &version, options);
    let rows: Vec<_> = checks
        .iter()
        .map(|(name, result)| {
            let note = result.as_ref().map_or_else(|error| format!("{error:#}"), Clone::clone);
            let first = note.lines().next().unwrap_or_default().to_owned();
            vec![(*name).to_owned(), first, Verdict::from(result.is_ok()).word().to_owned()]
        })
        .collect();
    println!();
    table::print(&["requirement of a release", "found", "holds"], &rows);
    if checks.iter().any(|(_, result)| result.is_err()) {
        return Ok(TaskStatus::Failed);
    }
    let out = make(&root, &version)?;
    println!("\n{}", run::stdout_of(cmd!("ls -l {out}"))?.trim_end());
    println!("\nwrote {}; tag the commit v{version}", out.display());
    Ok(TaskStatus::Passed)
}

type Check = (&'static str, Result<String>);

/// Runs the checks, the cheap ones first.
fn checks(root: &Path, version: &str, options: Options) -> Vec<Check> {
    let mut checks = vec![
        ("no uncommitted changes", clean_tree(root)),
        ("CHANGELOG.md begins with this version", changelog(root, version, options.candidate)),
        ("files of this version are recorded", recorded_files(root, version)),
        ("Cargo.lock is up to date", lock_file(root)),
    ];
    if checks.iter().all(|(_, result)| result.is_ok()) {
        checks.push(if options.test {
            ("all tests pass, and documents are up to date", passed(test::command(&[])))
        } else {
            ("documents are up to date", passed(docs::command(&["--check".to_owned()])))
        });
    }
    checks
}

fn passed(status: Result<TaskStatus>) -> Result<String> {
    ensure!(status? == TaskStatus::Passed, "see the output above");
    Ok("yes".to_owned())
}

fn clean_tree(root: &Path) -> Result<String> {
    let changes = run::stdout_of(cmd!("git status --porcelain").current_dir(root))?;
    let count = changes.lines().count();
    ensure!(count == 0, "{count} files, such as {}", changes.lines().next().unwrap_or_default());
    Ok(run::stdout_of(cmd!("git rev-parse --short HEAD").current_dir(root))?.trim().to_owned())
}

fn changelog(root: &Path, version: &str, candidate: bool) -> Result<String> {
    let text = fs::read_to_string(root.join("CHANGELOG.md")).context("read CHANGELOG.md")?;
    let heading = text.lines().find(|line| line.starts_with("## ")).unwrap_or_default();
    check_heading(heading, version, candidate)?;
    Ok(heading.to_owned())
}

/// Checks a heading such as `## [1.2.3] - 2026-01-31`.
fn check_heading(heading: &str, version: &str, candidate: bool) -> Result<()> {
    let rest = heading.strip_prefix(&format!("## [{version}] - "));
    let date = rest.with_context(|| format!("'{heading}' is not about {version}"))?;
    let is_date = date.len() == 10
        && date.char_indices().all(|(at, c)| match at {
            4 | 7 => c == '-',
            _ => c.is_ascii_digit(),
        });
    ensure!(is_date || candidate && date == "unreleased", "'{heading}' has no date");
    Ok(())
}

/// Finds the files that later versions must read, docs/COMPATIBILITY.md.
fn recorded_files(root: &Path, version: &str) -> Result<String> {
    let dir = Path::new("crates/cli/tests/golden").join(version);
    let interface = root.join(&dir).join("interface.txt");
    ensure!(interface.is_file(), "no {}/interface.txt", dir.display());
    Ok(dir.display().to_string())
}

fn lock_file(root: &Path) -> Result<String> {
    let mut cargo = run::cargo(root);
    cargo.args(["metadata", "--locked", "--format-version=1", "--no-deps"]);
    run::stdout_of(cargo).map(|_| "yes".to_owned())
}

/// Makes all files of a release; returns their directory.
fn make(root: &Path, version: &str) -> Result<PathBuf> {
    let out = root.join(format!("target/release-{version}"));
    run::stdout_of(cmd!("rm -rf {out}"))?;
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let source = source_archive(root, version, &out)?;
    bill_of_materials(root, version, &source, &out)?;
    package::deb(&package::build()?, &out)?;
    package::static_archives(&package::build_static()?, &out)?;
    let sums = run::stdout_of(cmd!("sh -c 'sha256sum -- *'").current_dir(&out))?;
    fs::write(out.join("SHA256SUMS"), sums).context("write SHA256SUMS")?;
    Ok(out)
}

/// Packs the committed files.
fn source_archive(root: &Path, version: &str, out: &Path) -> Result<PathBuf> {
    let archive = out.join(format!("larder-{version}-source.tar.gz"));
    let prefix = format!("larder-{version}/");
    let mut git = cmd!("git archive --format=tar.gz --prefix={prefix} --output {archive} HEAD");
    run::stdout_of(git.current_dir(root))?;
    Ok(archive)
}

/// Writes the linked packages in the format of `CycloneDX`.
fn bill_of_materials(root: &Path, version: &str, source: &Path, out: &Path) -> Result<()> {
    let program = tools::install("cargo-cyclonedx", CYCLONEDX, &[])?;
    // The program writes a file beside each manifest.
    let scratch = tempfile::tempdir().context("make a directory")?;
    let dir = scratch.path();
    run::stdout_of(cmd!("tar -xf {source} -C {dir}"))?;
    let tree = dir.join(format!("larder-{version}"));
    let name = format!("larder-{version}.cdx");
    let mut cyclonedx = cmd!("{program} cyclonedx --format json --features full");
    cyclonedx.args(["--manifest-path", "crates/cli/Cargo.toml", "--override-filename", &name]);
    run::stdout_of(cyclonedx.current_dir(&tree))?;
    let file = tree.join("crates/cli").join(format!("{name}.json"));
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    for linked in package::linked_packages(root)? {
        let purl = format!("pkg:cargo/{}@{}", linked.name, linked.version);
        ensure!(text.contains(&purl), "the bill of materials lacks {purl}");
    }
    fs::write(out.join(format!("{name}.json")), text).context("write the bill of materials")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_dated_entry_of_its_version() {
        let check = |heading, candidate| check_heading(heading, "1.2.0", candidate).is_ok();
        assert!(check("## [1.2.0] - 2026-11-27", false));
        assert!(!check("## [1.2.1] - 2026-11-27", false) && !check("## [1.2.0]", false));
        assert!(!check("## [1.2.0] - unreleased", false) && check("## [1.2.0] - unreleased", true));
    }
}
