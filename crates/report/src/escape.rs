//! Escaping of foreign text: names of files, processes, volumes and hosts, and all other text that
//! a file, a client or another user chose.
//!
//! Such a name may hold terminal control sequences, line breaks, or characters that change the
//! order of the rest of the line. Each medium has one function to print it:
//!
//! * terminals and logs: [`name`], as in GNU ls. A safe name is printed unchanged; any other as a
//!   string that bash, zsh and ksh read back: `$'a\033[31m'`.
//! * HTML: [`html`]. OpenMetrics: [`label`]. JSON needs no further escaping, except by [`line()`]
//!   as a part of a page.
//!
//! [`Terminal`] and [`line()`] are a second guard where a program writes its output: unescaped
//! characters are printed as `\u001b`, and escaped names pass unchanged. Invariant: neither prints
//! a control character, except a line break or tab where the caller allows them.

use crate::system_errors;
use std::borrow::Cow;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns true if a character has an effect other than its glyph, or no glyph: C0 and C1 controls,
/// line and paragraph separators, and the characters that the Unicode Character Database
/// (`DerivedCoreProperties.txt`, `Default_Ignorable_Code_Point`) lists as not displayed, which
/// include those that change the direction of text.
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fff8}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Escapes a name for a terminal. The result is one line without control characters; two different
/// names never look the same.
#[must_use]
pub fn name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.starts_with("$'") && !text.contains(is_unsafe) => Cow::Borrowed(text),
        _ => Cow::Owned(quoted(name)),
    }
}

/// Escapes text in the same way.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    name(text.as_bytes())
}

/// Escapes a path in the same way.
#[must_use]
pub fn path(path: &Path) -> Cow<'_, str> {
    name(path.as_os_str().as_bytes())
}

/// Quotes a name in the shell's syntax for control characters.
fn quoted(name: &[u8]) -> String {
    let mut quoted = String::from("$'");
    let octal = |to: &mut String, byte: &u8| put!(to, "\\{byte:03o}");
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                '\\' | '\'' => quoted.extend(['\\', character]),
                other if is_unsafe(other) => {
                    let mut bytes = [0; 4];
                    let bytes = other.encode_utf8(&mut bytes).as_bytes();
                    for byte in bytes {
                        octal(&mut quoted, byte);
                    }
                }
                other => quoted.push(other),
            }
        }
        for byte in chunk.invalid() {
            octal(&mut quoted, byte);
        }
    }
    quoted.push('\'');
    quoted
}

/// Returns a word of bash that is exactly this text, always in quotation marks, on one line and
/// without control characters.
#[must_use]
pub fn shell_word(text: &str) -> String {
    if text.contains(|it| it == '\'' || is_unsafe(it)) {
        quoted(text.as_bytes())
    } else {
        format!("'{text}'")
    }
}

/// Escapes a message or log entry as one line, without its end: unsafe characters are written as in
/// a JSON string, a line break as `\n`. Errors of the system lose their number and capital letter.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    let text = system_errors::in_sentence(text);
    if text.contains(is_unsafe) { Cow::Owned(guarded(&text, false)) } else { text }
}

/// Writes unsafe characters of a text as in a JSON string, except line breaks and tabs if they are
/// `allowed`. In JSON such characters occur only in strings, so a JSON text keeps its meaning.
fn guarded(text: &str, allowed: bool) -> String {
    replaced(text, |character| match character {
        '\n' | '\t' if allowed => None,
        '\n' => Some("\\n".to_owned()),
        '\t' => Some("\\t".to_owned()),
        // JSON escapes a character above U+FFFF as a surrogate pair.
        other if is_unsafe(other) => {
            let mut escaped = String::new();
            for unit in other.encode_utf16(&mut [0; 2]) {
                put!(escaped, "\\u{unit:04x}");
            }
            Some(escaped)
        }
        _ => None,
    })
}

/// Replaces the characters for which `replacement` returns one.
fn replaced(text: &str, replacement: impl Fn(char) -> Option<String>) -> String {
    let mut replaced = String::with_capacity(text.len());
    for character in text.chars() {
        match replacement(character) {
            Some(text) => replaced.push_str(&text),
            None => replaced.push(character),
        }
    }
    replaced
}

/// A writer for text that may reach a terminal. It passes no control characters except line breaks
/// and tabs. Bytes that are not UTF-8 become `\xff`.
#[derive(Debug)]
pub struct Terminal<W: Write> {
    to: W,
    /// The first bytes of a character that is not complete yet.
    partial: Vec<u8>,
}

impl<W: Write> Terminal<W> {
    /// Wraps a writer.
    pub fn new(to: W) -> Self {
        Terminal { to, partial: Vec::new() }
    }
}

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(bytes);
        let mut safe = String::with_capacity(whole.len());
        let mut rest = whole.len();
        for chunk in whole.utf8_chunks() {
            safe.push_str(&guarded(chunk.valid(), true));
            rest -= chunk.valid().len() + chunk.invalid().len();
            let is_incomplete = std::str::from_utf8(chunk.invalid())
                .is_err_and(|error| error.error_len().is_none() && rest == 0);
            if is_incomplete {
                self.partial.extend_from_slice(chunk.invalid());
            } else {
                for byte in chunk.invalid() {
                    put!(safe, "\\x{byte:02x}");
                }
            }
        }
        self.to.write_all(safe.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        for byte in std::mem::take(&mut self.partial) {
            write!(self.to, "\\x{byte:02x}")?;
        }
        self.to.flush()
    }
}

