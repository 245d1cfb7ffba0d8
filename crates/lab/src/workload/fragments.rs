//! Files for Fileload: a set of interleaved files with a given number of extents each, and copies
//! of them in one extent each.
//!
//! Space is allocated piece by piece, alternating among the files (fallocate(2)), so that the file
//! system places the pieces next to each other; then the bytes are written into it. The caller
//! counts the extents, and a file with another number of extents than requested is an error.
//! Invariants: nothing that existed before is changed or removed; after an error or a stop no file
//! is left, or the error says so. Sizes are bytes.

use crate::random::Random;
use larder_core::units::BLOCK_BYTES_U64;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Directory of the fragmented files.
pub const FRAGMENTED: &str = "fragmented";
/// Directory of the contiguous copies.
pub const CONTIGUOUS: &str = "contiguous";
/// Prefix of the file names, followed by a number from 1.
const FILE: &str = "file-";
/// Additional attempts to allocate a file in one extent, while the space of the earlier ones is
/// kept allocated.
const ATTEMPTS: usize = 8;
/// Bytes of one write.
const PIECE_BYTES: usize = 1 << 20;

/// Numbers and sizes of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Files of each kind.
    pub files: u32,
    /// Bytes of each, a multiple of 4 KiB.
    pub file_bytes: u64,
    /// Extents of each fragmented file: from 1 to one for each 4 KiB.
    pub extents: u64,
    /// The seed of the content: the same for a file and its copy.
    pub seed: u64,
}

/// The reason for which the files were not made. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum FragmentsError {
    /// The numbers do not fit together.
    #[error("make files of {file_bytes} bytes in {extents} extents: {why}")]
    Impossible {
        /// Bytes of each file.
        file_bytes: u64,
        /// Extents of each.
        extents: u64,
        /// The reason.
        why: &'static str,
    },
    /// The system reported an error.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The extents of a file cannot be counted.
    #[error("count the extents of {}: {why}", path.display())]
    Uncounted {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file system allocated another number of extents.
    #[error(
        "make {} in {asked} extent{}: the file system gave {given}",
        path.display(),
        if *asked == 1 { "" } else { "s" }
    )]
    OtherCount {
        /// The file.
        path: PathBuf,
        /// Requested extents.
        asked: u64,
        /// Actual extents.
        given: u64,
    },
    /// The user stopped it.
    #[error("go on: it was stopped")]
    Stopped,
    /// A directory contains an entry that was not made here.
    #[error("remove {}: it is not one of the files that were made", path.display())]
    Foreign {
        /// The entry.
        path: PathBuf,
    },
    /// It ended with an error, and its files could not be removed.
    #[error("{first}; and what it made could not be removed: {second}")]
    LeftBehind {
        /// The error that ended it.
        first: Box<FragmentsError>,
        /// The error of the removal.
        second: Box<FragmentsError>,
    },
}

fn io_error(what: &str, path: &Path) -> impl FnOnce(io::Error) -> FragmentsError {
    let what = format!("{what} {}", path.display());
    move |source| FragmentsError::Io { what, source }
}

/// Counts the extents of a file on its disk, or returns the reason for which it cannot.
pub type Count<'a> = &'a dyn Fn(&File) -> Result<u64, String>;

/// Gets the number of bytes written so far; returns false to stop.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> bool;

