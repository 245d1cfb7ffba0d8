//! Errors of the operating system as a part of a sentence.

use std::borrow::Cow;
use std::io;

/// The standard library writes the number of an error after this text.
const NUMBER: &str = " (os error ";

/// Returns a text with the errors of the system as they read in a sentence: without their number
/// and without a capital letter.
#[must_use]
pub(crate) fn in_sentence(text: &str) -> Cow<'_, str> {
    let (mut sentence, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(NUMBER)
        && let Some((number, end)) = after.split_once(')')
        && let Ok(number) = number.parse()
    {
        let error = io::Error::from_raw_os_error(number).to_string();
        let reason = error.split_once(NUMBER).map_or("", |(reason, _)| reason);
        match before.strip_suffix(reason) {
            Some(start) => sentence.extend([start, &uncapitalized(reason)]),
            None => sentence.push_str(before),
        }
        rest = end;
    }
    if sentence.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(sentence + rest) }
}

/// Returns a reason without its capital letter, unless it begins with an abbreviation.
fn uncapitalized(reason: &str) -> String {
    let mut letters = reason.chars();
    let first = letters.next().filter(|_| reason.chars().nth(1).is_some_and(char::is_lowercase));
    first.map_or_else(|| reason.to_owned(), |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_is_a_part_of_the_sentence() {
        let error = |number| io::Error::from_raw_os_error(number);
        for (text, expected) in [
            (
                format!("open x: {}; check the path", error(2)),
                "open x: no such file or directory; check the path",
            ),
            (
                format!("a: {}; b: {}", error(5), error(2)),
                "a: input/output error; b: no such file or directory",
            ),
            ("read x (os error y)".to_owned(), "read x (os error y)"),
            ("read x: gone (os error 2)".to_owned(), "read x: gone"),
            (String::new(), ""),
        ] {
            assert_eq!(in_sentence(&text), expected);
        }
        assert_eq!(
            (uncapitalized("RPC failed"), uncapitalized("")),
            ("RPC failed".into(), String::new())
        );
    }
}
