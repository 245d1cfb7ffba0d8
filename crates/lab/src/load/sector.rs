//! The sectors that a load writes: each identifies its write.
//!
//! A sector is 512 bytes, 64 little-endian words: the id of the write, the number of the sector, a
//! checksum of both and the seed, and words computed from the checksum and their index. The first
//! two words determine the whole sector, so a mix of two writes, or a sector in the wrong place, is
//! detected.

use std::fmt;

/// Bytes of a sector.
pub(super) const SECTOR_BYTES: usize = 512;

const WORD_BYTES: usize = 8;
/// 2^64 over the golden ratio, an odd number whose bits have no pattern.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Low bits of an id, which count the writes of a connection; the high bits are the connection.
const COUNT_BITS: u32 = 40;

/// Returns the id of a connection's write; ids of a connection increase. No write has the id 0.
pub(super) fn id(connection: u64, count: u64) -> u64 {
    debug_assert!(count > 0 && count >> COUNT_BITS == 0, "a count fits its bits");
    connection << COUNT_BITS | count
}

/// The name of a write in messages: `CONNECTION.COUNT`.
pub(super) struct Name(pub(super) u64);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> COUNT_BITS, self.0 & ((1 << COUNT_BITS) - 1))
    }
}

/// The content of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Zeros: the sector was never written.
    Zeros,
    /// The complete data of this write.
    Intact(u64),
    /// The first words of this write's sector, and other data.
    Torn(u64),
    /// A complete sector that belongs to another location.
    Misplaced { id: u64, sector: u64 },
    /// Data that no load of this seed wrote.
    Foreign,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Content::Zeros => write!(f, "zeros"),
            Content::Intact(id) => write!(f, "write {}", Name(id)),
            Content::Torn(id) => write!(f, "a part of write {}", Name(id)),
            Content::Misplaced { id, sector } => {
                write!(f, "what write {} put into sector {sector}", Name(id))
            }
            Content::Foreign => write!(f, "data of no write"),
        }
    }
}

fn checksum(seed: u64, id: u64, sector: u64) -> u64 {
    let mut sum = seed;
    for word in [id, sector] {
        sum = (sum ^ word).wrapping_add(STEP);
        sum = (sum ^ sum >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum = (sum ^ sum >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        sum ^= sum >> 31;
    }
    sum
}

/// Returns the words after the first two.
fn tail(seed: u64, id: u64, sector: u64) -> impl Iterator<Item = [u8; WORD_BYTES]> {
    let sum = checksum(seed, id, sector);
    (0u64..).map(move |index| sum.wrapping_add(index.wrapping_mul(STEP)).to_le_bytes())
}

/// Generates the data of this write for the sectors from `first` on.
pub(super) fn fill(seed: u64, id: u64, first: u64, bytes: &mut [u8]) {
    for (bytes, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).zip(first..) {
        let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
        words[0] = id.to_le_bytes();
        words[1] = sector.to_le_bytes();
        for (word, value) in words[2..].iter_mut().zip(tail(seed, id, sector)) {
            *word = value;
        }
    }
}

/// Returns the content of a sector.
pub(super) fn classify(seed: u64, sector: u64, bytes: &[u8]) -> Content {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let (id, stored_sector) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
    if id == 0 {
        let zeros = words.iter().all(|word| *word == [0; WORD_BYTES]);
        return if zeros { Content::Zeros } else { Content::Foreign };
    }
    if u64::from_le_bytes(words[2]) != checksum(seed, id, stored_sector) {
        return Content::Foreign;
    }
    if words[2..].iter().zip(tail(seed, id, stored_sector)).any(|(word, value)| *word != value) {
        return Content::Torn(id);
    }
    if stored_sector == sector {
        Content::Intact(id)
    } else {
        Content::Misplaced { id, sector: stored_sector }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_known_only_whole_and_in_its_place() {
        let mut bytes = vec![0; 2 * SECTOR_BYTES];
        assert_eq!(classify(7, 10, &bytes[..SECTOR_BYTES]), Content::Zeros);
        let write = id(3, 9);
        fill(7, write, 10, &mut bytes);
        let (first, second) = bytes.split_at_mut(SECTOR_BYTES);
        assert_eq!(classify(7, 10, first), Content::Intact(write));
        assert_eq!(classify(7, 11, second), Content::Intact(write));
        assert_eq!(classify(7, 10, second), Content::Misplaced { id: write, sector: 11 });
        assert_eq!(classify(8, 10, first), Content::Foreign, "another seed");
        for at in 0..SECTOR_BYTES {
            first[at] ^= 1;
            let content = classify(7, 10, first);
            assert!(matches!(content, Content::Torn(_) | Content::Foreign), "byte {at}");
            first[at] ^= 1;
        }
        assert_eq!(Name(write).to_string(), "3.9");
    }
}
