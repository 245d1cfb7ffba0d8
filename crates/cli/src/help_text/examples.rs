//! The examples of each command, for `--help` and the manual page.
//!
//! `examples.txt` has a paragraph for each command: its name with a colon, and a line for each
//! example, with its meaning as a comment.

/// A command line, as for a shell, and its meaning.
pub(crate) type Example = (&'static str, &'static str);

const TEXT: &str = include_str!("examples.txt");

/// Returns the commands that have examples.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TEXT.split("\n\n").filter_map(|paragraph| paragraph.split_once(":\n")).map(|(name, _)| name)
}

/// Returns the examples of a command, which is named with the program and its parents.
pub(crate) fn examples_of(command: &str) -> Vec<Example> {
    let mut paragraphs = TEXT.split("\n\n").filter_map(|it| it.split_once(":\n"));
    let found = paragraphs.find(|(name, _)| *name == command);
    let lines = found.map_or("", |(_, lines)| lines).lines();
    lines.filter_map(|line| line.split_once("  # ")).collect()
}
