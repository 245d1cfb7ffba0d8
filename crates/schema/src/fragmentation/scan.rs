//! Totals of a scan over files, which can be continued.

use super::FileExtent;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Number of parts of the map of a device.
pub const MAP_CELLS: usize = 2048;
/// Maximum number of different reasons for which files are left out.
const REASONS_MAX: usize = 32;

/// Numbers and bytes by length: class N is for lengths from 2^N to 2^(N+1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClasses(BTreeMap<u32, (u64, u64)>);

impl SizeClasses {
    /// Adds one of this length, which is not 0.
    pub fn add(&mut self, bytes: u64) {
        let class = self.0.entry(bytes.max(1).ilog2()).or_default();
        *class = (class.0 + 1, class.1 + bytes);
    }

    /// Returns the shortest length of each class that is not empty, its number and its bytes.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64, u64)> {
        self.0.iter().map(|(class, (number, bytes))| (1 << class, *number, *bytes))
    }

    /// Returns the number in all classes.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.values().map(|class| class.0).sum()
    }

    fn merge(&mut self, other: &SizeClasses) {
        for (class, (number, bytes)) in &other.0 {
            let class = self.0.entry(*class).or_default();
            *class = (class.0 + number, class.1 + bytes);
        }
    }
}

/// The use of a part of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapCell {
    /// Bytes of files in one fragment.
    pub contiguous: u64,
    /// Bytes of files in several fragments.
    pub fragmented: u64,
    /// Free bytes.
    pub free: u64,
    /// Requests to the device in it.
    pub requests: u64,
}

/// Files and their extents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanTotals {
    /// Regular files, each once.
    pub files: u64,
    /// Further names of them (hard links).
    pub further_names: u64,
    /// Files without data.
    pub empty: u64,
    /// Files with data that is stored with the metadata.
    pub inline: u64,
    /// Files with holes.
    pub sparse: u64,
    /// Files with several fragments.
    pub fragmented: u64,
    /// Lengths of all files.
    pub bytes: u64,
    /// Bytes of all extents.
    pub extent_bytes: u64,
    /// Bytes of extents that are allocated and not written.
    pub unwritten_bytes: u64,
    /// Bytes of extents that other files have too.
    pub shared_bytes: u64,
    /// Bytes of compressed extents.
    pub compressed_bytes: u64,
    /// Bytes whose allocation is delayed.
    pub delayed_bytes: u64,
    /// Extents as recorded.
    pub extents: u64,
    /// Parts of the device that hold a file, of all files.
    pub fragments: u64,
    /// The fragments by length.
    pub fragment_sizes: SizeClasses,
    /// The distances between the end of a fragment and the begin of the next one of the file.
    pub distances: SizeClasses,
    /// Next fragments that lie before the one before.
    pub backward: u64,
    /// Files and directories that were left out, by reason.
    pub left_out: BTreeMap<String, u64>,
}

impl ScanTotals {
    /// Returns the fragments beyond one for each file.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.fragments.saturating_sub(self.files - self.empty - self.inline)
    }

    /// Counts a file or directory that is left out.
    pub fn leave_out(&mut self, reason: &str) {
        let is_known = self.left_out.contains_key(reason) || self.left_out.len() < REASONS_MAX;
        let reason = if is_known { reason } else { "other reasons" };
        *self.left_out.entry(reason.to_owned()).or_default() += 1;
    }

    fn merge(&mut self, other: &ScanTotals) {
        let pairs = [
            (&mut self.files, other.files),
            (&mut self.further_names, other.further_names),
            (&mut self.empty, other.empty),
            (&mut self.inline, other.inline),
            (&mut self.sparse, other.sparse),
            (&mut self.fragmented, other.fragmented),
            (&mut self.bytes, other.bytes),
            (&mut self.extent_bytes, other.extent_bytes),
            (&mut self.unwritten_bytes, other.unwritten_bytes),
            (&mut self.shared_bytes, other.shared_bytes),
            (&mut self.compressed_bytes, other.compressed_bytes),
            (&mut self.delayed_bytes, other.delayed_bytes),
            (&mut self.extents, other.extents),
            (&mut self.fragments, other.fragments),
            (&mut self.backward, other.backward),
        ];
        for (sum, part) in pairs {
            *sum = sum.saturating_add(part);
        }
        self.fragment_sizes.merge(&other.fragment_sizes);
        self.distances.merge(&other.distances);
        for (reason, number) in &other.left_out {
            *self.left_out.entry(reason.clone()).or_default() += number;
        }
    }
}

/// A scan over files: totals, a map of the device, and the files with most fragments. Its memory
/// does not depend on the number of files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileScan {
    /// The totals.
    pub totals: ScanTotals,
    /// The device in [`MAP_CELLS`] equal parts; empty before the first extent.
    pub map: Vec<MapCell>,
    /// Bytes of a part.
    cell_bytes: u64,
    /// Maximum number of files that are kept.
    keep: usize,
    /// Keeps files without several fragments as well.
    keeps_all: bool,
    /// Fragments and path of the files with most.
    most: BinaryHeap<Reverse<(u64, Vec<u8>)>>,
}

