//! Text from foreign names: file, process, volume and host names, and whatever else a file, a
//! client or another user chose.
//!
//! Such a name may hold terminal control sequences, line breaks, or characters that change the
//! order in which the rest of the line is shown. There is one way to print it for each medium:
//!
//! * terminals and logs: [`name`], as GNU ls does it. A name that is safe is printed as it is; any
//!   other as a string that bash, zsh and ksh read back: `$'a\033[31m'`.
//! * HTML: [`html`]. OpenMetrics: [`label`]. JSON needs nothing of this.
//!
//! [`Terminal`] and [`line()`] are the guard behind that, at the place where a program writes: what
//! reaches a terminal by another way comes out as `\u001b`. Names that were escaped before pass
//! unchanged. Invariant: neither prints a control character, except a line break or tab where the
//! caller allows them.

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether a character does something else than appear at its place: C0 and C1 controls, line and
/// paragraph separators, and those that change the direction of text (Unicode Standard Annex 9,
/// section 2, and the Arabic letter mark).
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name for a terminal. The result has no control character and is one line; two different names
/// never look the same.
#[must_use]
pub fn name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.starts_with("$'") && !text.contains(is_unsafe) => Cow::Borrowed(text),
        _ => Cow::Owned(quoted(name)),
    }
}

/// The same of text.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    name(text.as_bytes())
}

/// The same of a path.
#[must_use]
pub fn path(path: &Path) -> Cow<'_, str> {
    name(path.as_os_str().as_bytes())
}

/// The name in the quotes of the shell for control characters.
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

/// A message or log entry as one line, without its end: what is unsafe in it is written as in a
/// string of JSON, a line break as `\n`.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if text.contains(is_unsafe) { Cow::Owned(guarded(text, false)) } else { Cow::Borrowed(text) }
}

/// Text with what is unsafe written as in a string of JSON, but for line breaks and tabs if they
/// are `allowed`. In a JSON text such characters stand in strings alone, so it keeps its meaning.
fn guarded(text: &str, allowed: bool) -> String {
    let mut guarded = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' if allowed => guarded.push(character),
            '\n' => guarded.push_str("\\n"),
            '\t' => guarded.push_str("\\t"),
            other if is_unsafe(other) => put!(guarded, "\\u{:04x}", u32::from(other)),
            other => guarded.push(other),
        }
    }
    guarded
}

/// A writer to a terminal, or to what may be shown on one later, that lets no control character
/// pass but line breaks and tabs. Bytes that are not UTF-8 become `\xff`.
#[derive(Debug)]
pub struct Terminal<W: Write> {
    to: W,
    /// The begin of a character whose other bytes were not written yet.
    begun: Vec<u8>,
}

impl<W: Write> Terminal<W> {
    /// Guards a writer.
    pub fn new(to: W) -> Self {
        Terminal { to, begun: Vec::new() }
    }
}

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut whole = std::mem::take(&mut self.begun);
        whole.extend_from_slice(bytes);
        let mut safe = String::with_capacity(whole.len());
        let mut rest = whole.len();
        for chunk in whole.utf8_chunks() {
            safe.push_str(&guarded(chunk.valid(), true));
            rest -= chunk.valid().len() + chunk.invalid().len();
            let may_go_on = std::str::from_utf8(chunk.invalid())
                .is_err_and(|error| error.error_len().is_none() && rest == 0);
            if may_go_on {
                self.begun.extend_from_slice(chunk.invalid());
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
        for byte in std::mem::take(&mut self.begun) {
            write!(self.to, "\\x{byte:02x}")?;
        }
        self.to.flush()
    }
}

/// Text for HTML, in elements and in attributes.
#[must_use]
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            // No other control character may stand in HTML, not even as a reference.
            other if is_unsafe(other) => put!(escaped, "\\u{:04x}", u32::from(other)),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The value of a label, or a help text, of OpenMetrics.
#[must_use]
pub fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A name of everything that a terminal should not see.
    const HOSTILE: &str = "a\u{1b}[31m\u{7}\r\n\tb\u{7f}\u{9b}0m\u{202e}\u{2066}\u{200f}'\\c";

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
            // Not what another name looks like.
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
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
