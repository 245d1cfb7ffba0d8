//! A file without a name whose blocks another file gets.

use super::{RelocateError, STEP_BYTES};
use crate::file_walk::WalkRoot;
use larder_schema::fragmentation::FileExtent;
use rustix::fs::{FallocateFlags, fallocate, fchown};
use rustix::process::{Gid, Uid};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// A donor, and the ranges of the file for which it has blocks.
pub(super) struct Donor {
    file: File,
    ranges: Vec<Range<u64>>,
}

impl Donor {
    /// Allocates blocks for these extents of a file of `bytes` bytes.
    pub(super) fn allocate<'a>(
        root: &WalkRoot,
        below: &Path,
        extents: impl Iterator<Item = &'a FileExtent>,
        bytes: u64,
    ) -> Result<Donor, RelocateError> {
        let file = root
            .create_unnamed_beside(below)
            .map_err(|error| RelocateError::Failed("create a file beside it", error))?;
        let mut ranges = Vec::new();
        for extent in extents {
            append(&mut ranges, extent.logical..extent.logical_end().min(bytes));
        }
        for range in &ranges {
            fallocate(&file, FallocateFlags::empty(), range.start, range.end - range.start)
                .map_err(|error| RelocateError::Failed("allocate its new place", error.into()))?;
        }
        Ok(Donor { file, ranges })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the ranges with blocks.
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Copies the data of the file, its length and its owner. `before` is called before each step.
    pub(super) fn copy_from(
        &self,
        from: &File,
        found: &Metadata,
        mut before: impl FnMut(u64) -> Result<(), RelocateError>,
    ) -> Result<(), RelocateError> {
        let failed = |error: io::Error| RelocateError::Failed("copy its data", error);
        let mut buffer = vec![0; usize::try_from(STEP_BYTES).unwrap_or(1 << 20)];
        for range in &self.ranges {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(STEP_BYTES);
                before(len)?;
                let part = &mut buffer[..usize::try_from(len).unwrap_or(0)];
                from.read_exact_at(part, at).map_err(failed)?;
                self.file.write_all_at(part, at).map_err(failed)?;
                at += len;
            }
        }
        self.file.set_len(found.len()).map_err(failed)?;
        let (user, group) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
        fchown(&self.file, Some(user), Some(group)).map_err(|error| failed(error.into()))?;
        self.file.sync_all().map_err(failed)
    }
}

/// Appends a range, to the last one if it follows it.
fn append(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}
