//! Fragmentation of files: `larder-fragmentation`, version 1, the result of `larder frag`.
//!
//! Sizes and positions are bytes. Positions are those of FIEMAP: on the device of the file system,
//! or in the address space of the file system (btrfs).

mod repair;
mod scan;

pub use repair::{FragmentationRepair, MovedFile, REPAIR_SCHEMA, RepairEnd, SkippedFile};
pub use scan::{FileScan, MAP_CELLS, MapCell, ScanTotals, SizeClasses};

use serde::{Deserialize, Serialize};

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-fragmentation";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// An extent of a file, as the file system records it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileExtent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device.
    pub physical: u64,
    /// Length in the file.
    pub bytes: u64,
    /// Flags of `struct fiemap_extent` (include/uapi/linux/fiemap.h).
    pub flags: u32,
}

impl FileExtent {
    /// `FIEMAP_EXTENT_LAST`: the last extent of the file.
    pub const LAST: u32 = 0x1;
    /// `FIEMAP_EXTENT_UNKNOWN`: it has no position yet.
    pub const UNKNOWN: u32 = 0x2;
    /// `FIEMAP_EXTENT_DELALLOC`: its allocation is delayed.
    pub const DELAYED: u32 = 0x4;
    /// `FIEMAP_EXTENT_ENCODED`: it is compressed.
    pub const ENCODED: u32 = 0x8;
    /// `FIEMAP_EXTENT_DATA_INLINE`: it is stored with the metadata.
    pub const INLINE: u32 = 0x200;
    /// `FIEMAP_EXTENT_DATA_TAIL`: it shares a block with other files.
    pub const TAIL: u32 = 0x400;
    /// `FIEMAP_EXTENT_UNWRITTEN`: it is allocated, and reads as zeros.
    pub const UNWRITTEN: u32 = 0x800;
    /// `FIEMAP_EXTENT_SHARED`: other files have it too.
    pub const SHARED: u32 = 0x2000;

    /// Returns true if the extent has one of these flags.
    #[must_use]
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Returns true if the extent takes blocks of the device at its position.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        !self.has(FileExtent::UNKNOWN | FileExtent::DELAYED | FileExtent::INLINE | FileExtent::TAIL)
    }

    /// Returns the first byte after it in the file.
    #[must_use]
    pub fn logical_end(&self) -> u64 {
        self.logical.saturating_add(self.bytes)
    }

    /// Returns the first byte after it on the device, if it is not compressed.
    #[must_use]
    pub fn physical_end(&self) -> u64 {
        self.physical.saturating_add(self.bytes)
    }

    /// Returns the number of parts of the device that hold the extents of a file.
    #[must_use]
    pub fn fragments(extents: &[FileExtent]) -> u64 {
        let mut placed = extents.iter().filter(|it| it.is_placed());
        let Some(mut last) = placed.next() else { return 0 };
        let jumps = placed.filter(|next| !std::mem::replace(&mut last, next).is_followed_by(next));
        jumps.count() as u64 + 1
    }

    /// Returns true if the device reads `next`, the following extent of the file, without a jump:
    /// it begins where this one ends, or as far behind as the hole between them is long. The length
    /// of a compressed extent on the device is not known; it is at most that in the file.
    #[must_use]
    pub fn is_followed_by(&self, next: &FileExtent) -> bool {
        let dense = self.physical_end();
        let with_hole = self.physical.saturating_add(next.logical.saturating_sub(self.logical));
        let is_close =
            self.has(FileExtent::ENCODED) && next.physical > self.physical && next.physical < dense;
        is_close || next.physical == dense || next.physical == with_hole
    }
}

/// Fragmentation of the files below some paths, and its cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fragmentation {
    /// The paths, as named on the command line.
    pub paths: Vec<String>,
    /// The file system; `None` if the paths are on several.
    pub file_system: Option<FileSystemPlace>,
    /// The files and their extents.
    pub scan: ScanTotals,
    /// Free space; `None` if the file system does not report it.
    pub free: Option<FreeSpace>,
    /// Reason for which the free space is not known; empty if it is.
    pub free_unknown: String,
    /// The cost for the requests.
    pub cost: Option<FragmentationCost>,
    /// The answer.
    pub verdict: FragmentationVerdict,
    /// The files that cost most, or without a cost those with most fragments.
    pub files: Vec<FragmentedFile>,
    /// Programs that write to the files with fragments, those with most bytes first.
    pub writers: Vec<FragmentWriter>,
    /// The device in equal parts.
    pub map: Vec<MapCell>,
    /// Bytes of a part.
    pub map_cell_bytes: u64,
    /// Assumptions, and what was left out, a sentence each.
    pub notes: Vec<String>,
}

impl Fragmentation {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }
}

/// A file system, and its device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystemPlace {
    /// Its type, such as `ext4`.
    pub kind: String,
    /// Its mount point.
    pub mount: String,
    /// The mounted device.
    pub device: String,
    /// Its length.
    pub bytes: u64,
}

