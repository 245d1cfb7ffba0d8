//! Options that had another name: each is replaced with its present name, with a note.

use crate::commands::report::Format;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// An option that had another name.
struct OldSpelling {
    /// The words of the command.
    command: &'static [&'static str],
    old: &'static str,
    new: &'static str,
    /// Returns the present form of the value; `None` if the option is not the old one.
    value: fn(&str) -> Option<String>,
}

#[expect(clippy::unnecessary_wraps, reason = "another value may not be an old one")]
fn unchanged(value: &str) -> Option<String> {
    Some(value.to_owned())
}

/// `--format` named the format of the trace, in place of that of the output.
fn trace_format(value: &str) -> Option<String> {
    (!matches!(value, "text" | "json")).then(|| value.to_owned())
}

/// `--html` wrote a page into any file.
fn page(value: &str) -> Option<String> {
    (Format::from_extension(Path::new(value)) == Some(Format::Html)).then(|| value.to_owned())
}

const fn trace(words: &'static [&'static str]) -> OldSpelling {
    OldSpelling { command: words, old: "--format", new: "--trace-format", value: trace_format }
}

const fn target(words: &'static [&'static str]) -> OldSpelling {
    OldSpelling { command: words, old: "--to", new: "--to-format", value: unchanged }
}

const OLD_SPELLINGS: &[OldSpelling] = &[
    OldSpelling { command: &["demo"], old: "--folder", new: "--directory", value: unchanged },
    OldSpelling {
        command: &["demo"],
        old: "--seconds",
        new: "--for",
        value: |value| value.parse::<u64>().ok().map(|seconds| format!("{seconds}s")),
    },
    OldSpelling { command: &["size"], old: "--html", new: "--output", value: page },
    trace(&["trace", "convert"]),
    trace(&["trace", "summary"]),
    trace(&["trace", "head"]),
    trace(&["trace", "filter"]),
    trace(&["trace", "merge"]),
    trace(&["trace", "replay"]),
    target(&["trace", "convert"]),
    target(&["trace", "merge"]),
    target(&["trace", "synth"]),
];

/// Returns the words of a command line with the present names of all options, and a note for each
/// that was replaced.
pub(crate) fn replace(words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut notes = Vec::new();
    let is_of = |it: &&OldSpelling| {
        let given = words.iter().skip(1).map(OsString::as_os_str);
        let given = given.filter(|word| !word.as_encoded_bytes().starts_with(b"-"));
        given.take(it.command.len()).eq(it.command.iter().map(OsStr::new))
    };
    let spellings: Vec<_> = OLD_SPELLINGS.iter().filter(is_of).collect();
    if spellings.is_empty() {
        return (words, notes);
    }
    let mut replaced = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            replaced.push(word);
            replaced.extend(words);
            break;
        }
        let (name, attached) = text.split_once('=').map_or((text, None), |(a, b)| (a, Some(b)));
        let Some(spelling) = spellings.iter().find(|it| it.old == name) else {
            replaced.push(word);
            continue;
        };
        let next = words.peek().and_then(|next| next.to_str());
        let Some(value) = attached.or(next).and_then(spelling.value) else {
            replaced.push(word);
            continue;
        };
        if attached.is_none() {
            words.next();
        }
        notes.push(format!("write {} instead of {}", spelling.new, spelling.old));
        replaced.push(format!("{}={value}", spelling.new).into());
    }
    (replaced, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(line: &str) -> (String, usize) {
        let (words, notes) = replace(line.split(' ').map(OsString::from).collect());
        (words.join(OsStr::new(" ")).into_string().unwrap(), notes.len())
    }

    #[test]
    fn an_old_name_is_replaced_and_a_present_one_is_left_alone() {
        for (line, expected, notes) in [
            ("larder demo --folder x", "larder demo --directory=x", 1),
            ("larder demo --seconds=3 --folder x", "larder demo --for=3s --directory=x", 2),
            ("larder size a --html a.html", "larder size a --output=a.html", 1),
            ("larder trace summary a --format csv", "larder trace summary a --trace-format=csv", 1),
            ("larder trace summary a --format json", "larder trace summary a --format json", 0),
            ("larder trace convert a b --to csv", "larder trace convert a b --to-format=csv", 1),
            ("larder trace filter a b --to 5m", "larder trace filter a b --to 5m", 0),
            ("larder report a --format csv", "larder report a --format csv", 0),
            ("larder demo --folder", "larder demo --folder", 0),
            ("larder --quiet demo --seconds 3", "larder --quiet demo --for=3s", 1),
            ("larder demo --seconds x", "larder demo --seconds x", 0),
            ("larder demo -- --seconds 3", "larder demo -- --seconds 3", 0),
            ("larder", "larder", 0),
        ] {
            assert_eq!(replaced(line), (expected.to_owned(), notes));
        }
    }
}
