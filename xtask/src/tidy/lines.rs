//! Rules about lines of text, whatever the language.

use std::path::Path;

use super::Violation;

/// As in rustfmt.toml.
const COLUMNS_MAX: usize = 100;

/// Beginnings of paths that exist on one machine only. Written in parts, lest this file break its
/// own rule.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tmp/pe", "ers"),
];

/// Words that say something is unfinished.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Length, ASCII and leftovers, for .rs and .toml.
pub(super) fn plain(path: &Path, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut add = |rule: String| found.push(Violation::at(path, index + 1, rule));
        if line.chars().count() > COLUMNS_MAX {
            add(format!("line over {COLUMNS_MAX} columns"));
        }
        if !line.is_ascii() {
            add("not ASCII".into());
        }
        for word in UNFINISHED {
            if has_word(line, word) {
                add(format!("unfinished: {word}"));
            }
        }
    }
    found
}

/// Paths of one machine, for every text file.
pub(super) fn machine_paths(path: &Path, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for beginning in MACHINE_PATHS {
            if starts_a_path(line, beginning) {
                let rule = format!("path of one machine: {beginning}");
                found.push(Violation::at(path, index + 1, rule));
            }
        }
    }
    found
}

/// Whether the beginning occurs where a path begins, not in the middle of one.
fn starts_a_path(line: &str, beginning: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-~/*}>".contains(c);
    line.match_indices(beginning).any(|(at, _)| !line[..at].ends_with(inside))
}

/// Whether a word occurs that is not part of a longer one.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(inside) && !line[at + word.len()..].starts_with(inside)
    })
}
