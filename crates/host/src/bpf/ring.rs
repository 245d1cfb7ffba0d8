//! Records from BPF programs to this process, in a ring buffer that both map.
//!
//! The layout is that of kernel/bpf/ringbuf.c: a page with the consumer position, a page with the
//! producer position, and the data pages, which are mapped twice so that no record wraps. Each
//! record has a header of 8 bytes: its length, and a bit that is set while a program writes the
//! record.
//!
//! Invariant: the reader reads a record only after its header marks it complete, and returns the
//! space to the producers only after it passed the record on.

use crate::syscall::bpf::{Map, MapKind, MapSpec, Shared};
use std::io;
use std::sync::atomic::Ordering;

const BUSY: u64 = 1 << 31;
const DISCARDED: u64 = 1 << 30;
const HEAD: u64 = 8;
const WORD: u64 = 8;

/// A BPF ring buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    map: Map,
    reader: Shared,
    records: Shared,
    bytes: u64,
    page_words: u64,
    record: Vec<u64>,
}

impl Ring {
    /// Creates a ring buffer of about `bytes`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn make(bytes: u64) -> io::Result<Ring> {
        let page = u64::try_from(rustix::param::page_size()).expect("a page is small");
        let bytes = bytes.clamp(page, 1 << 30).next_power_of_two();
        let entries = u32::try_from(bytes).expect("at most 2^30");
        let kind = MapKind::Ring;
        let spec = MapSpec { kind, key_bytes: 0, value_bytes: 0, entries, flags: 0 };
        let map = Map::make(spec, None)?;
        let size = |bytes: u64| usize::try_from(bytes).expect("at most 2^31 and a page");
        let reader = map.share(0, size(page), true)?;
        let records = map.share(page, size(page + 2 * bytes), false)?;
        Ok(Ring { map, reader, records, bytes, page_words: page / WORD, record: Vec::new() })
    }

    /// Returns the file descriptor of the map, as programs name it.
    pub(crate) fn number(&self) -> i32 {
        self.map.number()
    }

    fn word(&self, place: u64, order: Ordering) -> u64 {
        let place = usize::try_from(place).expect("within the mapping");
        self.records.read(place, order)
    }

    /// Passes each complete record to `each`, as words, up to the first record that a program is
    /// still writing.
    pub(crate) fn empty(&mut self, mut each: impl FnMut(&[u64])) {
        let mut at = self.reader.read(0, Ordering::Relaxed);
        let end = self.word(0, Ordering::Acquire);
        while at < end {
            let place = self.page_words + at % self.bytes / WORD;
            let head = self.word(place, Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            // The upper half of the header is private to the producers.
            let length = head & (DISCARDED - 1);
            if head & DISCARDED == 0 {
                let mut record = std::mem::take(&mut self.record);
                record.clear();
                let words = 1..=length / WORD;
                record.extend(words.map(|word| self.word(place + word, Ordering::Relaxed)));
                each(&record);
                self.record = record;
            }
            at += (HEAD + length).next_multiple_of(WORD);
            self.reader.write(0, at, Ordering::Release);
        }
    }
}
