//! Rules about Rust code.

use std::path::Path;

use super::Violation;
use super::lines::has_word;

/// A longer file does more than one thing.
const CODE_LINES_MAX: usize = 800;

/// The crates whose work is what `unsafe` is for, and one module of system calls.
const MAY_BE_UNSAFE: &[&str] =
    &["crates/mem", "crates/io", "crates/host/src/syscall.rs", "crates/host/src/syscall/"];

/// What code may not hold, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("todo!", "unfinished: todo!"),
    ("unimplemented!", "unfinished: unimplemented!"),
    ("dbg!", "leftover of debugging: dbg!"),
    ("#[allow(", "#[allow]: write #[expect(lint, reason = ...)]"),
    ("#![allow(", "#![allow]: write #![expect(lint, reason = ...)]"),
    ("#[ignore", "#[ignore]: a test runs or goes; long ones are proofs of xtask"),
];

/// Judges one source file.
pub(super) fn check(path: &Path, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push(Violation::at(path, 1, "does not begin with //!: say what the file is for"));
    }
    let code = code_of(text);
    let mut code_lines = 0;
    let may_be_unsafe = MAY_BE_UNSAFE.iter().any(|folder| path.starts_with(folder));
    for (index, line) in code.lines().enumerate() {
        code_lines += usize::from(!line.trim().is_empty());
        if !may_be_unsafe && has_word(line, "unsafe") {
            found.push(Violation::at(
                path,
                index + 1,
                "unsafe outside of mem, io and host/src/syscall",
            ));
        }
        for (banned, rule) in BANNED {
            if contains_token(line, banned) {
                found.push(Violation::at(path, index + 1, *rule));
            }
        }
    }
    if code_lines > CODE_LINES_MAX {
        let rule = format!("{code_lines} lines of code, more than {CODE_LINES_MAX}");
        found.push(Violation::at(path, 1, rule));
    }
    found
}

/// Whether the text occurs and is not the end of a longer name.
fn contains_token(line: &str, token: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(token).any(|(at, _)| !line[..at].ends_with(inside))
}

/// Where the reader of a source stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Nested so deep.
    BlockComment(usize),
    Text,
    /// A raw string that ends with so many `#`.
    RawText(usize),
}

/// The source with comments and the contents of strings blanked; lines stay where they are.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, width) = step(state, &chars, at);
        for &c in &chars[at..(at + width).min(chars.len())] {
            let keep = c == '\n' || (state == State::Code && next == State::Code);
            code.push(if keep { c } else { ' ' });
        }
        state = next;
        at += width;
    }
    code
}

/// The state after the characters at a place, and how many they are.
fn step(state: State, chars: &[char], at: usize) -> (State, usize) {
    let here = |text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    match state {
        State::Code if here("//") => (State::LineComment, 2),
        State::Code if here("/*") => (State::BlockComment(1), 2),
        State::Code if here("\"") => (State::Text, 1),
        State::Code => match raw_start(chars, at) {
            Some(hashes) => (State::RawText(hashes), hashes + 2),
            None => (State::Code, quoted_char(chars, at)),
        },
        State::LineComment if here("\n") => (State::Code, 1),
        State::BlockComment(1) if here("*/") => (State::Code, 2),
        State::BlockComment(depth) if here("*/") => (State::BlockComment(depth - 1), 2),
        State::BlockComment(depth) if here("/*") => (State::BlockComment(depth + 1), 2),
        State::Text if here("\\") => (State::Text, 2),
        State::Text if here("\"") => (State::Code, 1),
        State::RawText(hashes) if here(&format!("\"{}", "#".repeat(hashes))) => {
            (State::Code, hashes + 1)
        }
        _ => (state, 1),
    }
}

/// How many `#` open a raw string here, if one begins.
fn raw_start(chars: &[char], at: usize) -> Option<usize> {
    let named = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let byte = at > 0 && chars[at - 1] == 'b';
    if chars[at] != 'r' || (named && !byte) {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

/// How many characters to pass: a quote in a character literal opens no string.
fn quoted_char(chars: &[char], at: usize) -> usize {
    if chars[at] != '\'' {
        return 1;
    }
    match (chars.get(at + 1), chars.get(at + 2), chars.get(at + 3)) {
        (Some('\\'), Some(_), Some('\'')) => 4,
        (Some(_), Some('\''), _) => 3,
        _ => 1,
    }
}
