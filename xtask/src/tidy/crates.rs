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
    ("xtask", &[]),
];

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
        .filter(|(_, used)| !allowed.contains(&used.as_str()))
        .map(|(line, used)| Violation::at(path, line, format!("{name} may not depend on {used}")))
        .collect()
}

/// Our crates among the dependencies of a manifest, with their lines.
fn dependencies(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let key = if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
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
        match key.trim_matches('"') {
            "larder" => found.push((index + 1, "cli".to_owned())),
            key => {
                let used = key.strip_prefix("larder-");
                found.extend(used.map(|used| (index + 1, used.to_owned())));
            }
        }
    }
    found
}
