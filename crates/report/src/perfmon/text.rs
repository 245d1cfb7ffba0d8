//! Bytes of a log into text: UTF-8, UTF-16 (what a PowerShell redirection writes) or Windows-1252
//! (what Perfmon itself writes in western countries).
//!
//! Invariant: any bytes become text; what is not UTF-8 and has no mark of UTF-16 is taken as
//! Windows-1252, in which every byte is a character.

/// The characters of Windows-1252 from 0x80 to 0x9f (Microsoft's table cp1252 of the Unicode
/// consortium); five places are not used.
const FROM_80: [u16; 32] = [
    0x20ac, 0xfffd, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039,
    0x0152, 0xfffd, 0x017d, 0xfffd, 0xfffd, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
    0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0xfffd, 0x017e, 0x0178,
];

/// The text that these bytes are.
pub(super) fn decode(bytes: &[u8]) -> String {
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        return String::from_utf8_lossy(rest).into_owned();
    }
    if let Some(rest) = bytes.strip_prefix(b"\xff\xfe") {
        return wide(rest, u16::from_le_bytes);
    }
    if let Some(rest) = bytes.strip_prefix(b"\xfe\xff") {
        return wide(rest, u16::from_be_bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_not_utf8) => bytes.iter().map(|&byte| windows_1252(byte)).collect(),
    }
}

fn wide(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, _odd) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    String::from_utf16_lossy(&units)
}

fn windows_1252(byte: u8) -> char {
    match byte {
        0x80..=0x9f => char::from_u32(FROM_80[usize::from(byte - 0x80)].into())
            .unwrap_or(char::REPLACEMENT_CHARACTER),
        _ => char::from(byte),
    }
}

/// A name as it is compared: without accents and capitals, with one kind of blank and apostrophe.
pub(super) fn fold(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for character in name.chars().flat_map(char::to_lowercase) {
        match character {
            '\u{e0}'..='\u{e5}' => folded.push('a'),
            '\u{e7}' => folded.push('c'),
            '\u{e8}'..='\u{eb}' => folded.push('e'),
            '\u{ec}'..='\u{ef}' => folded.push('i'),
            '\u{f1}' => folded.push('n'),
            '\u{f2}'..='\u{f6}' => folded.push('o'),
            '\u{f9}'..='\u{fc}' => folded.push('u'),
            '\u{df}' => folded.push_str("ss"),
            '\u{2018}' | '\u{2019}' => folded.push('\''),
            '\u{2013}' | '\u{2014}' => folded.push('-'),
            blank if blank.is_whitespace() => {
                if !folded.ends_with(' ') {
                    folded.push(' ');
                }
            }
            other => folded.push(other),
        }
    }
    folded.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_in_every_encoding() {
        let text = "Verf\u{fc}gbare Bytes";
        let mut little = vec![0xff, 0xfe];
        let mut big = vec![0xfe, 0xff];
        for unit in text.encode_utf16() {
            little.extend(unit.to_le_bytes());
            big.extend(unit.to_be_bytes());
        }
        let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
        let ansi: &[u8] = b"Verf\xfcgbare Bytes";
        for bytes in [text.as_bytes(), &marked, &little, &big, ansi] {
            assert_eq!(decode(bytes), text);
        }
        // An odd end, and the apostrophe and a place without a character of Windows-1252.
        assert_eq!(decode(b"\xff\xfea\0b"), "a");
        assert_eq!(decode(b"d\x92inactivit\xe9\x81"), "d\u{2019}inactivit\u{e9}\u{fffd}");
    }

    #[test]
    fn names_are_compared_without_accents_capitals_and_kinds_of_blanks() {
        let pairs = [
            ("\u{c9}critures disque/s", "ecritures disque/s"),
            ("% d\u{2019}inactivit\u{e9}", "% d'inactivite"),
            ("Verz\u{f6}gertes  Schreiben \u{2013} Seiten/s ", "verzogertes schreiben - seiten/s"),
            ("P\u{e1}ginas/s", "paginas/s"),
            ("Gr\u{f6}\u{df}e\u{a0}x", "grosse x"),
        ];
        for (name, folded) in pairs {
            assert_eq!(fold(name), folded);
        }
    }
}
