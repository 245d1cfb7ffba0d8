//! Files for Fileload: a set of intertwined files, each in so many pieces on the disk, and copies
//! of them in one piece each.
//!
//! Room is asked for piece by piece, in turns among the files (fallocate(2)), so that the file
//! system puts the pieces side by side; then the bytes are written into it. Whether it did is not
//! believed but counted, by whoever calls, and a file that is not as it was asked for is an error.
//! Invariants: nothing that was there before is changed or removed; after an error or a stop
//! nothing of what was made is left, or the error says so. Sizes are bytes.

use crate::random::Random;
use larder_core::units::BLOCK_BYTES_U64;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directory of the files in pieces.
pub const FRAGMENTED: &str = "fragmented";
/// That of the copies in one piece.
pub const CONTIGUOUS: &str = "contiguous";
/// Their names begin so and end with a number from 1.
const FILE: &str = "file-";
/// How often room in one piece is asked for, with what was given before kept away.
const ATTEMPTS: usize = 8;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Files of each kind.
    pub files: u32,
    /// Bytes of each, a multiple of 4 KiB.
    pub file_bytes: u64,
    /// Pieces of each file in pieces: from 1 to one for each 4 KiB.
    pub extents: u64,
    /// Where the bytes come from: the same in a file and its copy.
    pub seed: u64,
}

/// Why they were not made. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum FragmentsError {
    /// It cannot be done with these numbers.
    #[error("make files of {file_bytes} bytes in {extents} extents: {why}")]
    Impossible {
        /// Bytes of each file.
        file_bytes: u64,
        /// Pieces of each.
        extents: u64,
        /// What does not fit.
        why: &'static str,
    },
    /// The system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and where.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody can tell in how many pieces a file is.
    #[error("count the extents of {}: {why}", path.display())]
    Uncounted {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The file system did something else.
    #[error(
        "make {} in {asked} extent{}: the file system gave {given}",
        path.display(),
        if *asked == 1 { "" } else { "s" }
    )]
    OtherCount {
        /// Which file.
        path: PathBuf,
        /// What was asked for.
        asked: u64,
        /// What it is.
        given: u64,
    },
    /// Somebody asked for it.
    #[error("go on: it was stopped")]
    Stopped,
    /// A directory holds what was not made here.
    #[error("remove {}: it is not one of the files that were made", path.display())]
    Foreign {
        /// What else there is.
        path: PathBuf,
    },
    /// It ended with an error, and what it made is still there.
    #[error("{first}; and what it made could not be removed: {second}")]
    LeftBehind {
        /// Why it ended.
        first: Box<FragmentsError>,
        /// Why it is still there.
        second: Box<FragmentsError>,
    },
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> FragmentsError {
    let what = format!("{what} {}", path.display());
    move |source| FragmentsError::Io { what, source }
}

/// Counts the pieces of a file on its disk, or says why it cannot.
pub type Count<'a> = &'a dyn Fn(&File) -> Result<u64, String>;

/// Is told how many bytes of all were written; false if it is to end.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> bool;

impl Fragments {
    /// Bytes that all files take.
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