impl Fragments {
    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        2 * u64::from(self.files) * self.file_bytes
    }

    fn check(&self) -> Result<(), FragmentsError> {
        let &Fragments { file_bytes, extents, .. } = self;
        let blocks = file_bytes / BLOCK_BYTES_U64;
        let why = if self.files == 0 || blocks == 0 || extents == 0 {
            "there is nothing to make"
        } else if !file_bytes.is_multiple_of(BLOCK_BYTES_U64) {
            "the size is no multiple of 4 KiB"
        } else if extents > blocks {
            "an extent has at least 4 KiB"
        } else {
            return Ok(());
        };
        Err(FragmentsError::Impossible { file_bytes, extents, why })
    }

    /// Makes both sets in an existing directory: `fragmented/file-1` and so on, and the same in
    /// `contiguous`.
    ///
    /// # Errors
    /// The numbers do not fit, an entry with one of these names exists, the file system fails or
    /// allocates other extents than requested, or `watch` returns false.
    pub fn make(
        &self,
        directory: &Path,
        count: Count<'_>,
        watch: Watch<'_>,
    ) -> Result<(), FragmentsError> {
        self.check()?;
        let kinds = [CONTIGUOUS, FRAGMENTED].map(|kind| directory.join(kind));
        for (number, kind) in kinds.iter().enumerate() {
            if let Err(error) = std::fs::create_dir(kind) {
                let made = &kinds[..number];
                return clean_up_after(io_error("make", kind)(error), made);
            }
        }
        self.fill(&kinds, count, watch).or_else(|error| clean_up_after(error, &kinds))
    }

    fn fill(
        &self,
        kinds: &[PathBuf; 2],
        count: Count<'_>,
        watch: Watch<'_>,
    ) -> Result<(), FragmentsError> {
        let [contiguous, fragmented] = kinds;
        // Contiguous space is allocated first.
        let mut made = self.reserve_contiguous(contiguous, count)?;
        made.extend(self.reserve_interleaved(fragmented)?);
        let mut written = 0;
        for (number, made) in made.iter().enumerate() {
            let seed = self.seed.wrapping_add(number as u64 % u64::from(self.files));
            self.write(made, seed, &mut |bytes| {
                written += bytes;
                watch(written)
            })?;
        }
        made.iter().try_for_each(|made| made.check_extents(count))
    }

    /// Creates empty files with space in one extent each.
    fn reserve_contiguous(
        &self,
        directory: &Path,
        count: Count<'_>,
    ) -> Result<Vec<ReservedFile>, FragmentsError> {
        let mut all = Vec::new();
        for number in 1..=self.files {
            let mut rejected = Vec::new();
            let found = loop {
                let made = ReservedFile::new(directory, number, 1)?;
                made.reserve(0, self.file_bytes)?;
                match made.check_extents(count) {
                    Ok(()) => break made,
                    Err(FragmentsError::OtherCount { .. }) if rejected.len() < ATTEMPTS => {
                        // The file keeps its space as long as it is open.
                        made.remove()?;
                        rejected.push(made);
                    }
                    Err(error) => return Err(error),
                }
            };
            all.push(found);
        }
        Ok(all)
    }

    /// Creates files whose extents are interleaved.
    fn reserve_interleaved(&self, directory: &Path) -> Result<Vec<ReservedFile>, FragmentsError> {
        let numbers = 1..=self.files;
        let files = numbers.map(|number| ReservedFile::new(directory, number, self.extents));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        // A single file is interleaved with a file that is removed afterwards.
        let spacer = if self.files == 1 && self.extents > 1 {
            let made = ReservedFile::new(directory, 2, 0)?;
            made.remove()?;
            Some(made)
        } else {
            None
        };
        let blocks = self.file_bytes / BLOCK_BYTES_U64;
        let ends = |piece: u64| {
            let end = u128::from(blocks) * u128::from(piece) / u128::from(self.extents);
            u64::try_from(end).expect("a block of the file") * BLOCK_BYTES_U64
        };
        for piece in 0..self.extents {
            let (start, end) = (ends(piece), ends(piece + 1));
            for made in &files {
                made.reserve(start, end - start)?;
            }
            if let Some(made) = &spacer {
                made.reserve(piece * BLOCK_BYTES_U64, BLOCK_BYTES_U64)?;
            }
        }
        Ok(files)
    }

    fn write(
        &self,
        ReservedFile { file, path, .. }: &ReservedFile,
        seed: u64,
        on_written: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), FragmentsError> {
        let (mut file, mut random) = (file, Random::from_seed(seed));
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = self.file_bytes;
        while left > 0 {
            let len = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            random.fill(&mut piece[..len]);
            file.write_all(&piece[..len]).map_err(io_error("write", path))?;
            left -= len as u64;
            if !on_written(len as u64) {
                return Err(FragmentsError::Stopped);
            }
        }
        file.sync_all().map_err(io_error("write out", path))
    }
}

/// A new file with allocated space, and its required number of extents.
struct ReservedFile {
    file: File,
    path: PathBuf,
    extents: u64,
}

impl ReservedFile {
    fn new(directory: &Path, number: u32, extents: u64) -> Result<ReservedFile, FragmentsError> {
        let path = directory.join(format!("{FILE}{number}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        Ok(ReservedFile { file: file.map_err(io_error("make", &path))?, path, extents })
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), FragmentsError> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len)
            .map_err(|error| io_error("reserve room for", &self.path)(error.into()))
    }

    /// Removes the name; the file system frees the space when the file is closed.
    fn remove(&self) -> Result<(), FragmentsError> {
        std::fs::remove_file(&self.path).map_err(io_error("remove", &self.path))
    }

    /// Checks that the file has the required number of extents.
    fn check_extents(&self, count: Count<'_>) -> Result<(), FragmentsError> {
        let (path, asked) = (self.path.clone(), self.extents);
        match count(&self.file) {
            Ok(given) if given == asked => Ok(()),
            Ok(given) => Err(FragmentsError::OtherCount { path, asked, given }),
            Err(why) => Err(FragmentsError::Uncounted { path, why }),
        }
    }
}

/// Removes what was made, and returns the error.
fn clean_up_after(first: FragmentsError, directories: &[PathBuf]) -> Result<(), FragmentsError> {
    match directories.iter().try_for_each(|directory| remove_directory(directory).map(|_| ())) {
        Ok(()) => Err(first),
        Err(second) => {
            Err(FragmentsError::LeftBehind { first: Box::new(first), second: Box::new(second) })
        }
    }
}

/// Removes both sets from a directory, and returns the number of their files. A missing set has
/// none.
///
/// # Errors
/// A set contains another entry, and nothing of that set is removed; or a file cannot be removed.
pub fn remove(directory: &Path) -> Result<u64, FragmentsError> {
    let mut removed = 0;
    for kind in [FRAGMENTED, CONTIGUOUS] {
        let kind = directory.join(kind);
        if kind.exists() {
            removed += remove_directory(&kind)?;
        }
    }
    Ok(removed)
}

fn remove_directory(directory: &Path) -> Result<u64, FragmentsError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io_error("list", directory))? {
        let entry = entry.map_err(io_error("list", directory))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(FILE));
        if !is_file || number.is_none_or(|number| number.parse::<u32>().is_err()) {
            return Err(FragmentsError::Foreign { path: entry.path() });
        }
        files.push(entry.path());
    }
    for file in &files {
        std::fs::remove_file(file).map_err(io_error("remove", file))?;
    }
    std::fs::remove_dir(directory).map_err(io_error("remove", directory))?;
    Ok(files.len() as u64)
}

#[cfg(test)]
mod tests;
