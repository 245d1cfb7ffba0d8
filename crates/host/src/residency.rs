//! Which pages of a file the page cache holds: cachestat(2), or mincore(2) before Linux 6.5.
//!
//! Invariants: what is asked about a file never reads or writes it; counts are in pages of the
//! machine (usually 4 KiB) and cover the whole length of the file; an empty file has no pages and
//! is neither resident nor not. A share of 1 means every page, a share of 0 none.
//!
//! On FUSE an open may drop the pages of the file (unless the file system keeps its cache), so that
//! to ask is to change; see [`keep`].

pub mod drop;
pub mod prefetch;
mod reasons;

pub use reasons::{caches_below, why_pages_lack, why_pages_stay};

use crate::syscall;
use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that mincore(2) is asked about at a time: a mapping of a size that any machine
/// has addresses for.
const WINDOW_BYTES: u64 = 1 << 30;

/// How it was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// cachestat(2): exact, and knows dirty pages.
    #[default]
    Cachestat,
    /// mincore(2): resident pages only.
    Mincore,
}

/// Pages of one file, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Files counted.
    pub files: u64,
    /// Pages that they have.
    pub pages: u64,
    /// Of those, how many the page cache holds.
    pub resident: u64,
    /// Resident pages that must be written; 0 where [`Residency::knows_dirty`] says no. One dirty
    /// page makes all pages of its folio count.
    pub dirty: u64,
    /// Pages that are being written.
    pub write_back: u64,
    /// Pages that the page cache held and let go.
    pub evicted: u64,
    /// Those that would still be there if memory were a little larger.
    pub recently_evicted: u64,
    /// How it was found out.
    pub method: Method,
}

/// Why it is not known. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ResidencyError {
    /// The file cannot be opened or looked at.
    #[error("find out what of {} is in memory: {source}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is there, and the kernel does not say.
    #[error(
        "find out what of {} is in memory: the kernel tells it only to the owner of a file and to \
         those who may write it",
        path.display()
    )]
    Refused {
        /// Which file.
        path: PathBuf,
    },
    /// Pages of pipes, sockets and terminals are not in the page cache.
    #[error(
        "find out what of {} is in memory: it is neither a file nor a block device",
        path.display()
    )]
    NoFile {
        /// Which path.
        path: PathBuf,
    },
}

impl Residency {
    /// Whether dirty, write-back and evicted pages were counted.
    #[must_use]
    pub fn knows_dirty(&self) -> bool {
        self.method == Method::Cachestat
    }

    /// The share of pages that is resident, 0 to 1; nothing where there are no pages.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
        let share = self.resident as f64 / self.pages as f64;
        (self.pages > 0).then_some(share)
    }

    /// No page is resident.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.resident == 0
    }

    /// Every page is resident.
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
        // Of a sum only that is known which is known of every part.
        if other.method == Method::Mincore {
            self.method = Method::Mincore;
        }
    }
}

/// Bytes of a page.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Opens a file to look at, without changing when it was last read where that is allowed.
///
/// # Errors
/// It cannot be opened, or is neither a file nor a block device.
pub fn open(path: &Path) -> Result<File, ResidencyError> {
    let failed = |source| ResidencyError::Open { path: path.to_path_buf(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Err(ResidencyError::NoFile { path: path.to_path_buf() });
    }
    File::open(path).map_err(failed)
}

/// The pages of a file at a path.
///
/// # Errors
/// The file cannot be opened, or the kernel does not tell.
pub fn of_path(path: &Path) -> Result<Residency, ResidencyError> {
    of_file(&open(path)?, path)
}

/// The pages of an open file; the path is for messages.
///
/// # Errors
/// The kernel does not tell.
pub fn of_file(file: &File, path: &Path) -> Result<Residency, ResidencyError> {
    let failed = |source| ResidencyError::Open { path: path.to_path_buf(), source };
    let len = length(file).map_err(failed)?;
    match by_cachestat(file, len) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            if !may_ask_mincore(file).map_err(failed)? {
                return Err(ResidencyError::Refused { path: path.to_path_buf() });
            }
            by_mincore(file, len).map_err(failed)
        }
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            Err(ResidencyError::Refused { path: path.to_path_buf() })
        }
        found => found.map_err(failed),
    }
}

