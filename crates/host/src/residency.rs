//! Pages of a file in the page cache: cachestat(2), or mincore(2) before Linux 6.5.
//!
//! Invariants: a query never reads or writes the file; counts are in pages of the machine (usually
//! 4 KiB) and cover the whole length of the file; an empty file has no pages and counts as both
//! cold and warm. A share of 1 means every page, a share of 0 none.
//!
//! On FUSE an open may drop the pages of the file (unless the file system keeps its cache), so that
//! a query changes its result; see [`prefetch`].

pub mod drop;
pub mod prefetch;
mod reasons;

pub use reasons::{caches_below, why_pages_lack, why_pages_stay};

use crate::foreign_file::{FileIdentity, ForeignFile};
use crate::mounts::{self, Mount};
use crate::{proc, syscall};
use larder_schema::share;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a file per call of mincore(2): the size of a mapping that fits the address space of any
/// machine.
const WINDOW_BYTES: u64 = 1 << 30;

/// Page counts of one file, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Number of files.
    pub files: u64,
    /// Number of pages in the files.
    pub pages: u64,
    /// Pages in the page cache.
    pub resident: u64,
    /// Resident dirty pages; 0 if [`Residency::knows_dirty`] is false. One dirty page makes all
    /// pages of its folio count.
    pub dirty: u64,
    /// Pages under writeback.
    pub write_back: u64,
    /// Pages that the kernel has evicted from the page cache.
    pub evicted: u64,
    /// Evicted pages that slightly more memory would have kept.
    pub recently_evicted: u64,
    /// True if mincore(2) produced the counts, which reports resident pages only.
    pub resident_only: bool,
}

/// An error querying, dropping or reading the pages of files. Every message can follow "cannot".
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {source}")]
pub struct ResidencyError {
    operation: String,
    source: io::Error,
}

impl ResidencyError {
    fn query(path: &Path) -> impl Fn(io::Error) -> ResidencyError {
        move |source| {
            let operation = format!("query the resident pages of {}", path.display());
            ResidencyError { operation, source }
        }
    }

    fn refused(path: &Path) -> ResidencyError {
        ResidencyError::query(path)(io::Error::other(
            "the kernel reports it only to the owner of a file and to users who may write it",
        ))
    }
}

impl Residency {
    /// Returns true if dirty, writeback and evicted pages were counted.
    #[must_use]
    pub fn knows_dirty(&self) -> bool {
        !self.resident_only
    }

    /// Returns the share of pages that are resident, 0 to 1, or `None` if there are no pages.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        share(self.resident, self.pages)
    }

    /// Returns true if no page is resident.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.resident == 0
    }

    /// Returns true if every page is resident.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.resident == self.pages
    }
}

impl AddAssign for Residency {
    fn add_assign(&mut self, other: Residency) {
        self.files += other.files;
        self.pages += other.pages;
        self.resident += other.resident;
        self.dirty += other.dirty;
        self.write_back += other.write_back;
        self.evicted += other.evicted;
        self.recently_evicted += other.recently_evicted;
        // A sum includes only the counts that every part has.
        self.resident_only |= other.resident_only;
    }
}

/// Returns the size of a page in bytes.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Opens a file or block device for a query. It does not wait for the holder of a lease (fcntl(2)).
///
/// # Errors
/// The path cannot be opened, is neither a file nor a block device, or another process holds a
/// lease.
pub fn open(path: &Path) -> Result<File, ResidencyError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    found.and_then(open_found).map_err(ResidencyError::query(path))
}

/// Opens the data of a file that was opened without access to it. The open of a special file may
/// have effects, and another file may take the place of a path at any time.
fn open_found(found: OwnedFd) -> io::Result<File> {
    let found = File::from(found);
    let kind = found.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::other("it is neither a file nor a block device"));
    }
    let path = proc::descriptor(&found);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// The mounts whose files can be queried without waiting for a program or for another machine: an
/// open of a file in FUSE, also in one of this user, waits for its server, which may be stopped.
#[derive(Debug)]
pub struct LocalMounts(BTreeSet<u64>);

impl LocalMounts {
    /// Returns the current ones.
    #[must_use]
    pub fn now() -> LocalMounts {
        let is_local = |mount: &Mount| mount.is_local() && !mount.is_fuse();
        let local = mounts::all().into_iter().filter(is_local);
        LocalMounts(local.map(|mount| mount.id).collect())
    }

    /// Returns the residency of a regular file that a process has open.
    ///
    /// # Errors
    /// As those of [`of_path`], the path names another file now, or its mount is not local.
    pub fn of_open_file(
        &self,
        path: &Path,
        identity: FileIdentity,
    ) -> Result<Residency, ResidencyError> {
        let failed = ResidencyError::query(path);
        let (found, file) = ForeignFile::open(path).map_err(|error| failed(error.into()))?;
        if file.identity != identity || !file.is_regular {
            return Err(failed(io::Error::other("another file has this name now")));
        }
        if !self.0.contains(&file.mount) {
            return Err(failed(io::Error::other("a program or another machine serves it")));
        }
        of_file(&open_found(found).map_err(failed)?, path)
    }
}

