//! `.lis` of the ARC papers: start page, number of pages, a number that is ignored, request number.
//! Pages of 512 bytes; a request has `pages` references. No times, no operations: all are reads.

use super::text::{LineFormat, take_word, take_word_number};
use super::{Addressing, DecodeOutput, FormatError, Record, SECTOR_BYTES, sectors};

/// `.lis`.
#[derive(Debug)]
pub(in super::super) struct Lis;

impl LineFormat for Lis {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let start = take_word_number(rest).ok_or("the start page is not a number")?;
        let pages = take_word_number(rest).ok_or("the number of pages is not a number")?;
        take_word_number(rest).ok_or("the third field is not a number")?;
        take_word_number(rest).ok_or("the number of the request is not a number")?;
        if !take_word(rest).is_empty() {
            return Err("more than four fields");
        }
        let (offset, len) = (sectors(start)?, sectors(pages)?);
        out.push(Record { offset, len, ..Record::default() })
    }

    fn addressing(&self) -> Addressing {
        Addressing::Pages { bytes: u32::try_from(SECTOR_BYTES).expect("512") }
    }
}
