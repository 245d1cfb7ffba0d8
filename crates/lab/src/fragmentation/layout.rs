//! The bytes of files on a device: as they lie, and with each file in one fragment.

use crate::file_system::{FileMap, FileStore};
use larder_core::frames::NoFrames;
use larder_core::store::Store;
use larder_schema::fragmentation::FileExtent;
use std::ops::Range;

/// An extent with a place, in the bytes of all files that have one.
#[derive(Clone, Copy, Debug)]
struct PlacedExtent {
    /// First byte in the file.
    logical: u64,
    /// First byte among those of all files.
    start: u64,
    bytes: u64,
}

/// The places of the bytes of all files.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) map: FileMap,
    /// First byte behind all places.
    pub(super) end: u64,
}

impl Layout {
    fn new(places: impl Iterator<Item = Range<u64>>) -> Layout {
        let map: FileMap = places.collect();
        let end = map.extents().map(|range| range.end).max().unwrap_or(0);
        Layout { map, end }
    }

    /// Returns the files as a store on a device.
    pub(super) fn store(&self, device: Box<dyn Store<NoFrames>>) -> FileStore {
        FileStore::all(device, std::slice::from_ref(&self.map)).remove(0)
    }
}

/// Files, and two layouts of them: as they lie, and with each file in one fragment, where its
/// longest fragment begins.
#[derive(Debug)]
pub struct FileLayouts {
    /// The extents with a place of each file.
    files: Vec<Vec<PlacedExtent>>,
    pub(super) now: Layout,
    pub(super) contiguous: Layout,
}

impl FileLayouts {
    /// Returns the layouts of files with these extents, on a device of `device_bytes`.
    #[must_use]
    pub fn new(files: &[Vec<FileExtent>], device_bytes: u64) -> FileLayouts {
        let mut start = 0;
        let placed = |extents: &Vec<FileExtent>| {
            let place = |extent: &FileExtent| {
                let FileExtent { logical, bytes, .. } = *extent;
                start += bytes;
                PlacedExtent { logical, start: start - bytes, bytes }
            };
            extents.iter().filter(|it| takes_requests(it)).map(place).collect()
        };
        let placed: Vec<Vec<PlacedExtent>> = files.iter().map(placed).collect();
        let extents = files.iter().flatten().filter(|it| takes_requests(it));
        let now = Layout::new(extents.map(|it| it.physical..it.physical_end()));
        let whole = files.iter().map(|extents| contiguous_place(extents, device_bytes));
        let contiguous = Layout::new(whole.flatten());
        FileLayouts { files: placed, now, contiguous }
    }

    /// Returns the number of files.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the bytes of a request to a file that have a place, among those of all files; `None`
    /// if it has none.
    pub(super) fn placed(&self, file: usize, range: Range<u64>) -> Option<Range<u64>> {
        let extents = &self.files[file];
        let first = extents.partition_point(|it| it.logical + it.bytes <= range.start);
        let behind = extents.partition_point(|it| it.logical < range.end);
        let (first, last) = (extents.get(first)?, extents.get(behind.checked_sub(1)?)?);
        let start = first.start + range.start.saturating_sub(first.logical);
        let end = last.start + (range.end - last.logical).min(last.bytes);
        (start < end).then_some(start..end)
    }
}

/// Returns true if requests to the extent reach the device. A compressed extent is read as a whole,
/// at most as long as in the file.
fn takes_requests(extent: &FileExtent) -> bool {
    extent.is_placed() && extent.bytes > 0
}

/// Returns the place of a file in one fragment, if it has bytes with a place.
fn contiguous_place(extents: &[FileExtent], device_bytes: u64) -> Option<Range<u64>> {
    let placed = || extents.iter().filter(|it| takes_requests(it));
    let bytes: u64 = placed().map(|it| it.bytes).sum();
    let mut longest = (0, 0);
    let mut fragment: Option<(u64, u64, &FileExtent)> = None;
    for extent in placed() {
        let (start, len) = match fragment {
            Some((start, len, last)) if last.is_followed_by(extent) => (start, len + extent.bytes),
            _ => (extent.physical, extent.bytes),
        };
        fragment = Some((start, len, extent));
        longest = longest.max((len, start));
    }
    let start = longest.1.min(device_bytes.saturating_sub(bytes));
    (bytes > 0).then(|| start..start + bytes)
}