impl FileScan {
    /// Starts a scan of files on a device of this length that keeps the paths of the files with
    /// most fragments: up to `keep` with several fragments, or with `keeps_all` of all.
    #[must_use]
    pub fn new(device_bytes: u64, keep: usize, keeps_all: bool) -> FileScan {
        let cell_bytes = device_bytes.div_ceil(MAP_CELLS as u64).max(1);
        FileScan { cell_bytes, keep, keeps_all, ..FileScan::default() }
    }

    /// Returns the bytes of a part of the map.
    #[must_use]
    pub fn cell_bytes(&self) -> u64 {
        self.cell_bytes
    }

    /// Adds a file of this length. `path` is called if its path is kept.
    pub fn add(&mut self, bytes: u64, extents: &[FileExtent], path: impl FnOnce() -> Vec<u8>) {
        let totals = &mut self.totals;
        totals.files += 1;
        totals.bytes = totals.bytes.saturating_add(bytes);
        totals.extents += extents.len() as u64;
        let sum = |flags: u32| -> u64 {
            extents.iter().filter(|it| it.has(flags)).map(|it| it.bytes).sum()
        };
        totals.extent_bytes += extents.iter().map(|it| it.bytes).sum::<u64>();
        totals.unwritten_bytes += sum(FileExtent::UNWRITTEN);
        totals.shared_bytes += sum(FileExtent::SHARED);
        totals.compressed_bytes += sum(FileExtent::ENCODED);
        totals.delayed_bytes += sum(FileExtent::DELAYED);
        totals.sparse += u64::from(has_holes(bytes, extents));
        let placed: Vec<&FileExtent> = extents.iter().filter(|it| it.is_placed()).collect();
        if placed.is_empty() {
            let is_inline = extents.iter().any(|it| it.has(FileExtent::INLINE | FileExtent::TAIL));
            *(if is_inline { &mut totals.inline } else { &mut totals.empty }) += 1;
        }
        let fragments = self.add_fragments(&placed);
        self.totals.fragments += fragments;
        self.totals.fragmented += u64::from(fragments > 1);
        for extent in placed {
            self.add_to_map(extent, fragments > 1);
        }
        let is_one_of_most = self.most.len() < self.keep
            || self.most.peek().is_some_and(|Reverse((least, _))| fragments > *least);
        if is_one_of_most && (fragments > 1 || self.keeps_all) {
            self.keep_file((fragments, path()));
        }
    }

    /// Adds the fragments of a file, and returns their number.
    fn add_fragments(&mut self, placed: &[&FileExtent]) -> u64 {
        let totals = &mut self.totals;
        let Some(first) = placed.first() else { return 0 };
        let (mut number, mut len) = (1, first.bytes);
        for pair in placed.windows(2) {
            let [last, next] = [pair[0], pair[1]];
            if last.is_followed_by(next) {
                len += next.bytes;
                continue;
            }
            totals.fragment_sizes.add(len);
            totals.distances.add(last.physical_end().abs_diff(next.physical));
            totals.backward += u64::from(next.physical < last.physical);
            (number, len) = (number + 1, next.bytes);
        }
        totals.fragment_sizes.add(len);
        number
    }

    fn keep_file(&mut self, file: (u64, Vec<u8>)) {
        self.most.push(Reverse(file));
        if self.most.len() > self.keep {
            self.most.pop();
        }
    }

    fn add_to_map(&mut self, extent: &FileExtent, is_fragmented: bool) {
        self.for_cells(extent.physical, extent.bytes, |cell, bytes| {
            *(if is_fragmented { &mut cell.fragmented } else { &mut cell.contiguous }) += bytes;
        });
    }

    /// Adds free space to the map.
    pub fn add_free(&mut self, start: u64, bytes: u64) {
        self.for_cells(start, bytes, |cell, bytes| cell.free += bytes);
    }

    /// Adds a request to the map.
    pub fn add_request(&mut self, at: u64) {
        self.for_cells(at, 1, |cell, number| cell.requests += number);
    }

    /// Calls `add` for each part of the map that a range meets, with the bytes in it. Ranges behind
    /// the end of the device are left out.
    fn for_cells(&mut self, start: u64, bytes: u64, mut add: impl FnMut(&mut MapCell, u64)) {
        self.map.resize(MAP_CELLS, MapCell::default());
        let (mut at, end) = (start, start.saturating_add(bytes));
        while at < end {
            let number = at / self.cell_bytes;
            let Some(cell) = usize::try_from(number).ok().and_then(|it| self.map.get_mut(it))
            else {
                return;
            };
            let part_end = end.min((number + 1).saturating_mul(self.cell_bytes));
            add(cell, part_end - at);
            at = part_end;
        }
    }

