//! Content of records: bytes that cannot be compressed, and in which no 512 bytes occur twice.
//!
//! A record is a part of a buffer of random bytes; the next record begins one block later in it,
//! and every 512 bytes get a mark. Equal bytes are thus further apart than the ranges that file
//! systems compress, and the buffer still fits the processor's cache. Sizes are bytes.

use super::grid::Cell;
use crate::bench::target::AlignedBuffer;
use crate::random::{Random, mark};
use larder_core::units::BLOCK_BYTES_U64;

/// Blocks of the random buffer: twice the range that Btrfs and ZFS compress.
const SUPPLY_BLOCKS: u64 = 64;
/// Bits of a mark that count within one thread: 2^40 times 512 bytes.
const THREAD_SHIFT: u32 = 40;

/// The records of one thread.
pub(super) struct Records {
    buffer: AlignedBuffer,
    len: usize,
    /// Number of records made.
    count: u64,
    /// The mark of the next 512 bytes.
    mark: u64,
}

impl Records {
    /// Records for a thread, from a seed.
    pub(super) fn new(cell: &Cell, seed: u64, thread: u64) -> Self {
        let len = usize::try_from(cell.record_bytes).expect("a record fits memory");
        let supply = usize::try_from(SUPPLY_BLOCKS * BLOCK_BYTES_U64).expect("a small number");
        let mut buffer = AlignedBuffer::default();
        Random::from_seed(seed.wrapping_add(thread)).fill(buffer.of(supply + len));
        Records { buffer, len, count: 0, mark: thread << THREAD_SHIFT }
    }

    /// Returns the next record to write.
    pub(super) fn next_record(&mut self) -> &[u8] {
        let from = self.count % SUPPLY_BLOCKS * BLOCK_BYTES_U64;
        let from = usize::try_from(from).expect("within the supply");
        let record = &mut self.buffer.of(from + self.len)[from..];
        self.mark = mark(record, self.mark);
        self.count += 1;
        record
    }

    /// Returns the buffer for a record to read.
    pub(super) fn read_buffer(&mut self) -> &mut [u8] {
        self.buffer.of(self.len)
    }
}

/// Returns the first mark of the record that a thread writes after `before` others.
#[cfg(test)]
pub(super) fn first_mark(cell: &Cell, thread: u64, before: u64) -> u64 {
    (thread << THREAD_SHIFT) + before * cell.record_bytes.div_ceil(crate::random::MARK_EVERY as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mark_bytes;
    use std::collections::BTreeSet;

    #[test]
    fn no_512_bytes_are_written_twice_and_each_record_can_be_told() {
        let mut seen = BTreeSet::new();
        for record_bytes in [4096, 1536, 65_536] {
            let cell = Cell { file_bytes: 1 << 20, record_bytes };
            for thread in 0..2 {
                let mut records = Records::new(&cell, 1 + record_bytes, thread);
                for number in 0..200 {
                    let record = records.next_record();
                    assert_eq!(record.len() as u64, record_bytes);
                    assert_eq!(record.as_ptr().align_offset(4096), 0, "for direct I/O");
                    let known = mark_bytes(first_mark(&cell, thread, number));
                    assert_eq!(record[..8], known);
                    assert!(record.chunks(512).all(|part| seen.insert(part.to_vec())));
                }
            }
        }
    }

    #[test]
    fn neighbors_have_nothing_in_common() {
        let cell = Cell { file_bytes: 1 << 20, record_bytes: 4096 };
        let mut records = Records::new(&cell, 1, 0);
        // A compressor would look for repetitions in the bytes after the mark.
        let tails: BTreeSet<Vec<u8>> =
            (0..64).map(|_| records.next_record()[8..40].to_vec()).collect();
        assert_eq!(tails.len(), 64);
    }
}
