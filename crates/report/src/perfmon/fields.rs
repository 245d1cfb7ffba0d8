//! Fields of one line of a log: separated, some of them quoted.
//!
//! Invariants: a field ends with its line, so an unclosed quote affects one line; no line has more
//! than [`FIELDS_MAX`] fields.

use std::borrow::Cow;

/// Maximum number of fields of a line: a log of all counters of a large machine has some 50,000.
pub(super) const FIELDS_MAX: usize = 100_000;

/// Returns the separator of a log: the most frequent candidate in its first line, outside quotes.
pub(super) fn separator(first: &str) -> u8 {
    let mut counts = [(b',', 0_u64), (b';', 0), (b'\t', 0)];
    let mut in_quotes = false;
    for byte in first.bytes() {
        in_quotes ^= byte == b'"';
        for (separator, count) in &mut counts {
            *count += u64::from(byte == *separator && !in_quotes);
        }
    }
    // The last of equally frequent ones, so that a log without counters has a separator as well.
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(b',', |(separator, _)| separator)
}

/// Splits a line into its fields.
///
/// # Errors
/// A sentence with the reason.
pub(super) fn split(line: &str, separator: u8) -> Result<Vec<Cow<'_, str>>, String> {
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(text) = rest {
        if fields.len() == FIELDS_MAX {
            return Err(format!("it has more than {FIELDS_MAX} fields"));
        }
        let (field, rest_after) = if text.starts_with('"') {
            quoted(text, separator).ok_or("a quote is not closed")?
        } else {
            let end = text.bytes().position(|byte| byte == separator);
            let field = Cow::Borrowed(&text[..end.unwrap_or(text.len())]);
            (field, end.map(|end| &text[end + 1..]))
        };
        fields.push(field);
        rest = rest_after;
    }
    Ok(fields)
}

/// Returns the field that starts with a quote, and the text after its separator; `None` if the
/// quote is not closed.
fn quoted(text: &str, separator: u8) -> Option<(Cow<'_, str>, Option<&str>)> {
    let mut field = Cow::Borrowed("");
    let mut from = 1;
    loop {
        let end = from + text[from..].find('"')?;
        let part = &text[from..end];
        match text.as_bytes().get(end + 1) {
            Some(b'"') => {
                field.to_mut().push_str(part);
                field.to_mut().push('"');
                from = end + 2;
            }
            next => {
                if field.is_empty() {
                    field = Cow::Borrowed(part);
                } else {
                    field.to_mut().push_str(part);
                }
                return match next {
                    None => Some((field, None)),
                    Some(byte) if *byte == separator => Some((field, Some(&text[end + 2..]))),
                    Some(_) => None,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_cut_at_separators_outside_of_quotes() {
        let known: [(&str, &[&str]); 6] = [
            ("a,b", &["a", "b"]),
            ("\"a,b\",c,", &["a,b", "c", ""]),
            ("\"say \"\"x\"\"\",y", &["say \"x\"", "y"]),
            ("\"\"\"\"", &["\""]),
            ("", &[""]),
            (",\"\"", &["", ""]),
        ];
        for (line, fields) in known {
            assert_eq!(split(line, b',').unwrap(), fields, "{line}");
        }
        for wrong in ["\"a", "a,\"b\"\"", "\"a\"b,c"] {
            assert_eq!(split(wrong, b',').unwrap_err(), "a quote is not closed", "{wrong}");
        }
        let wide = ",".repeat(FIELDS_MAX);
        assert!(split(&wide, b',').unwrap_err().contains("more than 100000 fields"));
        assert_eq!(split(&wide[1..], b',').unwrap().len(), FIELDS_MAX);
    }

    #[test]
    fn the_separator_is_what_the_first_line_has_most_of() {
        assert_eq!(separator("\"a;b;c\",\"d\""), b',');
        assert_eq!(separator("\"a,b,c\";\"d\""), b';');
        assert_eq!(separator("\"a\"\t\"d\""), b'\t');
    }
}
