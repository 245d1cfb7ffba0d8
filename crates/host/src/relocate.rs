//! Moves of the data of a file into contiguous blocks of the same file system, while the file keeps
//! its inode, names, times and content.
//!
//! * ext4: blocks of a donor, range by range (`EXT4_IOC_MOVE_EXT`, `fs/ext4/move_extent.c`).
//! * XFS: a copy in a donor, whose blocks the file shares until the donor ends, where the kernel
//!   finds the same bytes in both (`FIDEDUPERANGE`). The exchange of all blocks that `xfs_fsr`
//!   makes (`XFS_IOC_SWAPEXT`) cannot be recovered from the log of Linux 6.18 after a loss of
//!   power, if the file has many extents (`xfs_recover_inode_owner_change`).
//! * btrfs: the kernel rewrites the extents (`BTRFS_IOC_DEFRAG_RANGE`).
//!
//! Invariants: donors have no name, so that the kernel frees them at the end of the process,
//! whatever its reason; each step is atomic in the journal of the file system; nothing is moved
//! unless the donor has fewer fragments; holes and unwritten extents stay. Unless the caller allows
//! it, no other process has the file open: a lease makes a process that opens it wait, and ends the
//! move.

mod donor;
mod verify;

pub use verify::Verified;

use crate::extents::{self, ExtentsError};
use crate::file_walk::WalkRoot;
use crate::syscall::move_data;
use donor::Donor;
use larder_schema::fragmentation::FileExtent;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a step of a move, after which limits are checked.
const STEP_BYTES: u64 = 8 << 20;
/// Extents of btrfs that are at least this long are not rewritten.
const BTRFS_EXTENT_BYTES: u32 = 32 << 20;
/// Magic numbers of statfs(2) (include/uapi/linux/magic.h).
const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
const BTRFS: i64 = 0x9123_683e;
/// A file that is not moved: a clause about the file.
#[derive(Debug, thiserror::Error)]
pub enum RelocateError {
    /// Its file system cannot move data.
    #[error("its file system has no call that moves data (ext4, XFS with reflink, btrfs)")]
    Unsupported,
    /// Another process has it open.
    #[error("another process has it open or mapped (--open-files)")]
    InUse,
    /// It must not be written.
    #[error("it is immutable or append-only")]
    Immutable,
    /// Other files have the same blocks.
    #[error("other files share its blocks, and would no longer (--shared)")]
    Shared,
    /// Free space has no better place.
    #[error("free space has no place with fewer fragments")]
    NoBetterPlace,
    /// It was changed.
    #[error("another process opened or changed it meanwhile")]
    Changed,
    /// The caller stopped the move.
    #[error("the move was stopped")]
    Stopped,
    /// Its extents cannot be read.
    #[error(transparent)]
    Extents(#[from] ExtentsError),
    /// A call failed.
    #[error("{0}: {1}")]
    Failed(&'static str, io::Error),
    /// The content is not what it was.
    #[error(
        "its content differs from that before the move: stop using it, and compare it with a backup"
    )]
    Damaged,
}

/// Permissions and limits of a move.
#[derive(Clone, Copy)]
pub struct RelocateOptions<'a> {
    /// Moves files that other processes have open.
    pub open_files: bool,
    /// Moves files of btrfs and XFS whose blocks other files share.
    pub shared: bool,
    /// Maximum bytes per second.
    pub bytes_per_s: Option<u64>,
    /// Called before each step; returns true to stop.
    pub is_stopped: &'a dyn Fn() -> bool,
}

impl fmt::Debug for RelocateOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelocateOptions")
            .field("open_files", &self.open_files)
            .field("shared", &self.shared)
            .field("bytes_per_s", &self.bytes_per_s)
            .finish_non_exhaustive()
    }
}

/// A finished move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Extents afterwards.
    pub extents: Vec<FileExtent>,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The comparison of the content.
    pub verified: Verified,
}

/// A file that is open for a move.
#[derive(Debug)]
pub struct OpenFile<'a> {
    root: &'a WalkRoot,
    below: &'a Path,
    file: File,
    file_system: i64,
    found: Metadata,
    extents: Vec<FileExtent>,
}

