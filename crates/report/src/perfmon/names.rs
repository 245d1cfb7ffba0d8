//! Counter names in another language, from the list of Windows: alternating numbers and names. The
//! registry contains the list for the language of each machine.

use super::text::{decode_line, fold, to_utf8};
use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// Maximum bytes of a list: that of a large machine has some 500 KB.
const BYTES_MAX: u64 = 16 << 20;

/// Counter names of one machine with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Numbers by folded name; several counters may share a name.
    numbers: HashMap<String, Vec<u32>>,
}

impl Names {
    /// Reads a list in the format that this command prints on that machine: `(Get-ItemProperty
    /// KEY).Counter`, where `KEY` is `'HKLM:\SOFTWARE\Microsoft\Windows
    /// NT\CurrentVersion\Perflib\CurrentLanguage'`. Returns `None` if the input is not such a list.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn read(list: impl BufRead) -> io::Result<Option<Names>> {
        let mut bytes = Vec::new();
        to_utf8(list)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(if bytes.len() as u64 > BYTES_MAX { None } else { Names::parse(&decode_line(&bytes)) })
    }

    fn parse(text: &str) -> Option<Names> {
        // In the registry itself, zeros terminate the entries.
        let parts = text.split(['\n', '\0']).map(str::trim).filter(|part| !part.is_empty());
        let mut names = Names::default();
        let mut number: Option<u32> = None;
        for part in parts {
            match number.take() {
                None => number = Some(part.parse().ok()?),
                Some(number) => names.numbers.entry(fold(part)).or_default().push(number),
            }
        }
        (number.is_none() && !names.numbers.is_empty()).then_some(names)
    }

    /// Returns the numbers of a folded name.
    pub(super) fn numbers(&self, name: &str) -> &[u32] {
        self.numbers.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_anything_else_is_not() {
        let read = |list: &[u8]| Names::read(list).expect("it can be read");
        let names =
            read(b"1\r\n1847\r\n86\r\nCache\r\n88\r\nZuordnungen/s\r\n10\r\nX\r\n288\r\nx\r\n")
                .expect("a list");
        assert_eq!(names.numbers("cache"), [86]);
        assert_eq!(names.numbers("x"), [10, 288]);
        assert!(names.numbers("y").is_empty());
        assert!(read(b"86\0Cache\0").is_some());
        for wrong in [&b""[..], b"Cache", b"86\nCache\n88", b"86\nCache\nx\ny"] {
            assert_eq!(read(wrong), None);
        }
    }
}
