//! Reading small files of procfs and sysfs.

use std::path::Path;

/// Returns the text of a file without surrounding white space, or `None` if the file is missing,
/// empty or not readable.
pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the value of `name` in lines such as `MemTotal:   24683644 kB` or `read_bytes: 4096`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the word in brackets, as in `none [mq-deadline] kyber`, or the whole text if it has
/// none.
pub(crate) fn selected(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "rchar: 1\nread_bytes: 4096\nMemTotal:       24683644 kB\n";
        assert_eq!(field(text, "read_bytes"), Some(4096));
        assert_eq!(field(text, "MemTotal"), Some(24_683_644));
        assert_eq!(field(text, "bytes"), None);
        assert_eq!(field("x: -", "x"), None);
    }

    #[test]
    fn the_word_in_brackets_is_the_one_in_force() {
        assert_eq!(selected("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(selected("write back"), "write back");
    }
}