impl<'a> OpenFile<'a> {
    /// Opens a file by its path below a root, and checks whether it may be moved.
    ///
    /// # Errors
    /// See [`RelocateError`].
    pub fn open(
        root: &'a WalkRoot,
        below: &'a Path,
        options: &RelocateOptions<'_>,
    ) -> Result<OpenFile<'a>, RelocateError> {
        let file =
            root.open_file_for_writing(below).map_err(|error| match error.raw_os_error() {
                // A running program, and a swap file in use.
                Some(libc::ETXTBSY | libc::EWOULDBLOCK) => RelocateError::InUse,
                Some(libc::EPERM) => RelocateError::Immutable,
                _ => RelocateError::Failed("open it", error),
            })?;
        let call = |name| move |error: rustix::io::Errno| RelocateError::Failed(name, error.into());
        let attributes = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(call("read its attributes"))?
            .stx_attributes;
        if attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND) {
            return Err(RelocateError::Immutable);
        }
        let kind = rustix::fs::fstatfs(&file).map_err(call("find its file system"))?.f_type;
        if ![EXT4, XFS, BTRFS].contains(&kind) {
            return Err(RelocateError::Unsupported);
        }
        if !options.open_files {
            move_data::take_lease(&file).map_err(|error| match error.raw_os_error() {
                Some(libc::EAGAIN) => RelocateError::InUse,
                _ => RelocateError::Failed("take a lease on it", error),
            })?;
        }
        // Dirty pages are written and protected, so that every later write changes the times.
        file.sync_all().map_err(|error| RelocateError::Failed("write it back", error))?;
        let found = file.metadata().map_err(|error| RelocateError::Failed("stat it", error))?;
        let extents = extents::recorded(&file, true)?;
        let is_shared = extents.iter().any(|it| it.has(FileExtent::SHARED));
        if is_shared && kind != EXT4 && !options.shared {
            return Err(RelocateError::Shared);
        }
        Ok(OpenFile { root, below, file, file_system: kind, found, extents })
    }

    /// Returns its device and inode numbers, length, and time of the last change of its content.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.found
    }

    /// Returns a checksum of its content.
    ///
    /// # Errors
    /// It cannot be read, or another process opened it.
    pub fn checksum(&self, options: &RelocateOptions<'_>) -> Result<u64, RelocateError> {
        verify::checksum(&self.file, || check(&self.file, options))
    }

    /// Moves its data. `checksum` is that of its content before.
    ///
    /// # Errors
    /// See [`RelocateError`]; the file has its content, at its old place or partly at a new one.
    pub fn relocate(
        self,
        checksum: u64,
        options: &RelocateOptions<'_>,
    ) -> Result<Relocation, RelocateError> {
        let mut steps = Steps::new(&self.file, options);
        match self.file_system {
            EXT4 => self.move_on_ext4(&mut steps)?,
            XFS => self.move_on_xfs(&mut steps)?,
            _ => self.move_on_btrfs(&mut steps)?,
        }
        let io_error = |name| move |error| RelocateError::Failed(name, error);
        self.file.sync_all().map_err(io_error("write it back"))?;
        let extents = extents::recorded(&self.file, true)?;
        let verified = match verify::checksum(&self.file, || check(&self.file, options)) {
            Ok(after) => {
                let now = self.file.metadata().map_err(io_error("stat it"))?;
                verify::compare((&self.found, checksum), (&now, after))
            }
            // A process waits for the file: it has its new place.
            Err(RelocateError::Changed | RelocateError::Stopped) => Verified::ChangedMeanwhile,
            Err(error) => return Err(error),
        };
        if verified == Verified::Differs {
            return Err(RelocateError::Damaged);
        }
        Ok(Relocation { extents, written_bytes: steps.bytes, verified })
    }

    /// Returns a donor with blocks for all extents that move: those with a place, up to the end of
    /// the file, on XFS without unwritten ones. With it, the file has fewer fragments.
    fn donor(&self) -> Result<Donor, RelocateError> {
        let len = self.found.len();
        let stays = |it: &&FileExtent| {
            it.logical >= len || (self.file_system == XFS && it.has(FileExtent::UNWRITTEN))
        };
        let moving = self.extents.iter().filter(|it| it.is_placed() && !stays(it));
        let donor = Donor::allocate(self.root, self.below, moving, len)?;
        let mut place = extents::recorded(donor.file(), true)?;
        place.extend(self.extents.iter().filter(stays));
        place.sort_by_key(|extent| extent.logical);
        if FileExtent::fragments(&place) < FileExtent::fragments(&self.extents) {
            Ok(donor)
        } else {
            Err(RelocateError::NoBetterPlace)
        }
    }

    fn move_on_ext4(&self, steps: &mut Steps<'_>) -> Result<(), RelocateError> {
        let donor = self.donor()?;
        let block = u64::from(self.found.blksize_for_moves());
        for range in donor.ranges() {
            let (mut at, end) = (range.start / block, range.end.div_ceil(block));
            while at < end {
                let len = (end - at).min(STEP_BYTES / block);
                steps.before(len * block)?;
                let moved = match move_data::ext4_move(&self.file, at, (donor.file(), at), len) {
                    // A range that became a hole has nothing to move.
                    Err(error) if error.raw_os_error() == Some(libc::ENODATA) => len,
                    Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                        return Err(RelocateError::Unsupported);
                    }
                    moved => {
                        moved.map_err(|error| RelocateError::Failed("move its data", error))?
                    }
                };
                if moved == 0 {
                    return Err(RelocateError::Changed);
                }
                at += moved;
            }
        }
        Ok(())
    }

    /// Copies the data, and lets the file share the copy, which then ends.
    fn move_on_xfs(&self, steps: &mut Steps<'_>) -> Result<(), RelocateError> {
        let donor = self.donor()?;
        donor.copy_from(&self.file, &self.found, |bytes| steps.before(bytes))?;
        for range in donor.ranges() {
            let mut at = range.start;
            while at < range.end {
                check(&self.file, steps.options)?;
                let len = (range.end - at).min(STEP_BYTES);
                let done = match move_data::deduplicate(&self.file, donor.file(), at, len) {
                    Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                        return Err(RelocateError::Unsupported);
                    }
                    done => done.map_err(|error| RelocateError::Failed("move its data", error))?,
                };
                if done == 0 {
                    return Err(RelocateError::Changed);
                }
                at += done;
            }
        }
        Ok(())
    }

    fn move_on_btrfs(&self, steps: &mut Steps<'_>) -> Result<(), RelocateError> {
        // The kernel allocates at the writeback, for as long a range as it is given.
        steps.before(self.extents.iter().map(|it| it.bytes).sum())?;
        move_data::btrfs_defragment(&self.file, 0, u64::MAX, BTRFS_EXTENT_BYTES)
            .map_err(|error| RelocateError::Failed("move its data", error))
    }
}

