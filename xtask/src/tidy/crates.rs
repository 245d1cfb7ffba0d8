//! The direction between our crates: who may depend on whom.

use std::path::Path;

use super::Violation;

/// Crate (its folder) and the crates it may use, in any kind of dependency.
const MAY_USE: &[(&str, &[&str])] = &[
    ("mem", &[]),
    ("core", &[]),
    ("report", &[]),
    ("io", &["mem", "core"]),
    ("lab", &["core", "report"]),
    ("host", &["report"]),
    ("cli", &["mem", "core", "report", "io", "lab", "host"]),
    ("testing", &[]),
    ("xtask", &[]),
];
/// The crate of test helpers: each other crate may use it, in dev-dependencies alone.
const TESTING: &str = "testing";

/// Judges one manifest.
pub(super) fn check(path: &Path, text: &str) -> Vec<Violation> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let ours = path.ends_with("Cargo.toml") && folder != Path::new("");
    let Some(name) = folder.file_name().and_then(|name| name.to_str()).filter(|_| ours) else {
        return Vec::new();
    };
    let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
        let rule = format!("crate {name} has no place in the direction (tidy/crates.rs)");
        return vec![Violation::at(path, 1, rule)];
    };
    dependencies(text)
        .into_iter()
        .filter(|it| !allowed.contains(&it.used.as_str()) && !(it.is_dev && it.used == TESTING))
        .map(|it| Violation::at(path, it.line, format!("{name} may not depend on {}", it.used)))
        .collect()
}

/// A dependency on one of our crates.
struct Dependency {
    line: usize,
    used: String,
    /// For tests, examples and benches alone.
    is_dev: bool,
}

/// Our crates among the dependencies of a manifest.
fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let (mut inside, mut is_dev) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let key = if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            is_dev = section.split('.').any(|part| part == "dev-dependencies");
            // A dependency with a section of its own: [dependencies.NAME].
            match section.rsplit_once("dependencies.") {
                Some((_, key)) => key,
                None => continue,
            }
        } else if inside {
            line.split(['.', '=', ' ']).next().unwrap_or_default()
        } else {
            continue;
        };
        let used = match key.trim_matches('"') {
            "larder" => "cli",
            key => match key.strip_prefix("larder-") {
                Some(used) => used,
                None => continue,
            },
        };
        found.push(Dependency { line: index + 1, used: used.to_owned(), is_dev });
    }
    found
}
