//! Links in the documents: what they name in the tree must exist.

use std::path::Path;

use super::Violation;

/// Judges one document.
pub(super) fn check(root: &Path, path: &Path, text: &str) -> Vec<Violation> {
    let folder = root.join(path.parent().unwrap_or(Path::new("")));
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            if !folder.join(file).exists() {
                let rule = format!("link to a missing file: {file}");
                found.push(Violation::at(path, index + 1, rule));
            }
        }
    }
    found
}

/// What the links of a line name: `](TARGET)`, a title after a blank left out.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let inside = rest.split(')').next()?;
        inside.split_whitespace().next()
    })
}