/// Returns the residency of the file at a path.
///
/// # Errors
/// The file cannot be opened, or the kernel does not report it.
pub fn of_path(path: &Path) -> Result<Residency, ResidencyError> {
    of_file(&open(path)?, path)
}

/// Returns the residency of an open file; `path` is for messages.
///
/// # Errors
/// The kernel does not report it.
pub fn of_file(file: &File, path: &Path) -> Result<Residency, ResidencyError> {
    let failed = ResidencyError::query(path);
    let len = length(file).map_err(&failed)?;
    match by_cachestat(file, 0, len) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            if !mincore_is_accurate(file).map_err(&failed)? {
                return Err(ResidencyError::refused(path));
            }
            by_mincore(file, len).map_err(failed)
        }
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            Err(ResidencyError::refused(path))
        }
        found => found.map_err(failed),
    }
}

/// Returns the residency of `len` bytes of an open file, starting at `offset`.
///
/// # Errors
/// The kernel does not report it: it is older than Linux 6.5, or another user owns the file.
pub fn of_range(file: &File, offset: u64, len: u64) -> io::Result<Residency> {
    let end = offset.saturating_add(len).min(length(file)?);
    if end <= offset {
        return Ok(Residency { files: 1, ..Residency::default() });
    }
    by_cachestat(file, offset, end)
}

/// Returns the residency of each regular file at or below a path, in the order of their names. The
/// walk does not follow symbolic links and skips everything that is neither file nor directory.
///
/// # Errors
/// A directory or a file cannot be read.
pub fn of_tree(path: &Path) -> Result<Vec<(PathBuf, Residency)>, ResidencyError> {
    files_below(path)?.into_iter().map(|file| Ok((file.clone(), of_path(&file)?))).collect()
}

/// Returns the regular files at or below a path, in the order of their names; symbolic links are
/// not followed, except for the path itself.
///
/// # Errors
/// A directory cannot be read, or the path does not exist.
pub fn files_below(path: &Path) -> Result<Vec<PathBuf>, ResidencyError> {
    let failed = ResidencyError::query;
    let metadata = std::fs::metadata(path).map_err(failed(path))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    let mut directories = vec![path.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).map_err(failed(&directory))? {
            let entry = entry.map_err(failed(&directory))?;
            let kind = entry.file_type().map_err(failed(&entry.path()))?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the length of a file or of a block device, in bytes.
fn length(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // The inode of a device does not hold its size; a seek to the end returns it.
        let mut file = file;
        return io::Seek::seek(&mut file, io::SeekFrom::End(0));
    }
    Ok(metadata.len())
}

/// Returns the residency of the bytes from `offset` up to, but not including, `end`.
fn by_cachestat(file: &File, offset: u64, end: u64) -> io::Result<Residency> {
    let pages = end.div_ceil(page_bytes()) - offset / page_bytes();
    // The kernel interprets a length of 0 as "up to the end of the cache", not of the file.
    let found = if end == offset {
        syscall::CacheStat::default()
    } else {
        syscall::cachestat(file, offset, end - offset)?
    };
    Ok(Residency {
        files: 1,
        pages,
        resident: found.resident.min(pages),
        dirty: found.dirty,
        write_back: found.write_back,
        evicted: found.evicted,
        recently_evicted: found.recently_evicted,
        resident_only: false,
    })
}

fn by_mincore(file: &File, len: u64) -> io::Result<Residency> {
    let page = rustix::param::page_size();
    let (mut resident, mut offset) = (0, 0);
    while offset < len {
        let window = usize::try_from(WINDOW_BYTES.min(len - offset)).expect("at most a gibibyte");
        resident += syscall::mincore(file, offset, window, page)?;
        offset += WINDOW_BYTES;
    }
    let pages = len.div_ceil(page_bytes());
    Ok(Residency { files: 1, pages, resident, resident_only: true, ..Residency::default() })
}

/// Returns true if mincore(2) reports actual residency: it does so for root, for the owner of the
/// file and for users with write permission. To others it reports every page as resident.
fn mincore_is_accurate(file: &File) -> io::Result<bool> {
    let user = rustix::process::geteuid();
    if user.is_root() || file.metadata()?.uid() == user.as_raw() {
        return Ok(true);
    }
    // The file is open for reading only, so the check uses the path of the descriptor in procfs.
    Ok(rustix::fs::access(proc::descriptor(file), rustix::fs::Access::WRITE_OK).is_ok())
}

/// Fills `buffer` from the file at `offset` with as many reads as needed; returns the bytes read,
/// fewer than requested only at the end of the file.
fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
