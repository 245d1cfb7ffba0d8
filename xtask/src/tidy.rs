//! The rules of this repository as a test: each violation is one line, `path:line: rule`.
//!
//! Reads what is on disk, so that a file not yet committed is judged as well. Rules about code
//! itself are lints of rustc and clippy, in Cargo.toml.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{Ending, run};

/// No file of the repository is longer; images and traces are made, not kept.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// As in rustfmt.toml.
const COLUMNS_MAX: usize = 100;
/// A longer source does more than one thing.
const CODE_LINES_MAX: usize = 800;
/// Directories that are not part of the repository, in the root of the tree.
const OUTSIDE: &[&str] = &[".git", "target"];

/// Beginnings of paths that exist on one machine only. Written in parts, so that this file keeps
/// its own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tmp/pe", "ers"),
];
/// Words that mark unfinished work.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Crate and the crates that it may use, in any kind of dependency.
const MAY_USE: &[(&str, &[&str])] = &[
    ("larder-mem", &[]),
    ("larder-core", &[]),
    // The sources of larder-mem and larder-core, for model checks.
    ("larder-mem-loom", &[]),
    ("larder-core-shuttle", &[]),
    ("larder-testing", &[]),
    ("larder-report", &[]),
    ("larder-io", &["larder-mem", "larder-core"]),
    ("larder-lab", &["larder-core", "larder-report"]),
    ("larder-host", &["larder-report"]),
    (
        "larder",
        &["larder-mem", "larder-core", "larder-report", "larder-io", "larder-lab", "larder-host"],
    ),
    ("xtask", &[]),
];

/// The crate that all others may use, in dev-dependencies alone.
const TESTING: &str = "larder-testing";

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: PathBuf,
    /// Counted from 1.
    line: usize,
    rule: String,
}

impl Violation {
    fn at(path: &Path, line: usize, rule: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, rule: rule.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path.display(), self.line, self.rule)
    }
}

/// `tidy`.
pub(crate) fn command() -> Result<Ending> {
    let root = run::workspace()?;
    let mut violations = check(&root)?;
    violations.extend(direction(&run::metadata(&root)?));
    for violation in &violations {
        println!("{violation}");
    }
    println!("tidy: {} violations", violations.len());
    Ok(if violations.is_empty() { Ending::Holds } else { Ending::Broken })
}

/// The direction between our crates, from the metadata of cargo.
fn direction(metadata: &Value) -> Vec<Violation> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut found = Vec::new();
    for package in &packages {
        let this = name(package);
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == this) else {
            let rule = format!("crate {this} has no place in the direction (xtask/src/tidy.rs)");
            found.push(Violation::at(manifest, 1, rule));
            continue;
        };
        let mut used = list(&package["dependencies"]);
        // Test helpers: for the tests of every crate, and for nothing else.
        used.retain(|it| name(it) != TESTING || it["kind"] != "dev");
        let wrong = used.iter().map(name).filter(|it| ours.contains(it));
        let wrong = wrong.filter(|it| *it != this && !allowed.contains(&it.as_str()));
        let rule = |used| Violation::at(manifest, 1, format!("{this} may not depend on {used}"));
        found.extend(wrong.map(rule));
    }
    found
}

/// All violations in the files of a tree, in the order of their places.
fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut files = Vec::new();
    collect(root, Path::new(""), &mut files)?;
    let mut violations = Vec::new();
    for path in &files {
        check_file(root, path, &mut violations)
            .with_context(|| format!("check {}", path.display()))?;
    }
    violations.sort();
    Ok(violations)
}

/// The files below a directory, as paths from the root.
fn collect(root: &Path, dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let here = root.join(dir);
    for entry in std::fs::read_dir(&here).with_context(|| format!("list {}", here.display()))? {
        let entry = entry.with_context(|| format!("list {}", here.display()))?;
        let (path, kind) = (dir.join(entry.file_name()), entry.file_type()?);
        if kind.is_file() {
            files.push(path);
        } else if kind.is_dir() && !OUTSIDE.iter().any(|name| path == Path::new(name)) {
            collect(root, &path, files)?;
        }
    }
    Ok(())
}

fn check_file(root: &Path, path: &Path, found: &mut Vec<Violation>) -> Result<()> {
    let whole = root.join(path);
    if whole.metadata()?.len() > FILE_BYTES_MAX {
        found.push(Violation::at(path, 1, "file over 1 MiB"));
        return Ok(());
    }
    let Ok(text) = String::from_utf8(std::fs::read(&whole)?) else {
        return Ok(());
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    let (is_source, is_document) = (extension == Some("rs"), extension == Some("md"));
    let is_plain = is_source || extension == Some("toml");
    let (mut in_code, mut code_lines) = (false, 0);
    for (index, line) in text.lines().enumerate() {
        let mut add = |rule: String| found.push(Violation::at(path, index + 1, rule));
        let is_inside = |c: char| c.is_alphanumeric() || "._-~/*}>".contains(c);
        for start in MACHINE_PATHS {
            if line.match_indices(start).any(|(at, _)| !line[..at].ends_with(is_inside)) {
                add(format!("path of one machine: {start}"));
            }
        }
        if is_plain && line.chars().count() > COLUMNS_MAX {
            add(format!("line over {COLUMNS_MAX} columns"));
        }
        if is_plain && !line.is_ascii() {
            add("not ASCII".into());
        }
        let is_unfinished = |word: &&&str| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == **word)
        };
        if let Some(word) = UNFINISHED.iter().find(is_unfinished).filter(|_| is_plain) {
            add(format!("unfinished: {word}"));
        }
        let trimmed = line.trim_start();
        if is_source && trimmed.starts_with("#[ignore") {
            add("#[ignore]: a test runs or goes; long ones are proofs of xtask".into());
        }
        code_lines += usize::from(!trimmed.is_empty() && !trimmed.starts_with("//"));
        in_code ^= trimmed.starts_with("```");
        if is_document && !in_code {
            let dir = root.join(path.parent().unwrap_or(Path::new("")));
            missing_links(&dir, line).for_each(add);
        }
    }
    if is_source && !text.starts_with("//!") {
        found.push(Violation::at(path, 1, "does not begin with //!: say what the file is for"));
    }
    if is_source && code_lines > CODE_LINES_MAX {
        let rule = format!("{code_lines} lines of code, more than {CODE_LINES_MAX}");
        found.push(Violation::at(path, 1, rule));
    }
    Ok(())
}

/// The links of a line, `](TARGET)` with a title after a blank left out, to files that do not
/// exist.
fn missing_links<'a>(dir: &'a Path, line: &'a str) -> impl Iterator<Item = String> + 'a {
    let target = |rest: &'a str| rest.split(')').next()?.split_whitespace().next();
    let files = line.split("](").skip(1).filter_map(target);
    let files = files.map(|target| target.split('#').next().unwrap_or_default());
    let is_web = |file: &str| file.contains("://") || file.starts_with("mailto:");
    files
        .filter(move |file| !file.is_empty() && !is_web(file) && !dir.join(file).exists())
        .map(|file| format!("link to a missing file: {file}"))
}