    /// Makes both sets in a directory that is there: `fragmented/file-1` and so on, and the same in
    /// `contiguous`.
    ///
    /// # Errors
    /// The numbers do not fit, something of these names is there, the file system fails or does
    /// not give what was asked for, or `watch` says to stop.
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
                return undone(failed("make", kind)(error), made);
            }
        }
        self.fill(&kinds, count, watch).or_else(|error| undone(error, &kinds))
    }

    fn fill(
        &self,
        kinds: &[PathBuf; 2],
        count: Count<'_>,
        watch: Watch<'_>,
    ) -> Result<(), FragmentsError> {
        let [contiguous, fragmented] = kinds;
        // What needs room in one piece comes first.
        let mut made = self.in_one_piece(contiguous, count)?;
        made.extend(self.intertwined(fragmented)?);
        let mut written = 0;
        for (number, made) in made.iter().enumerate() {
            let seed = self.seed.wrapping_add(number as u64 % u64::from(self.files));
            self.write(made, seed, &mut |bytes| {
                written += bytes;
                watch(written)
            })?;
        }
        made.iter().try_for_each(|made| made.expect(count))
    }

    /// Empty files with room in one piece, each with the number 1.
    fn in_one_piece(
        &self,
        directory: &Path,
        count: Count<'_>,
    ) -> Result<Vec<Made>, FragmentsError> {
        let mut all = Vec::new();
        for number in 1..=self.files {
            let mut set_aside = Vec::new();
            let found = loop {
                let made = Made::new(directory, number, 1)?;
                made.reserve(0, self.file_bytes)?;
                match made.expect(count) {
                    Ok(()) => break made,
                    Err(FragmentsError::OtherCount { .. }) if set_aside.len() < ATTEMPTS => {
                        // It keeps its room as long as it is open.
                        made.remove()?;
                        set_aside.push(made);
                    }
                    Err(error) => return Err(error),
                }
            };
            all.push(found);
        }
        Ok(all)
    }

    /// Files with room in pieces that lie in turns.
    fn intertwined(&self, directory: &Path) -> Result<Vec<Made>, FragmentsError> {
        let numbers = 1..=self.files;
        let files = numbers.map(|number| Made::new(directory, number, self.extents));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        // A file alone is intertwined with one that is gone afterwards.
        let between = if self.files == 1 && self.extents > 1 {
            let made = Made::new(directory, 2, 0)?;
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
            if let Some(made) = &between {
                made.reserve(piece * BLOCK_BYTES_U64, BLOCK_BYTES_U64)?;
            }
        }
        Ok(files)
    }

    fn write(
        &self,
        Made { file, path, .. }: &Made,
        seed: u64,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), FragmentsError> {
        let (mut file, mut random) = (file, Random::from_seed(seed));
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = self.file_bytes;
        while left > 0 {
            let len = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            random.fill(&mut piece[..len]);
            file.write_all(&piece[..len]).map_err(failed("write", path))?;
            left -= len as u64;
            if !more(len as u64) {
                return Err(FragmentsError::Stopped);
            }
        }
        file.sync_all().map_err(failed("write out", path))
    }
}

/// A file that was made, and of how many pieces it is to be.
struct Made {
    file: File,
    path: PathBuf,
    asked: u64,
}

impl Made {
    fn new(directory: &Path, number: u32, asked: u64) -> Result<Made, FragmentsError> {
        let path = directory.join(format!("{FILE}{number}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        Ok(Made { file: file.map_err(failed("make", &path))?, path, asked })
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), FragmentsError> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len)
            .map_err(|error| failed("reserve room for", &self.path)(error.into()))
    }

    /// Removes its name; its room goes when it is closed.
    fn remove(&self) -> Result<(), FragmentsError> {
        std::fs::remove_file(&self.path).map_err(failed("remove", &self.path))
    }

    /// An error unless it is in as many pieces as it is to be.
    fn expect(&self, count: Count<'_>) -> Result<(), FragmentsError> {
        let (path, asked) = (self.path.clone(), self.asked);
        match count(&self.file) {
            Ok(given) if given == asked => Ok(()),
            Ok(given) => Err(FragmentsError::OtherCount { path, asked, given }),
            Err(why) => Err(FragmentsError::Uncounted { path, why }),
        }
    }
}

/// The error, after what was made is removed.
fn undone(first: FragmentsError, directories: &[PathBuf]) -> Result<(), FragmentsError> {
    match directories.iter().try_for_each(|directory| remove_directory(directory).map(|_| ())) {
        Ok(()) => Err(first),
        Err(second) => {
            Err(FragmentsError::LeftBehind { first: Box::new(first), second: Box::new(second) })
        }
    }
}

/// Removes both sets from a directory; how many files they had. A set that is not there has none.
///
/// # Errors
/// Something else lies in a set: then nothing of that set is removed. Or a file cannot be removed.
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
    for entry in std::fs::read_dir(directory).map_err(failed("list", directory))? {
        let entry = entry.map_err(failed("list", directory))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(FILE));
        if !is_file || number.is_none_or(|number| number.parse::<u32>().is_err()) {
            return Err(FragmentsError::Foreign { path: entry.path() });
        }
        files.push(entry.path());
    }
    for file in &files {
        std::fs::remove_file(file).map_err(failed("remove", file))?;
    }
    std::fs::remove_dir(directory).map_err(failed("remove", directory))?;
    Ok(files.len() as u64)
}

#[cfg(test)]
mod tests;
