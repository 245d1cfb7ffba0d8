//! The rules of this repository as a test: each violation is one line, `path:line: rule`.
//!
//! The check reads the working tree, so that it includes uncommitted files. Rules about the code
//! itself are lints of rustc and clippy, in Cargo.toml.

mod documents;
mod modules;
#[cfg(test)]
mod tests;
mod words;

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::TaskStatus;
use crate::run::{self, cmd};

/// The maximum size of a file in the repository; images and traces are generated, not stored.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The same as in rustfmt.toml.
const COLUMNS_MAX: usize = 100;
/// The maximum number of code lines of a source file.
const CODE_LINES_MAX: usize = 800;

/// Prefixes of paths that exist on one machine only. They are split, so that this file obeys its
/// own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tmp/pe", "ers"),
];
/// Words that mark unfinished work.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Each crate, and the crates that it may depend on in any way, without `larder-`.
const MAY_USE: &[(&str, &str)] = &[
    ("larder-mem", ""),
    ("larder-core", ""),
    // The sources of larder-mem and larder-core, for model checks.
    ("larder-mem-loom", ""),
    ("larder-core-shuttle", ""),
    ("larder-testing", ""),
    ("larder-fuzz", "core io lab report schema server"),
    ("larder-schema", ""),
    ("larder-report", "schema"),
    ("larder-io", "mem core"),
    ("larder-lab", "core schema report"),
    ("larder-host", "schema"),
    ("larder-server", "core schema report io lab host"),
    ("larder", "mem core schema report io lab host server"),
    // Its proofs use the hostile clients of the tests.
    ("xtask", "testing"),
];

/// The crate that all others may use, but only as a dev-dependency.
const TESTING: &str = "larder-testing";

/// `tidy`.
pub(crate) fn command() -> Result<TaskStatus> {
    let root = run::workspace()?;
    let mut violations = check(&root)?;
    violations.extend(wrong_dependencies(&run::metadata(&root)?));
    for violation in &violations {
        println!("{violation}");
    }
    println!("tidy: {} violations", violations.len());
    Ok(if violations.is_empty() { TaskStatus::Passed } else { TaskStatus::Failed })
}

/// Checks the dependencies between the crates of the workspace, from the metadata of cargo.
fn wrong_dependencies(metadata: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut found = Vec::new();
    for package in &packages {
        let this = name(package);
        let mut add = |rule: String| {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            found.push(format!("{manifest}:1: {rule}"));
        };
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == this) else {
            add(format!("crate {this} is not in the list of dependencies (xtask/src/tidy.rs)"));
            continue;
        };
        let mut used = list(&package["dependencies"]);
        // Test helpers: for the tests of every crate, and for nothing else.
        used.retain(|it| name(it) != TESTING || it["kind"] != "dev");
        let wrong = used.iter().map(name).filter(|it| ours.contains(it));
        let may_use = |used: &str| {
            let name = used.strip_prefix("larder-");
            name.is_some_and(|name| allowed.split(' ').any(|it| it == name))
        };
        let wrong = wrong.filter(|it| *it != this && !may_use(it));
        wrong.for_each(|used| add(format!("{this} may not depend on {used}")));
    }
    found
}

/// Returns all violations in the files of a tree.
fn check(root: &Path) -> Result<Vec<String>> {
    let mut find = cmd!("find -path ./.git -prune -o -path ./target -prune -o -type f -print");
    let files = run::stdout_of(find.current_dir(root))?;
    let mut files: Vec<&str> = files.lines().filter_map(|path| path.strip_prefix("./")).collect();
    files.sort_unstable();
    let mut found = Vec::new();
    for path in &files {
        check_file(root, Path::new(path), |line, rule| {
            found.push(format!("{path}:{line}: {rule}"));
        })
        .with_context(|| format!("check {path}"))?;
    }
    found.extend(documents::missing_tests(root, &files)?);
    found.extend(documents::missing_anchors(root, &files));
    found.extend(modules::circles(root, &files)?);
    if files.contains(&documents::WALKS_DOCUMENT) {
        found.extend(documents::missing_functions(root)?);
    }
    Ok(found)
}

