//! Rules of documents: their links, and the tests and functions that they name, exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// The document whose section [`WALKS`] names the functions that process a request.
pub(super) const WALKS_DOCUMENT: &str = "docs/ARCHITECTURE.md";
const WALKS: &str = "## Walks of four requests";
/// The maximum number of files in a walk.
const WALK_FILES_MAX: usize = 8;

/// Returns the parts of a text between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the functions that a walk names but that its files do not contain, walks with too many
/// files, and an error if there is no walk.
pub(super) fn missing_functions(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(WALKS_DOCUMENT)).context("read the walks")?;
    let mut found = Vec::new();
    if !text.lines().any(|line| line == WALKS) {
        found.push(format!("{WALKS_DOCUMENT}:1: there is no section \"{WALKS}\""));
    }
    let (mut is_walk, mut files) = (false, Vec::new());
    for (line, number) in text.lines().zip(1..) {
        if line.starts_with('#') {
            is_walk = line == WALKS || is_walk && line.starts_with("###");
            files.clear();
        }
        let mut cells = line.split('|').skip(1);
        let [first, second] = [cells.next(), cells.next()].map(Option::unwrap_or_default);
        let Some(file) = quoted(first).next().filter(|_| is_walk) else { continue };
        let source = std::fs::read_to_string(root.join("crates").join(file)).unwrap_or_default();
        let is_there = |name: &str| {
            [format!("fn {name}("), format!("fn {name}<")].iter().any(|it| source.contains(it))
        };
        let missing = quoted(second).filter(|name| !is_there(name));
        found.extend(
            missing.map(|name| format!("{WALKS_DOCUMENT}:{number}: {file} has no function {name}")),
        );
        if !files.contains(&file) {
            files.push(file);
        }
        if files.len() > WALK_FILES_MAX {
            found.push(format!("{WALKS_DOCUMENT}:{number}: a walk has too many files"));
        }
    }
    Ok(found)
}

/// Documents that name the tests of their guarantees.
const GUARANTEES: &[&str] =
    &["docs/SEMANTICS.md", "docs/SECURITY.md", "docs/BENCHMARKING.md", "docs/COMPATIBILITY.md"];
/// The minimum number of underscores in the name of a test; names of counters have fewer.
const UNDERSCORES_MIN: usize = 4;

/// Returns the tests that documents name but that do not exist.
pub(super) fn missing_tests(root: &Path, files: &[&str]) -> Result<Vec<String>> {
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))
    };
    let is_source = |path: &&&str| Path::new(path).extension().is_some_and(|it| it == "rs");
    let sources = files.iter().filter(is_source).map(|path| read(path));
    let sources = sources.collect::<Result<String>>()?;
    let mut found = Vec::new();
    for path in GUARANTEES.iter().filter(|path| files.contains(*path)) {
        let text = read(path)?;
        let names = quoted(&text).filter(|name| {
            let is_name = name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
            is_name && name.matches('_').count() >= UNDERSCORES_MIN
        });
        let missing = names.filter(|name| !sources.contains(&format!("fn {name}(")));
        found.extend(missing.map(|name| format!("{path}:1: there is no test {name}")));
    }
    Ok(found)
}

/// Returns the links of a line (`](TARGET)`, without a title) to files that do not exist.
pub(super) fn missing_links<'a>(dir: &'a Path, line: &'a str) -> impl Iterator<Item = String> + 'a {
    let target = |rest: &'a str| rest.split(')').next()?.split_whitespace().next();
    let files = line.split("](").skip(1).filter_map(target);
    let files = files.map(|target| target.split('#').next().unwrap_or_default());
    let is_web = |file: &str| file.contains("://") || file.starts_with("mailto:");
    files
        .filter(move |file| !file.is_empty() && !is_web(file) && !dir.join(file).exists())
        .map(|file| format!("link to a missing file: {file}"))
}

/// Returns the links of documents to headings and anchors that do not exist.
pub(super) fn missing_anchors(root: &Path, files: &[&str]) -> Vec<String> {
    let is_document = |path: &&&str| Path::new(path).extension().is_some_and(|it| it == "md");
    let documents: BTreeMap<PathBuf, String> = files
        .iter()
        .filter(is_document)
        .filter_map(|path| Some((PathBuf::from(path), without_code(root, path)?)))
        .collect();
    let anchors: BTreeMap<&Path, BTreeSet<String>> =
        documents.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let mut found = Vec::new();
    for (path, text) in &documents {
        let dir = path.parent().unwrap_or(Path::new(""));
        for (index, line) in text.lines().enumerate() {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for (file, anchor) in targets.filter_map(|target| target.split_once('#')) {
                let target = if file.is_empty() { path.clone() } else { normal(&dir.join(file)) };
                let known = anchors.get(target.as_path());
                if known.is_some_and(|known| !known.contains(anchor)) {
                    let (path, line) = (path.display(), index + 1);
                    found
                        .push(format!("{path}:{line}: link to a missing heading: {file}#{anchor}"));
                }
            }
        }
    }
    found
}

/// Returns the text of a document with empty lines instead of code blocks.
fn without_code(root: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    let mut in_code = false;
    let line = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence { String::from("\n") } else { format!("{line}\n") }
    };
    Some(text.lines().map(line).collect())
}

/// Returns the anchors of a document: its headings as GitHub and mdbook name them, and `<a id>`.
fn anchors(text: &str) -> BTreeSet<String> {
    let name = |heading: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let headings = headings.map(|line| name(line.trim_start_matches('#')));
    let ids = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    headings.chain(ids.map(str::to_owned)).collect()
}

/// Returns a path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
