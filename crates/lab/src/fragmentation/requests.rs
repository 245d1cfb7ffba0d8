//! Requests to files: those of a trace, or made from counts, or one read of each file.

use crate::random::Random;
use larder_core::store::StoreOpKind;
use larder_core::units::{BLOCK_BYTES_U64, as_f64};
use larder_schema::as_u64;
use larder_schema::watch::Counts;

/// Length of the reads of a whole file: the default read-ahead of Linux (`read_ahead_kb`).
const READ_BYTES: u64 = 128 << 10;
/// Maximum bytes of a file that are read.
const READ_MAX: u64 = 64 << 20;
/// Maximum requests that are made from counts, of all files together.
const MADE_MAX: u64 = 20_000;
/// Maximum length of a request that is made.
const LEN_MAX: u64 = 1 << 20;
/// Share of the read pages in order from which on a file is read in order.
const IN_ORDER: f64 = 0.5;

/// A read or a write of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRequest {
    /// Index of the file.
    pub file: usize,
    /// Kind of the operation.
    pub kind: StoreOpKind,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
}

impl FileRequest {
    /// Returns the first byte behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Returns requests that read each file of these lengths once, in order, in the pieces of the
/// kernel's read-ahead: the first 64 MiB of each.
#[must_use]
pub fn one_read(files: &[u64]) -> Vec<FileRequest> {
    let of_file = |(file, bytes): (usize, &u64)| {
        let bytes = (*bytes).min(READ_MAX);
        (0..bytes.div_ceil(READ_BYTES)).map(move |number| {
            let offset = number * READ_BYTES;
            let len = READ_BYTES.min(bytes - offset);
            FileRequest { file, kind: StoreOpKind::Read, offset, len }
        })
    };
    files.iter().enumerate().flat_map(of_file).collect()
}

/// Returns requests with the numbers and mean lengths of counts of files: for each file its length,
/// and the accesses. Pages that were found in the page cache need no request. The requests of all
/// files alternate; reads are in order or at random places, as most of the recorded ones were, and
/// writes at random places.
///
/// The second value is the number of recorded reads that the page cache served completely.
#[must_use]
pub fn of_counts(files: &[(u64, Counts)], page_bytes: u64, seed: u64) -> (Vec<FileRequest>, u64) {
    let loads: Vec<Load> = files.iter().enumerate().map(|it| Load::new(it, page_bytes)).collect();
    let all: f64 = loads.iter().map(|load| load.reads + load.writes).sum();
    let scale = (as_f64(MADE_MAX) / all.max(1.0)).min(1.0);
    let mut random = Random::from_seed(seed);
    let mut requests: Vec<(f64, FileRequest)> = Vec::new();
    for load in &loads {
        let [reads, writes] =
            [load.reads, load.writes].map(|number| as_u64((number * scale).ceil()));
        let mut times: Vec<f64> = (0..reads + writes).map(|_| random.unit()).collect();
        times.sort_by(f64::total_cmp);
        let reads = (0..reads).map(|number| {
            let offset = if load.read_in_order {
                number.saturating_mul(load.read_len) % load.bytes.max(1)
            } else {
                load.random_place(load.read_len, &mut random)
            };
            load.request(StoreOpKind::Read, offset, load.read_len)
        });
        let mut of_file: Vec<FileRequest> = reads.collect();
        for _ in 0..writes {
            let offset = load.random_place(load.write_len, &mut random);
            let kind = StoreOpKind::Write { fua: false };
            let at = usize::try_from(random.below(of_file.len() as u64 + 1)).unwrap_or(0);
            of_file.insert(at, load.request(kind, offset, load.write_len));
        }
        requests.extend(times.into_iter().zip(of_file));
    }
    requests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let cached = files.iter().map(|(_, counts)| {
        let missed = counts.read_pages.saturating_sub(counts.hit_pages);
        let share = as_f64(missed) / as_f64(counts.read_pages.max(1));
        as_u64(as_f64(counts.read_requests) * (1.0 - share))
    });
    (requests.into_iter().map(|it| it.1).collect(), cached.sum())
}

/// The requests of a file to its device.
struct Load {
    file: usize,
    bytes: u64,
    reads: f64,
    read_len: u64,
    read_in_order: bool,
    writes: f64,
    write_len: u64,
}

impl Load {
    fn new((file, (bytes, counts)): (usize, &(u64, Counts)), page_bytes: u64) -> Load {
        let len = |bytes: u64, requests: u64| {
            (bytes / requests.max(1))
                .next_multiple_of(BLOCK_BYTES_U64)
                .clamp(BLOCK_BYTES_U64, LEN_MAX)
        };
        let read_in_order =
            as_f64(counts.in_order_pages) > IN_ORDER * as_f64(counts.read_pages.max(1));
        let read_len = if read_in_order {
            READ_BYTES
        } else {
            len(counts.read_pages * page_bytes, counts.read_requests)
        };
        // New pages of writes are added without a read.
        let read_pages = counts.added_pages.saturating_sub(counts.write_new_pages);
        let written = counts.dirtied_pages * page_bytes;
        let write_len = len(counts.write_bytes, counts.write_requests);
        Load {
            file,
            bytes: *bytes,
            reads: as_f64(read_pages * page_bytes) / as_f64(read_len),
            read_len,
            read_in_order,
            writes: as_f64(written) / as_f64(write_len),
            write_len,
        }
    }

    fn random_place(&self, len: u64, random: &mut Random) -> u64 {
        random.below((self.bytes / len).max(1)) * len
    }

    fn request(&self, kind: StoreOpKind, offset: u64, len: u64) -> FileRequest {
        FileRequest { file: self.file, kind, offset, len }
    }
}
