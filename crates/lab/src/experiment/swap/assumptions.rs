//! The modeled laptop: the published parts, the disk, and assumptions about the rest.

use super::super::published::capacity;
use super::MIB;
use crate::cache_simulation::RequestTime;
use crate::model::DiskSpec;
use crate::workload::postmark::Config;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_schema::format;
use std::num::NonZero;

const GIB: u64 = 1 << 30;
/// The part of the volume that is in use, its free share, and how often it was replaced.
pub(super) const USED_BYTES: u64 = 4 * GIB;
pub(super) const FREE_PERCENT: u64 = 40;
pub(super) const REPLACED: u64 = 3;
/// The page file: the default of Windows XP, one and a half times the memory of 2 GB.
pub(super) const PAGE_FILE_BYTES: u64 = 3 * GIB;
/// Interval at which the log of NTFS is written (lazy writer: Microsoft, "File Caching").
pub(super) const COMMIT: Nanos = SECOND;
/// Bytes that the processor copies per second.
const COPIED_PER_S: u64 = 500_000_000;

/// The parts of the laptop that are not published, and the disk.
#[derive(Clone, Debug)]
pub(super) struct Assumptions {
    /// The disk.
    pub(super) disk: DiskSpec,
    /// Start of the page file's partition, bytes. The files' partition is in front of it.
    pub(super) page_file_at: u64,
    /// Memory that is left for the system's cache of files, bytes.
    pub(super) system_cache_bytes: u64,
    /// Memory of the added cache, if there is one.
    pub(super) cache_bytes: Option<u64>,
    /// True if all pages of the working set were written through the added cache before.
    pub(super) is_warm: bool,
    /// PostMark's parameters.
    pub(super) config: Config,
    /// Processor time of an operation on a file.
    pub(super) file_time: RequestTime,
    /// Pages that the programs use and that are in the page file, bytes.
    pub(super) working_set_bytes: u64,
    /// Page-outs for each page-in: the share of pages that were changed.
    pub(super) page_outs: f64,
    /// Page-ins with the cache for each one without it.
    pub(super) paging_with_cache: f64,
}

impl Assumptions {
    /// Returns those of the experiment.
    pub(super) fn published() -> Assumptions {
        let disk = DiskSpec::laptop_7200();
        Assumptions {
            disk,
            page_file_at: capacity(&disk) / 2 / MIB * MIB,
            system_cache_bytes: 960 * MIB,
            cache_bytes: Some(256 * MIB),
            is_warm: true,
            config: Config {
                number: 10_000,
                transactions: 10_000,
                size_low: 500,
                size_high: 100_000,
                subdirectories: 5,
                read_block: 4096,
                write_block: 4096,
                ..Config::default()
            },
            file_time: RequestTime {
                fixed: MILLISECOND / 5,
                bytes_per_s: NonZero::new(COPIED_PER_S),
            },
            working_set_bytes: 256 * MIB,
            page_outs: 0.5,
            paging_with_cache: 1.0,
        }
    }

    /// Returns sentences that describe the machine.
    pub(super) fn sentences(&self) -> Vec<String> {
        vec![
            format!(
                "Disk: laptop-7200 (larder model show laptop-7200), {}, two partitions of equal \
                 size: NTFS with the files at the start of the first one, the page file at the \
                 start of the second one.",
                format::bytes(self.disk.capacity_bytes),
            ),
            "PostMark: the parameters of the published runs with 20,000 transactions (10,000 \
             files of 500 to 100,000 bytes in 5 directories, blocks of 4 KiB), with 10,000."
                .to_owned(),
            format!(
                "Assumptions: the system's cache (preset nt, LRU) has {}, the maximum of Windows \
                 XP, since the published system was tuned as a server and favored files; an \
                 operation on a file takes {} of processor time, and {} MB/s are copied; {} of the \
                 volume are used, {FREE_PERCENT} % of them free, and were replaced {REPLACED} \
                 times.",
                format::bytes(self.system_cache_bytes),
                format::duration(self.file_time.fixed),
                COPIED_PER_S / 1_000_000,
                format::bytes(USED_BYTES),
            ),
            format!(
                "Assumptions about paging: each operation on a file has as many page-ins, on \
                 average; each reads 4 KiB at a random place of a working set of {}; for every \
                 second one a changed page is paged out, 16 together, to a random place; nothing \
                 waits for page-outs as long as less than 4 MiB are in progress.",
                format::bytes(self.working_set_bytes),
            ),
            "The added cache has Larder's defaults and lazy writes, keeps its data at a flush, \
             and is warm: all pages of the working set were paged out through it. It takes no \
             memory from the programs."
                .to_owned(),
            "Not modeled: processor time of page faults, reads of program files.".to_owned(),
        ]
    }
}

/// Changes an assumption.
type Change = fn(&mut Assumptions);

/// Other assumptions.
pub(super) const VARIATIONS: [(&str, Change); 8] = [
    ("page file next to the files", |it| it.page_file_at = 32 * GIB),
    ("disk without a write cache", |it| it.disk.write_cache_bytes = 0),
    ("processor twice as fast", |it| {
        it.file_time.fixed /= 2;
        it.file_time.bytes_per_s = NonZero::new(2 * COPIED_PER_S);
    }),
    ("a page-out for each page-in", |it| it.page_outs = 1.0),
    ("no page-outs", |it| it.page_outs = 0.0),
    ("added cache cold", |it| it.is_warm = false),
    ("a quarter more paging with it", |it| it.paging_with_cache = 1.25),
    ("500 files of 500 to 10,000 bytes", |it| {
        it.config = Config { transactions: 10_000, ..Config::default() };
    }),
];