/// Free space of a file system, in runs of adjacent free blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeSpace {
    /// Bytes of all runs.
    pub bytes: u64,
    /// The runs by length.
    pub runs: SizeClasses,
    /// The longest run: a file of this size can still be contiguous.
    pub largest_bytes: u64,
}

impl FreeSpace {
    /// Adds a run.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.runs.add(bytes);
        self.largest_bytes = self.largest_bytes.max(bytes);
    }
}

/// The requests whose cost is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestsFrom {
    /// The requests of a trace.
    Trace,
    /// Requests of the numbers and sizes of a record, at places that are not known.
    Record,
    /// One read of each of the most fragmented files, from its begin to its end.
    #[default]
    OneRead,
}

/// Cost of fragmentation for some requests on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FragmentationCost {
    /// Origin of the requests.
    pub from: RequestsFrom,
    /// Model of the device.
    pub device: String,
    /// Requests in flight.
    pub depth: usize,
    /// Requests to the files that were found.
    pub requests: u64,
    /// Requests that the cache served, so that they do not reach the device.
    pub cached_requests: u64,
    /// Requests of which no byte has a place on the device: holes, and bytes that were appended
    /// since.
    pub unplaced_requests: u64,
    /// Requests to files that are not among the scanned ones.
    pub other_requests: u64,
    /// Requests that reach the device.
    pub device_requests: u64,
    /// Of these, those that need bytes of several fragments.
    pub crossing_requests: u64,
    /// Requests that were run on the model.
    pub sampled_requests: u64,
    /// The files as they lie.
    pub now: LayoutCost,
    /// Each file in one fragment.
    pub contiguous: LayoutCost,
}

impl FragmentationCost {
    /// Returns the share of the requests to the device that cross the end of a fragment, 0 to 1.
    #[must_use]
    pub fn crossing_share(&self) -> f64 {
        crate::share(self.crossing_requests, self.device_requests).unwrap_or(0.0)
    }

    /// Returns the share of the time that contiguous files save, 0 to 1; below 0 if they cost
    /// time.
    #[must_use]
    pub fn gain(&self) -> f64 {
        if self.now.seconds > 0.0 { 1.0 - self.contiguous.seconds / self.now.seconds } else { 0.0 }
    }
}

/// Time of the sampled requests on one layout of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LayoutCost {
    /// Time of all.
    pub seconds: f64,
    /// Operations of the device that do not begin where the one before ended, per 1,000 requests.
    pub seeks_per_1000: f64,
    /// Operations of the device per request.
    pub operations_per_request: f64,
}

/// Kind of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// No file has more than one fragment.
    #[default]
    NotFragmented,
    /// Contiguous files would gain too little.
    NotWorthIt,
    /// Contiguous files would be faster.
    Repair,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FragmentationVerdict {
    /// Its kind.
    pub kind: VerdictKind,
    /// The reason, a sentence without a period.
    pub reason: String,
    /// Commands for the next step.
    pub commands: Vec<String>,
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FragmentedFile {
    /// Its path.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Extents as recorded.
    pub extents: u64,
    /// Parts of the device that hold it.
    pub fragments: u64,
    /// Requests to the device in the sample.
    pub requests: u64,
    /// Of these, those that cross the end of a fragment.
    pub crossing_requests: u64,
    /// Time of its requests in the sample, nanoseconds; 0 without a cost.
    pub now_ns: u64,
    /// The same with contiguous files.
    pub contiguous_ns: u64,
    /// Its extents, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed: Option<Vec<FileExtent>>,
}

/// Writes of a program to files with fragments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FragmentWriter {
    /// Its name.
    pub process: String,
    /// Files with several fragments that it writes.
    pub files: u64,
    /// Fragments of these files.
    pub fragments: u64,
    /// Its write requests to them.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The measures that prevent such fragments, a sentence each.
    pub measures: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, physical: u64, bytes: u64, flags: u32) -> FileExtent {
        FileExtent { logical, physical, bytes, flags }
    }

    #[test]
    fn a_fragment_ends_where_the_device_jumps() {
        let first = extent(0, 1000, 10, 0);
        assert!(first.is_followed_by(&extent(10, 1010, 5, 0)));
        assert!(first.is_followed_by(&extent(20, 1010, 5, 0)), "a hole without space");
        assert!(first.is_followed_by(&extent(20, 1020, 5, 0)), "a hole with its space");
        assert!(!first.is_followed_by(&extent(20, 1015, 5, 0)));
        assert!(!first.is_followed_by(&extent(10, 990, 5, 0)));
        let compressed = extent(0, 1000, 128, FileExtent::ENCODED);
        assert!(compressed.is_followed_by(&extent(128, 1040, 128, FileExtent::ENCODED)));
        assert!(!compressed.is_followed_by(&extent(128, 1000, 128, FileExtent::ENCODED)));
        assert!(!compressed.is_followed_by(&extent(128, 1200, 128, FileExtent::ENCODED)));
    }
}