/// Exchanges the blocks of a range of a file with those of a range of another file of the same
/// ext4. Positions and length are bytes, in whole blocks.
///
/// # Errors
/// The file system is not ext4, or refuses.
pub fn exchange_blocks(
    file: &File,
    offset: u64,
    (other, other_offset): (&File, u64),
    len: u64,
) -> io::Result<()> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    if kind != EXT4 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let block = u64::from(file.metadata()?.blksize_for_moves());
    let mut done = 0;
    while done < len / block {
        let (at, other_at) = (offset / block + done, other_offset / block + done);
        let moved = move_data::ext4_move(file, at, (other, other_at), len / block - done)?;
        if moved == 0 {
            return Err(io::Error::other("the file system moved nothing"));
        }
        done += moved;
    }
    Ok(())
}

/// Block size of a file system, which is the unit of its moves.
trait BlockSize {
    fn blksize_for_moves(&self) -> u32;
}

impl BlockSize for Metadata {
    fn blksize_for_moves(&self) -> u32 {
        use std::os::unix::fs::MetadataExt;
        u32::try_from(self.blksize()).unwrap_or(4096)
    }
}

/// Fails if the caller stops the move, or if the lease ends since another process opens the file.
fn check(file: &File, options: &RelocateOptions<'_>) -> Result<(), RelocateError> {
    if (options.is_stopped)() {
        return Err(RelocateError::Stopped);
    }
    if !options.open_files && !move_data::has_lease(file) {
        return Err(RelocateError::Changed);
    }
    Ok(())
}

/// The steps of a move: limits, and the lease.
struct Steps<'a> {
    file: &'a File,
    options: &'a RelocateOptions<'a>,
    begun: Instant,
    bytes: u64,
}

impl<'a> Steps<'a> {
    fn new(file: &'a File, options: &'a RelocateOptions<'a>) -> Steps<'a> {
        Steps { file, options, begun: Instant::now(), bytes: 0 }
    }

    /// Waits until a step of so many bytes may begin.
    fn before(&mut self, bytes: u64) -> Result<(), RelocateError> {
        loop {
            check(self.file, self.options)?;
            let Some(rate) = self.options.bytes_per_s else { break };
            let due = Duration::from_millis(self.bytes.saturating_mul(1000) / rate.max(1));
            let left = due.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        self.bytes += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
