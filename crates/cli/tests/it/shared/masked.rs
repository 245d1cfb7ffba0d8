//! Documents whose examples differ in their numbers from run to run.

use super::examples::{MARK, update_examples};
use std::path::Path;

/// Returns the lines of a text without numbers, their units, and the spacing that depends on their
/// width.
fn masked(text: &str) -> Vec<String> {
    let units = ["ns", "us", "ms", "s", "kilobytes", "megabytes"];
    let is_number = |word: &str| word.chars().all(|c| "0123456789.,-()".contains(c));
    let line = |line: &str| {
        let words = line.split_whitespace();
        let kept = words.filter(|word| !units.contains(word) && !is_number(word));
        kept.collect::<Vec<_>>().join(" ")
    };
    // Lines that depend on the machine and on its other load.
    let varies = |line: &&str| {
        line.contains(", Linux ")
            || ["Doubtful", "kB per second"].iter().any(|it| line.starts_with(it))
    };
    text.lines().filter(|line| !varies(line) && !line.is_empty()).map(line).collect()
}

/// Updates the examples of a document in docs/, which must be at least `count`, and compares
/// everything but the numbers. With `LARDER_WRITE_DOCS=1`, which `cargo xtask docs` sets, it writes
/// them.
pub(crate) fn check(name: &str, count: usize, render: impl Fn(&str) -> String) {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let old = std::fs::read_to_string(&document).expect("the document");
    assert!(old.matches(MARK).count() >= count, "there are examples");
    let new = update_examples(&old, render);
    if std::env::var_os("LARDER_WRITE_DOCS").is_some() {
        if masked(&new) != masked(&old) {
            std::fs::write(&document, new).expect("the document can be written");
        }
        return;
    }
    for (number, (old, new)) in masked(&old).iter().zip(&masked(&new)).enumerate() {
        assert_eq!(old, new, "line {}: run cargo xtask docs", number + 1);
    }
    assert_eq!(masked(&old).len(), masked(&new).len());
}