fn check_file(root: &Path, path: &Path, mut add: impl FnMut(usize, String)) -> Result<()> {
    let whole = root.join(path);
    if whole.metadata()?.len() > FILE_BYTES_MAX {
        add(1, "file over 1 MiB".into());
        return Ok(());
    }
    let Ok(text) = String::from_utf8(std::fs::read(&whole)?) else {
        return Ok(());
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    let (is_source, is_document) = (extension == Some("rs"), extension == Some("md"));
    let is_plain = is_source || extension == Some("toml");
    let (mut in_code, mut was_empty, mut code_lines, mut before) = (false, true, 0, None);
    for (index, line) in text.lines().enumerate() {
        let mut add = |rule: String| add(index + 1, rule);
        let is_inside = |c: char| c.is_alphanumeric() || "._-~/*}>".contains(c);
        for start in MACHINE_PATHS {
            if line.match_indices(start).any(|(at, _)| !line[..at].ends_with(is_inside)) {
                add(format!("machine-specific path: {start}"));
            }
        }
        if is_plain && line.chars().count() > COLUMNS_MAX {
            add(format!("line over {COLUMNS_MAX} columns"));
        }
        if is_plain && !line.is_ascii() {
            add("not ASCII".into());
        }
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(word) = words.find(|word| is_plain && UNFINISHED.contains(word)) {
            add(format!("unfinished: {word}"));
        }
        let trimmed = line.trim_start();
        if is_source && trimmed.starts_with("#[ignore") {
            add("#[ignore]: remove the test, or make it a proof of xtask".into());
        }
        if is_source && !is_output_file(path) {
            unescaped_output(&path.to_string_lossy(), trimmed).for_each(&mut add);
        }
        let comment = words::comment(line).filter(|_| is_source);
        if let Some(comment) = comment {
            comment.violations(before).into_iter().for_each(&mut add);
        }
        before = comment;
        code_lines += usize::from(!trimmed.is_empty() && !trimmed.starts_with("//"));
        let opens = was_empty || line.starts_with(['#', '*', '-', '|']);
        was_empty = trimmed.is_empty();
        in_code ^= trimmed.starts_with("```");
        if is_document && !in_code {
            words::document_violations(line, opens).into_iter().for_each(&mut add);
            let dir = root.join(path.parent().unwrap_or(Path::new("")));
            documents::missing_links(&dir, line).for_each(add);
        }
    }
    if is_source && !WORD_LISTS.iter().any(|it| path == Path::new(it)) {
        for (line, rule) in words::string_violations(&text) {
            add(line, rule);
        }
    }
    if is_source && !text.starts_with("//!") {
        add(1, "does not begin with //!: describe the purpose of the file".into());
    }
    if is_source && code_lines > CODE_LINES_MAX {
        add(1, format!("{code_lines} lines of code, more than {CODE_LINES_MAX}"));
    }
    Ok(())
}

/// Files whose strings are lists of words.
const WORD_LISTS: &[&str] =
    &["xtask/src/tidy/words.rs", "xtask/src/tidy/tests.rs", "crates/cli/src/old_spellings.rs"];

/// Files that may write to a terminal, or convert names to text for one: they escape names.
const OUTPUT_FILES: &[&str] = &[
    "crates/server/src/output.rs",
    "crates/report/src/escape.rs",
    // Paths in JSON.
    "crates/report/src/table.rs",
];

fn is_output_file(path: &Path) -> bool {
    OUTPUT_FILES.iter().any(|door| path == Path::new(door))
}

/// Returns a violation if a line writes to a terminal or converts a name without escaping.
fn unescaped_output(path: &str, line: &str) -> impl Iterator<Item = String> {
    let code = line.split("//").next().unwrap_or_default();
    let writes = code.contains("io::stdout()") || code.contains("io::stderr()");
    let of_program =
        ["crates/cli/src/", "crates/server/src/"].iter().any(|it| path.starts_with(it));
    let of_report = path.starts_with("crates/report/src/");
    let opens = writes && !code.contains(".is_terminal()") && (of_program || of_report);
    let opens = opens.then(|| "use crate::output::{stdout, stderr}: they escape names".to_owned());
    let lossy = [".display()", "to_string_lossy()", "from_utf8_lossy("];
    let lossy = lossy.iter().filter(move |call| of_report && code.contains(**call));
    let lossy = lossy.map(|call| format!("{call}: show names by larder_report::escape"));
    opens.into_iter().chain(lossy.collect::<Vec<_>>())
}
