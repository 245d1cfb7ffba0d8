//! The rules of this repository as a test: each violation is one line, `path:line: rule`.
//!
//! Reads what is on disk, so that a file not yet committed is judged as well. A rule about code
//! looks at code alone: comments and the contents of strings are blanked first.

mod crates;
mod lines;
mod links;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{Ending, run};

/// No file of the repository is longer; images and traces are made, not kept.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Folders that are not part of the repository, in the root of the tree.
const OUTSIDE: &[&str] = &[".git", "target"];

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
    let violations = check(&run::workspace()?)?;
    for violation in &violations {
        println!("{violation}");
    }
    println!("tidy: {} violations", violations.len());
    Ok(if violations.is_empty() { Ending::Holds } else { Ending::Broken })
}

/// All violations in a tree, in the order of their places.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut files = Vec::new();
    collect(root, Path::new(""), &mut files)?;
    let mut violations = Vec::new();
    for path in &files {
        check_file(root, path, &mut violations)?;
    }
    violations.sort();
    Ok(violations)
}

/// The files below a folder, as paths from the root.
fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let here = root.join(folder);
    for entry in std::fs::read_dir(&here).with_context(|| format!("list {}", here.display()))? {
        let entry = entry.with_context(|| format!("list {}", here.display()))?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type().with_context(|| format!("look at {}", path.display()))?;
        if kind.is_file() {
            files.push(path);
        } else if kind.is_dir() && !OUTSIDE.iter().any(|name| path == Path::new(name)) {
            collect(root, &path, files)?;
        }
    }
    Ok(())
}

fn check_file(root: &Path, path: &Path, violations: &mut Vec<Violation>) -> Result<()> {
    let whole = root.join(path);
    let length = whole.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    if length > FILE_BYTES_MAX {
        violations.push(Violation::at(path, 1, "file over 1 MiB"));
        return Ok(());
    }
    let bytes = std::fs::read(&whole).with_context(|| format!("read {}", path.display()))?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(());
    };
    violations.extend(lines::machine_paths(path, &text));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => {
            violations.extend(lines::plain(path, &text));
            violations.extend(source::check(path, &text));
        }
        Some("toml") => {
            violations.extend(lines::plain(path, &text));
            violations.extend(crates::check(path, &text));
        }
        Some("md") => violations.extend(links::check(root, path, &text)),
        _ => {}
    }
    Ok(())
}