/// The pages of `len` bytes from `offset` on, of a file that is open.
///
/// # Errors
/// The kernel does not tell: it is older than Linux 6.5, or the file is somebody else's.
pub fn of_range(file: &File, offset: u64, len: u64) -> io::Result<Residency> {
    let end = offset.saturating_add(len).min(length(file)?);
    if end <= offset {
        return Ok(Residency { files: 1, ..Residency::default() });
    }
    let page = page_bytes();
    let found = syscall::cachestat(file, offset, end - offset)?;
    Ok(Residency {
        files: 1,
        pages: end.div_ceil(page) - offset / page,
        resident: found.resident,
        dirty: found.dirty,
        write_back: found.write_back,
        evicted: found.evicted,
        recently_evicted: found.recently_evicted,
        method: Method::Cachestat,
    })
}

/// The pages of all files at or below a path, each with its own; directories are walked, links are not
/// followed, and what is neither file nor directory is passed over. In the order of their names.
///
/// # Errors
/// A directory or a file cannot be read.
pub fn of_tree(path: &Path) -> Result<Vec<(PathBuf, Residency)>, ResidencyError> {
    files_below(path)?.into_iter().map(|file| Ok((file.clone(), of_path(&file)?))).collect()
}

/// The files at or below a path, in the order of their names; links are not followed, except for
/// the path itself.
///
/// # Errors
/// A directory cannot be read, or the path is not there.
pub fn files_below(path: &Path) -> Result<Vec<PathBuf>, ResidencyError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ResidencyError::Open { path, source }
    };
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

/// The length of a file or of a block device, in bytes.
fn length(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        // The size of a device is not in its inode; its end is where a seek ends.
        let mut file = file;
        return io::Seek::seek(&mut file, io::SeekFrom::End(0));
    }
    Ok(metadata.len())
}

fn by_cachestat(file: &File, len: u64) -> io::Result<Residency> {
    let pages = len.div_ceil(page_bytes());
    // A length of 0 would mean "up to the end" of the cache, not of the file.
    let found =
        if len == 0 { syscall::CacheStat::default() } else { syscall::cachestat(file, 0, len)? };
    Ok(Residency {
        files: 1,
        pages,
        resident: found.resident.min(pages),
        dirty: found.dirty,
        write_back: found.write_back,
        evicted: found.evicted,
        recently_evicted: found.recently_evicted,
        method: Method::Cachestat,
    })
}

fn by_mincore(file: &File, len: u64) -> io::Result<Residency> {
    let page = page_bytes();
    let mut resident = 0;
    let mut offset = 0;
    while offset < len {
        let part = usize::try_from(WINDOW_BYTES.min(len - offset)).expect("at most a gibibyte");
        let page = usize::try_from(page).expect("a page is small");
        resident += syscall::mincore(file, offset, part, page)?;
        offset += WINDOW_BYTES;
    }
    let pages = len.div_ceil(page);
    Ok(Residency { files: 1, pages, resident, method: Method::Mincore, ..Residency::default() })
}

/// Whether mincore(2) tells the truth about a file: to its owner, to root, and to those who may
/// write it. To others it says that everything is resident.
fn may_ask_mincore(file: &File) -> io::Result<bool> {
    let user = rustix::process::geteuid();
    if user.is_root() || file.metadata()?.uid() == user.as_raw() {
        return Ok(true);
    }
    // Opened for reading, so the right to write is asked of the file behind the descriptor.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok())
}

/// Reads a file from `offset` on into `buffer`, as often as it takes; bytes that were there.
fn read_piece(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
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
