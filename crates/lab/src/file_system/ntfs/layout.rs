//! Sizes and places of the parts of an NTFS volume. All numbers are bytes, except where stated.

use std::ops::Range;

/// A cluster, as on volumes of 2 GB to 2 TB (Microsoft, "Default cluster size for NTFS, FAT, and
/// exFAT", KB 140365). It is also a page of the system's cache.
pub(super) const CLUSTER: u64 = 4096;
/// A record of the master file table (Microsoft, "How NTFS Works", 2003).
const RECORD: u64 = 1024;
/// Records of the table before that of the first file: 16 of metadata files, and 8 that are
/// reserved (linux-ntfs, "NTFS Documentation": `$MFT`).
const FIRST_RECORD: u64 = 24;
/// A block of a directory: an index record (linux-ntfs: `$Boot`, clusters per index record).
pub(super) const DIRECTORY_BLOCK: u64 = 4096;
/// An entry of a directory: 16 bytes of header and a file name attribute of 66 bytes and 2 for
/// each of 5 characters, aligned to 8 (linux-ntfs: `$I30`, `$FILE_NAME`).
const ENTRY: u64 = 96;
/// Entries of a block. 42 fit after its header of 64 bytes; blocks of a B-tree are on average
/// filled to ln 2 (A. Yao, "On random 2-3 trees", Acta Informatica 9, 1978).
pub(super) const ENTRIES: u64 = 28;
/// The longest log file (Microsoft, `chkdsk /l`: 65,536 KB).
pub(super) const JOURNAL: u64 = 64 << 20;
/// The share of the volume at its start that is reserved for the master file table (Microsoft, "How
/// NTFS reserves space for its Master File Table", KB 174619).
const ZONE_SHARE: u64 = 8;

/// The headers of a log record: `LFS_RECORD_HDR` of 48 bytes, `LOG_REC_HDR` of 32, and the number
/// of one cluster (Linux, `fs/ntfs3/fslog.c`).
const LOG_HEADERS: u64 = 48 + 32 + 8;
/// A range of bits of a bitmap in a log record (`BITMAP_RANGE`, same file).
const LOG_BITS: u64 = 8;
/// The lengths of a file in a log record (`NEW_ATTRIBUTE_SIZES`, same file), and a part of its
/// list of extents.
const LOG_LENGTHS: u64 = 32;
const LOG_EXTENT: u64 = 8;
/// The used part of the record of a file with one or a few extents: a header of 56 bytes, standard
/// information of 96, a file name of 104, the list of extents with a header of 72, and the end mark
/// of 8 (linux-ntfs: `FILE record`).
const RECORD_USED: u64 = 56 + 96 + 104 + 72 + 8;

/// Bytes that are logged for a new file with this number of extents: the bit of its record, the
/// record, the entry, the bits of its extents, and the end of the transaction.
pub(super) fn log_of_creation(extents: u64) -> u64 {
    log_of_bits(1) + LOG_HEADERS + RECORD_USED + LOG_HEADERS + ENTRY + log_of_bits(extents) + END
}

/// Bytes that are logged for a file that becomes longer by this number of extents: their bits, the
/// list of extents, the lengths in the record and in the entry, and the end of the transaction.
pub(super) fn log_of_growth(extents: u64) -> u64 {
    let of_list = LOG_HEADERS + 2 * LOG_EXTENT;
    let of_lengths = LOG_HEADERS + 2 * LOG_LENGTHS;
    log_of_bits(extents) + extents * of_list + 2 * of_lengths + END
}

/// Bytes that are logged for a removed file: those of its creation, since a log record has what
/// undoes it.
pub(super) fn log_of_removal(extents: u64) -> u64 {
    log_of_creation(extents)
}

const END: u64 = LOG_HEADERS;

fn log_of_bits(ranges: u64) -> u64 {
    ranges * (LOG_HEADERS + 2 * LOG_BITS)
}

/// The places of the parts: at the start of the volume the bitmap and the master file table with
/// its reserved zone, then the data, and the journal in the middle of the volume (linux-ntfs,
/// "Layout of a volume").
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    records: u64,
    data: u64,
    journal: u64,
}

impl Layout {
    /// Returns the places on a volume with this many bytes of data.
    ///
    /// # Panics
    /// If the volume is too small.
    pub(super) fn new(volume_bytes: u64, data_bytes: u64) -> Self {
        let whole = |bytes: u64| bytes / CLUSTER * CLUSTER;
        let records = data_bytes.div_ceil(CLUSTER * 8).next_multiple_of(CLUSTER);
        let data = whole(volume_bytes / ZONE_SHARE);
        let journal = whole(volume_bytes / 2);
        let fits = records < data && data + data_bytes <= journal;
        assert!(fits && journal + JOURNAL <= volume_bytes, "room for the parts of a volume");
        Layout { records, data, journal }
    }

    /// Returns the volume's bytes of a range of the data.
    pub(super) fn data(&self, range: &Range<u64>) -> Range<u64> {
        self.data + range.start..self.data + range.end
    }

    /// Returns the first byte of the journal.
    pub(super) fn journal(&self) -> u64 {
        self.journal
    }

    /// Returns the bytes of the record of a file or directory with this number.
    pub(super) fn record(&self, number: u64) -> Range<u64> {
        let start = self.records + (FIRST_RECORD + number) * RECORD;
        assert!(start + RECORD <= self.data, "a record in its zone");
        start..start + RECORD
    }
}

/// Returns the blocks of the bitmap for a range of the data; the bitmap is the first part of the
/// volume.
pub(super) fn bitmap(range: &Range<u64>) -> Range<u64> {
    const COVERED: u64 = CLUSTER * CLUSTER * 8;
    range.start / COVERED * CLUSTER..range.end.div_ceil(COVERED) * CLUSTER
}
