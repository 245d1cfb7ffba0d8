//! A raw page of a ring buffer, as `trace_pipe_raw` returns it: a time, a length, and records, each
//! after a header of four bytes (`include/linux/ring_buffer.h`).
//!
//! Invariant: a truncated or malformed page ends the iteration; no access leaves the page.

use super::format;
use std::ops::Range;

/// The kernel lost events before this page.
const MISSED_EVENTS: u64 = 1 << 31;
/// The count of lost events follows the data.
const MISSED_STORED: u64 = 1 << 30;
/// Number of low bits of an absolute time that a record carries; the upper bits are those of the
/// previous time.
const TIME_BITS: u32 = 59;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLayout {
    time: format::Field,
    commit: format::Field,
    data: usize,
    pub(super) bytes: usize,
}

impl PageLayout {
    /// Parses `events/header_page`.
    pub(super) fn parse(text: &str) -> Option<PageLayout> {
        let fields: Vec<_> = text.lines().filter_map(format::field).collect();
        let find = |name| fields.iter().find(|(known, _)| known == name).map(|&(_, field)| field);
        let (time, commit, data) = (find("timestamp")?, find("commit")?, find("data")?);
        // Some kernels use the upper half of the commit field for flags.
        let commit = format::Field { size: commit.size.min(4), ..commit };
        Some(PageLayout { time, commit, data: data.offset, bytes: data.offset + data.size })
    }

    pub(super) fn records<'a>(&self, page: &'a [u8]) -> Records<'a> {
        let commit = self.commit.unsigned(page);
        let length = usize::try_from(commit & (MISSED_STORED - 1)).unwrap_or(usize::MAX);
        let end = self.data.saturating_add(length).min(page.len());
        let missed = commit & MISSED_EVENTS != 0;
        let stored_count = format::Field { offset: end, size: 8 }.unsigned(page);
        Records {
            page,
            at: self.data.min(end),
            end,
            time: self.time.unsigned(page),
            missed: match (missed, commit & MISSED_STORED != 0) {
                (false, _) => 0,
                (true, true) => stored_count.max(1),
                (true, false) => 1,
            },
        }
    }
}

/// Iterator over the records of a page, each with its time in nanoseconds and its byte range.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    page: &'a [u8],
    /// Start of the unread data.
    at: usize,
    pub(super) end: usize,
    time: u64,
    /// Events that the kernel lost before the first record; at least 1 if it lost any.
    pub(super) missed: u64,
}

impl Records<'_> {
    fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.end)?;
        Some(std::mem::replace(&mut self.at, end)..end)
    }

    fn word(&mut self) -> Option<u32> {
        let range = self.take(4)?;
        self.page[range].try_into().ok().map(u32::from_le_bytes)
    }
}

impl Iterator for Records<'_> {
    type Item = (u64, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let header = self.word()?;
            let (kind, delta) = (header & 31, u64::from(header >> 5));
            match kind {
                29 if delta == 0 => return None,
                29 => {
                    // A discarded record; its length counts from the end of the header.
                    let length = usize::try_from(self.word()?).ok()?;
                    self.take(length.checked_sub(4)?)?;
                    self.time = self.time.wrapping_add(delta);
                }
                30 => {
                    let high = u64::from(self.word()?);
                    self.time = self.time.wrapping_add((high << 27) | delta);
                }
                31 => {
                    let high = u64::from(self.word()?);
                    let upper = self.time >> TIME_BITS << TIME_BITS;
                    self.time = upper | ((high << 27) | delta);
                }
                0 => {
                    let length = usize::try_from(self.word()?).ok()?;
                    self.time = self.time.wrapping_add(delta);
                    return Some((self.time, self.take(length.checked_sub(4)?)?));
                }
                words => {
                    self.time = self.time.wrapping_add(delta);
                    return Some((self.time, self.take(4 * usize::try_from(words).ok()?)?));
                }
            }
        }
    }
}