    /// Adds another scan of the same device.
    pub fn merge(&mut self, other: FileScan) {
        self.totals.merge(&other.totals);
        self.map.resize(self.map.len().max(other.map.len()), MapCell::default());
        for (sum, part) in self.map.iter_mut().zip(other.map) {
            sum.contiguous += part.contiguous;
            sum.fragmented += part.fragmented;
            sum.free += part.free;
            sum.requests += part.requests;
        }
        other.most.into_iter().for_each(|Reverse(file)| self.keep_file(file));
    }

    /// Returns the paths of the files with most fragments, in descending order.
    #[must_use]
    pub fn most_fragmented(&self) -> Vec<Vec<u8>> {
        let mut files: Vec<_> = self.most.iter().map(|Reverse(file)| file).collect();
        files.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        files.into_iter().map(|(_, path)| path.clone()).collect()
    }
}

/// Returns true if a part of the file before its end has no extent.
fn has_holes(bytes: u64, extents: &[FileExtent]) -> bool {
    let mut end = 0;
    for extent in extents {
        if extent.logical > end && end < bytes {
            return true;
        }
        end = extent.logical_end();
    }
    end < bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn extents(list: &[(u64, u64, u64)]) -> Vec<FileExtent> {
        let extent = |&(logical, physical, blocks): &(u64, u64, u64)| FileExtent {
            logical: logical * BLOCK,
            physical: physical * BLOCK,
            bytes: blocks * BLOCK,
            flags: 0,
        };
        list.iter().map(extent).collect()
    }

    #[test]
    fn files_are_counted_by_their_fragments() {
        let mut scan = FileScan::new(MAP_CELLS as u64 * 16 * BLOCK, 1, false);
        let path = |name: &'static str| move || name.as_bytes().to_vec();
        scan.add(8 * BLOCK, &extents(&[(0, 100, 4), (4, 104, 4)]), path("whole"));
        scan.add(8 * BLOCK, &extents(&[(0, 200, 4), (4, 50, 2), (6, 300, 2)]), path("three"));
        scan.add(8 * BLOCK, &extents(&[(0, 10, 2), (6, 500, 2)]), path("sparse"));
        scan.add(0, &[], path("empty"));
        let mut inline = extents(&[(0, 0, 1)]);
        inline[0].flags = FileExtent::INLINE | FileExtent::LAST;
        scan.add(100, &inline, path("inline"));
        let totals = &scan.totals;
        assert_eq!((totals.files, totals.empty, totals.inline, totals.sparse), (5, 1, 1, 1));
        assert_eq!((totals.extents, totals.fragments, totals.fragmented), (8, 6, 2));
        assert_eq!((totals.excess(), totals.backward), (3, 1));
        assert_eq!(totals.distances.number(), 3);
        let sizes: Vec<_> = totals.fragment_sizes.iter().collect();
        let [two, four, eight] = [2, 4, 8].map(|blocks| blocks * BLOCK);
        assert_eq!(sizes, [(two, 4, 4 * two), (four, 1, four), (eight, 1, eight)]);
        assert_eq!(scan.most_fragmented(), [b"three"]);
        assert_eq!(scan.map[100 / 16].contiguous, 8 * BLOCK);
        assert_eq!(scan.map[200 / 16].fragmented, 4 * BLOCK);
        scan.add_free(15 * BLOCK, 2 * BLOCK);
        assert_eq!((scan.map[0].free, scan.map[1].free), (BLOCK, BLOCK));
        scan.add_free(u64::MAX - 1, 1);
    }

    #[test]
    fn scans_of_parts_are_the_scan_of_all() {
        let device = 1 << 30;
        let (mut whole, mut parts) =
            (FileScan::new(device, 3, false), FileScan::new(device, 3, false));
        let mut part = FileScan::new(device, 3, false);
        for number in 0..20_u64 {
            let pieces: Vec<_> = (0..number).map(|it| (it, 1000 + it * 2, 1)).collect();
            let (file, path) = (extents(&pieces), || number.to_string().into_bytes());
            whole.add(number * BLOCK, &file, path);
            part.add(number * BLOCK, &file, path);
            if number % 6 == 5 {
                parts.merge(std::mem::replace(&mut part, FileScan::new(device, 3, false)));
            }
        }
        part.totals.leave_out("a reason");
        whole.totals.leave_out("a reason");
        parts.merge(part);
        assert_eq!(parts.totals, whole.totals);
        assert_eq!(parts.map, whole.map);
        assert_eq!(parts.most_fragmented(), whole.most_fragmented());
        assert_eq!(whole.most_fragmented(), [b"19", b"18", b"17"]);
        let text = serde_json::to_string(&parts).unwrap();
        let read: FileScan = serde_json::from_str(&text).unwrap();
        assert_eq!(read.most_fragmented(), parts.most_fragmented());
        assert_eq!((read.totals, read.map), (parts.totals, parts.map));
    }
}