/// Escapes text for HTML, in elements and in attributes. At the start of a word, `+-` becomes a
/// plus-minus sign, which texts for terminals cannot have.
#[must_use]
pub fn html(text: &str) -> String {
    replaced(&with_plus_minus(text), |character| {
        Some(match character {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            '\n' => "&#10;".to_owned(),
            '\t' => "&#9;".to_owned(),
            // HTML permits no other control character, not even as a reference.
            other if is_unsafe(other) => format!("\\u{:04x}", u32::from(other)),
            _ => return None,
        })
    })
}

/// Returns the text with a sign for each `+-` that is a word or precedes a digit; those in the
/// middle of a word, as in a file name, are kept.
fn with_plus_minus(text: &str) -> Cow<'_, str> {
    const ASCII: &str = "+-";
    if !text.contains(ASCII) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(ASCII);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_start = replaced.chars().next_back().is_none_or(|last| " (,".contains(last));
        let is_sign = part.chars().next().is_none_or(|next| next == ' ' || next.is_ascii_digit());
        replaced.push_str(if is_start && is_sign { "\u{b1}" } else { ASCII });
        replaced.push_str(part);
    }
    Cow::Owned(replaced)
}

/// Escapes the value of a label, or a help text, of OpenMetrics. OpenMetrics has an escape for line
/// breaks only, so other unsafe characters become the text `\u001b`.
#[must_use]
pub fn label(text: &str) -> String {
    replaced(text, |character| match character {
        '\n' => Some("\\n".to_owned()),
        '\\' | '"' => Some(format!("\\{character}")),
        other if is_unsafe(other) => Some(format!("\\\\u{:04x}", u32::from(other))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A name with all characters that must not reach a terminal.
    const HOSTILE: &str =
        "a\u{1b}[31m\u{7}\r\n\tb\u{7f}\u{9b}0m\u{202e}\u{2066}\u{200f}\u{200b}\u{e0001}'\\c";

    #[test]
    fn names_are_shown_as_ls_shows_them() {
        for safe in ["", "a b", "C:\\Windows\\x", "it's", "\u{e4}\u{4e2d}\u{1f600}", "$x", "-n"] {
            assert!(matches!(text(safe), Cow::Borrowed(it) if it == safe), "{safe}");
        }
        for (hostile, shown) in [
            (&b"a\x1b[31m"[..], "$'a\\033[31m'"),
            (b"a\nb\tc\rd", "$'a\\nb\\tc\\rd'"),
            (b"\xff\\", "$'\\377\\\\'"),
            ("\u{9b}".as_bytes(), "$'\\302\\233'"),
            ("a\u{202e}txt".as_bytes(), "$'a\\342\\200\\256txt'"),
            // Two names must not look the same.
            ("a\u{200b}".as_bytes(), "$'a\\342\\200\\213'"),
            (b"$'a\\nb'", "$'$\\'a\\\\nb\\''"),
        ] {
            assert_eq!(name(hostile), shown);
            assert!(text(shown).starts_with("$'$"), "{shown} as a name of its own");
        }
    }

    #[test]
    fn the_shell_reads_an_escaped_name_back() {
        for hostile in [HOSTILE.as_bytes(), b"\xff\xfe\x80", b"$'x'", b"\x011"] {
            let command = format!("printf %s {}", name(hostile));
            let bash = std::process::Command::new("bash").args(["-c", &command]).output();
            assert_eq!(bash.expect("bash runs").stdout, hostile);
        }
        for word in [HOSTILE, "", "-n", "a b", "it's", "$(id)`id`\"!*?[a]~", "a\n"] {
            let command = format!("printf %s. {}", shell_word(word));
            assert!(!command.contains(is_unsafe), "{command}");
            let bash = std::process::Command::new("bash").args(["-c", &command]).output();
            assert_eq!(bash.expect("bash runs").stdout, format!("{word}.").as_bytes());
        }
    }

    #[test]
    fn nothing_unsafe_passes_the_guard_however_it_is_cut() {
        let bytes = [HOSTILE.as_bytes(), b"\xff\xc3", "\u{e4}".as_bytes()].concat();
        let mut known = Vec::new();
        Terminal::new(&mut known).write_all(&bytes).unwrap();
        for cut in 0..bytes.len() {
            let mut passed = Vec::new();
            let mut terminal = Terminal::new(&mut passed);
            terminal.write_all(&bytes[..cut]).unwrap();
            terminal.write_all(&bytes[cut..]).unwrap();
            terminal.flush().unwrap();
            assert_eq!(passed, known, "cut at {cut}");
        }
        let text = String::from_utf8(known).unwrap();
        assert!(!text.contains(|c| is_unsafe(c) && c != '\n' && c != '\t'), "{text:?}");
        assert!(text.contains("a\\u001b[31m\\u0007") && text.ends_with("c\\xff\\xc3\u{e4}"));
        assert!(!line(HOSTILE).contains(is_unsafe));
        let mut half = Vec::new();
        let mut terminal = Terminal::new(&mut half);
        terminal.write_all(b"\xe2\x80").unwrap();
        terminal.flush().unwrap();
        assert_eq!(half, b"\\xe2\\x80");
    }

    #[test]
    fn json_that_passes_the_guard_keeps_its_meaning() {
        let value = Value::String(HOSTILE.to_owned());
        let mut passed = Vec::new();
        write!(Terminal::new(&mut passed), "{value}").unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&passed).unwrap(), value);
    }

    #[test]
    fn html_and_labels_keep_text_inside() {
        assert_eq!(html("<a href='x'>\"&\u{1b}"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\\u001b");
        assert_eq!(html("+-5 % (+-1), +- is a"), "\u{b1}5 % (\u{b1}1), \u{b1} is a");
        assert_eq!(html("a+-5 +-b"), "a+-5 +-b", "names are kept");
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert_eq!(label("a\u{1b}\u{202e}"), "a\\\\u001b\\\\u202e");
        assert!(!label(HOSTILE).contains(is_unsafe));
    }
}
