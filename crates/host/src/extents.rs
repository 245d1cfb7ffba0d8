//! Physical location of a file's data: FIEMAP (Documentation/filesystems/fiemap.rst of Linux).
//!
//! Invariants: the kernel writes a file back before it maps it, so delayed allocations have a
//! location, unless the caller does not want that; an extent without a known location is an error
//! or has flags that say so, never a guess. Offsets and lengths are
//! bytes.

use crate::syscall;
use larder_schema::fragmentation::FileExtent;
use std::fs::File;
use std::io;

/// A range of a file that is contiguous on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the disk, or in the address space of the file system (btrfs).
    pub physical: u64,
    /// Length in bytes.
    pub len: u64,
}

/// An error mapping a file: a clause about the file.
#[derive(Debug, thiserror::Error)]
pub enum ExtentsError {
    /// The file system does not support FIEMAP.
    #[error("its file system has no FIEMAP")]
    NoFiemap,
    /// The FIEMAP call failed.
    #[error("its file system does not tell: {0}")]
    Failed(io::Error),
    /// The extent is compressed, stored in the inode, or not allocated yet.
    #[error("its file system does not tell where byte {0} of it lies")]
    Unplaced(u64),
}

/// `FIEMAP_EXTENT_DATA_ENCRYPTED` and `FIEMAP_EXTENT_NOT_ALIGNED`.
const ENCRYPTED_OR_UNALIGNED: u32 = 0x80 | 0x100;

/// Returns the extents of a file in file order, as the file system records them.
///
/// # Errors
/// The file system does not support FIEMAP or cannot map the file.
pub fn of(file: &File) -> Result<Vec<Extent>, ExtentsError> {
    let located = |extent: FileExtent| {
        let is_elsewhere = extent.has(FileExtent::ENCODED | ENCRYPTED_OR_UNALIGNED);
        if is_elsewhere || !extent.is_placed() {
            return Err(ExtentsError::Unplaced(extent.logical));
        }
        let FileExtent { logical, physical, bytes: len, .. } = extent;
        Ok(Extent { logical, physical, len })
    };
    recorded(file, true)?.into_iter().map(located).collect()
}

/// Returns the extents of a file in file order, with their flags. With `sync` the kernel writes the
/// file back first; without it, extents can be delayed, and nothing changes.
///
/// # Errors
/// The file system does not support FIEMAP or cannot map the file.
pub fn recorded(file: &File, sync: bool) -> Result<Vec<FileExtent>, ExtentsError> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let (raw, count) = syscall::fiemap(file, start, sync).map_err(|error| {
            let unknown = [libc::EOPNOTSUPP, libc::ENOTTY];
            match error.raw_os_error() {
                Some(code) if unknown.contains(&code) => ExtentsError::NoFiemap,
                _ => ExtentsError::Failed(error),
            }
        })?;
        found.extend(raw[..count].iter().map(|extent| FileExtent {
            logical: extent.logical,
            physical: extent.physical,
            bytes: extent.length,
            flags: extent.flags,
        }));
        let Some(last) = found.last().filter(|last| count > 0 && !last.has(FileExtent::LAST))
        else {
            return Ok(found);
        };
        start = last.logical_end();
    }
}

/// Returns the number of fragments of a file. Extents that are adjacent both in the file and on the
/// disk count as one fragment, even if the file system records them separately.
#[must_use]
pub fn pieces(extents: &[Extent]) -> u64 {
    let follows = |pair: &[Extent]| {
        pair[0].physical.checked_add(pair[0].len) == Some(pair[1].physical)
            && pair[0].logical.checked_add(pair[0].len) == Some(pair[1].logical)
    };
    let breaks = extents.windows(2).filter(|pair| !follows(pair)).count();
    if extents.is_empty() { 0 } else { breaks as u64 + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_testing::skip;
    use std::io::Write;

    fn extent(logical: u64, physical: u64, len: u64) -> Extent {
        Extent { logical, physical, len }
    }

    #[test]
    fn what_follows_in_the_file_and_on_the_disk_is_one_piece() {
        assert_eq!(pieces(&[]), 0);
        assert_eq!(pieces(&[extent(0, 500, 10)]), 1);
        assert_eq!(pieces(&[extent(0, 500, 10), extent(10, 510, 5)]), 1);
        assert_eq!(pieces(&[extent(0, 500, 10), extent(10, 520, 5)]), 2);
        // A hole in the file separates extents that are adjacent on the disk.
        assert_eq!(pieces(&[extent(0, 500, 10), extent(20, 510, 5)]), 2);
        assert_eq!(pieces(&[extent(0, 500, 10), extent(10, 490, 10), extent(20, 500, 1)]), 2);
    }

    #[test]
    fn a_file_that_was_written_has_places_for_all_of_it_and_an_empty_one_has_none() {
        let mut file = tempfile::tempfile().unwrap();
        let found = match of(&file) {
            Err(ExtentsError::NoFiemap) => {
                skip("the temporary directory does not support FIEMAP");
                return;
            }
            found => found.unwrap(),
        };
        assert!(found.is_empty());
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let found = of(&file).unwrap();
        assert_eq!(found.iter().map(|extent| extent.len).sum::<u64>(), 1 << 20);
        assert!((1..=256).contains(&pieces(&found)), "{found:?}");
    }

    #[test]
    fn more_extents_than_are_asked_for_at_once_are_all_found() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        if of(&file).is_err() {
            skip("the temporary directory does not support FIEMAP");
            return;
        }
        let count = 3 * syscall::FIEMAP_EXTENTS as u64 + 1;
        // Every second block is a hole, so no two extents merge.
        for number in 0..count {
            file.write_all_at(&[1; 4096], number * 8192).unwrap();
        }
        let found = of(&file).unwrap();
        assert_eq!(found.len() as u64, count);
        assert!(found.windows(2).all(|pair| pair[0].logical + 8192 == pair[1].logical));
    }

    #[test]
    fn what_is_no_file_of_a_disk_has_no_fiemap() {
        let file = File::open("/proc/self/status").unwrap();
        let error = of(&file).unwrap_err().to_string();
        assert_eq!(error, "its file system has no FIEMAP");
    }
}
