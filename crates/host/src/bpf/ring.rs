//! Records from BPF programs to this process, in a ring buffer that both map.
//!
//! The layout is that of kernel/bpf/ringbuf.c: a page with the consumer position, a page with the
//! producer position, and the data pages, which are mapped twice so that no record wraps. Each
//! record has a header of 8 bytes: its length, and a bit that is set while a program writes the
//! record.
//!
//! Invariant: the reader reads a record only after its header marks it complete, and returns the
//! space to the producers only after it passed the record on.

use crate::syscall::bpf::{Map, MapSpec, RING, SharedMemory};
use std::io;
use std::sync::atomic::Ordering;

const BUSY: u64 = 1 << 31;
const DISCARDED: u64 = 1 << 30;
const HEADER_BYTES: u64 = 8;
const WORD: u64 = 8;

#[derive(Debug)]
pub(crate) struct Ring {
    map: Map,
    consumer: SharedMemory,
    records: SharedMemory,
    bytes: u64,
    page_words: u64,
    record: Vec<u64>,
}

impl Ring {
    /// Creates a ring buffer of about `bytes`.
    pub(crate) fn make(bytes: u64) -> io::Result<Ring> {
        let page = u64::try_from(rustix::param::page_size()).expect("a page is small");
        let bytes = bytes.clamp(page, 1 << 30).next_power_of_two();
        let entries = u32::try_from(bytes).expect("at most 2^30");
        let map = Map::create(MapSpec { kind: RING, entries, ..MapSpec::default() }, None)?;
        let size = |bytes: u64| usize::try_from(bytes).expect("at most 2^31 and a page");
        let consumer = map.map_memory(0, size(page), true)?;
        let records = map.map_memory(page, size(page + 2 * bytes), false)?;
        Ok(Ring { map, consumer, records, bytes, page_words: page / WORD, record: Vec::new() })
    }

    /// Returns the file descriptor of the map, as programs name it.
    pub(crate) fn fd(&self) -> i32 {
        self.map.fd()
    }

    fn word(&self, index: u64, order: Ordering) -> u64 {
        let index = usize::try_from(index).expect("within the mapping");
        self.records.read(index, order)
    }

    /// Passes each complete record to `each`, as words, up to the first record that a program is
    /// still writing.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u64])) {
        let mut position = self.consumer.read(0, Ordering::Relaxed);
        let end = self.word(0, Ordering::Acquire);
        while position < end {
            let index = self.page_words + position % self.bytes / WORD;
            let header = self.word(index, Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            // The upper half of the header is private to the producers.
            let length = header & (DISCARDED - 1);
            if header & DISCARDED == 0 {
                let mut record = std::mem::take(&mut self.record);
                record.clear();
                let words = 1..=length / WORD;
                record.extend(words.map(|word| self.word(index + word, Ordering::Relaxed)));
                each(&record);
                self.record = record;
            }
            position += (HEADER_BYTES + length).next_multiple_of(WORD);
            self.consumer.write(0, position, Ordering::Release);
        }
    }
}
