//! Files for Fileload: a set of interleaved files with a given number of extents each, and copies
//! of them in one extent each.
//!
//! Space is allocated piece by piece, alternating among the files (fallocate(2)), so that the file
//! system places the pieces next to each other; then the bytes are written into it. A file system
//! with much free space may place each file elsewhere: if it can exchange blocks of files, each
//! piece is exchanged with a part of contiguous space, which the files share in turn. The caller
//! counts the extents, and a file with another number of extents than requested is an error.
//! Invariants: nothing that existed before is changed or removed; after an error or a stop no file
//! is left, or the error says so. Sizes are bytes.

use super::error::BenchError;
use crate::random::Random;
use larder_core::units::BLOCK_BYTES_U64;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Directory of the fragmented files.
pub const FRAGMENTED: &str = "fragmented";
/// Directory of the contiguous copies.
pub const CONTIGUOUS: &str = "contiguous";
/// Prefix of the file names, followed by a number from 1.
pub(super) const FILE: &str = "file-";
/// Additional attempts to allocate a file in one extent, while the space of the earlier ones is
/// kept allocated.
const ATTEMPTS: usize = 8;
/// Maximum bytes of contiguous space that files share: file systems have their own blocks between
/// longer ranges.
const SHARED_BYTES: u64 = 32 << 20;
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

pub(super) fn io_error(what: &str, path: &Path) -> impl FnOnce(io::Error) -> BenchError {
    BenchError::io(format!("{what} {}", path.display()))
}

/// Counts the extents of a file on its disk, or returns the reason for which it cannot.
pub type Count<'a> = &'a dyn Fn(&File) -> Result<u64, String>;

/// Exchanges the blocks of a range of a file, from an offset on, with those of another file from an
/// offset on; the last argument is the length. Fails if the file system cannot.
pub type Exchange<'a> = &'a dyn Fn((&File, u64), (&File, u64), u64) -> io::Result<()>;

/// Gets the number of bytes written so far; returns false to stop.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> bool;

impl Fragments {
    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        2 * u64::from(self.files) * self.file_bytes
    }

    fn check(&self) -> Result<(), BenchError> {
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
        let error = format!("make files of {file_bytes} bytes in {extents} extents: {why}");
        Err(BenchError::Failed(error))
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
        (count, exchange): (Count<'_>, Exchange<'_>),
        watch: Watch<'_>,
    ) -> Result<(), BenchError> {
        self.check()?;
        let kinds = [CONTIGUOUS, FRAGMENTED].map(|kind| directory.join(kind));
        let mut made = Vec::new();
        let result = kinds.iter().try_for_each(|kind| {
            std::fs::create_dir(kind).map_err(io_error("make", kind))?;
            made.push(kind);
            Ok(())
        });
        let result = result.and_then(|()| self.fill(&kinds, (count, exchange), watch));
        if result.is_ok() {
            return result;
        }
        let removed = made.into_iter().try_for_each(|kind| remove_directory(kind).map(drop));
        BenchError::first_of(result, removed)
    }

    fn fill(
        &self,
        kinds: &[PathBuf; 2],
        (count, exchange): (Count<'_>, Exchange<'_>),
        watch: Watch<'_>,
    ) -> Result<(), BenchError> {
        let [contiguous, fragmented] = kinds;
        // Contiguous space is allocated first.
        let mut made = self.reserve_contiguous(contiguous, count)?;
        made.extend(self.reserve_interleaved(fragmented, count, exchange)?);
        let mut written = 0;
        for (number, made) in made.iter().enumerate() {
            let seed = self.seed.wrapping_add(number as u64 % u64::from(self.files));
            self.write(made, seed, &mut |bytes| {
                written += bytes;
                watch(written)
            })?;
        }
        made.iter().try_for_each(|made| made.check_extents(made.count_extents(count)?))
    }

    /// Creates empty files with space in one extent each.
    fn reserve_contiguous(
        &self,
        directory: &Path,
        count: Count<'_>,
    ) -> Result<Vec<ReservedFile>, BenchError> {
        let reserve = |number| reserve_in_one(directory, (number, self.file_bytes), count);
        (1..=self.files).map(reserve).collect()
    }

    /// Creates files whose extents are interleaved.
    fn reserve_interleaved(
        &self,
        directory: &Path,
        count: Count<'_>,
        exchange: Exchange<'_>,
    ) -> Result<Vec<ReservedFile>, BenchError> {
        let numbers = 1..=self.files;
        let files = numbers.map(|number| ReservedFile::new(directory, number, self.extents));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        // A single file is interleaved with a file that is removed afterwards.
        let mut spacer = None;
        if self.files == 1 && self.extents > 1 {
            spacer.insert(ReservedFile::new(directory, 2, 0)?).remove()?;
        }
        for piece in 0..self.extents {
            let Range { start, end } = self.piece(piece);
            for made in &files {
                made.reserve(start, end - start)?;
            }
            if let Some(made) = &spacer {
                made.reserve(piece * BLOCK_BYTES_U64, BLOCK_BYTES_U64)?;
            }
        }
        for made in &files {
            if made.count_extents(count)? != self.extents {
                self.interleave(directory, &files, count, exchange)?;
                break;
            }
        }
        Ok(files)
    }

    /// Returns the range of a piece in its file.
    fn piece(&self, number: u64) -> Range<u64> {
        let blocks = self.file_bytes / BLOCK_BYTES_U64;
        let end = |piece: u64| {
            let end = u128::from(blocks) * u128::from(piece) / u128::from(self.extents);
            u64::try_from(end).expect("a block of the file") * BLOCK_BYTES_U64
        };
        end(number)..end(number + 1)
    }

    /// Exchanges the pieces of files with parts of contiguous space, in turn. Files stay as they
    /// are if the file system cannot.
    fn interleave(
        &self,
        directory: &Path,
        files: &[ReservedFile],
        count: Count<'_>,
        exchange: Exchange<'_>,
    ) -> Result<(), BenchError> {
        // The parts of a single file have gaps.
        let gaps = u64::from(files.len() == 1);
        let of_round = |piece: u64| {
            let Range { start, end } = self.piece(piece);
            (end - start) * (files.len() as u64 + gaps)
        };
        let mut piece = 0;
        while piece < self.extents {
            let (first, mut bytes) = (piece, 0);
            while piece < self.extents && (bytes == 0 || bytes + of_round(piece) <= SHARED_BYTES) {
                bytes += of_round(piece);
                piece += 1;
            }
            let space = reserve_in_one(directory, (self.files + 1, bytes), count)?;
            space.remove()?;
            let mut at = 0;
            for number in first..piece {
                let Range { start, end } = self.piece(number);
                for made in files {
                    match exchange((&made.file, start), (&space.file, at), end - start) {
                        Err(error) if number == 0 && at == 0 => {
                            let is_unable = error.kind() == io::ErrorKind::Unsupported;
                            let failed = io_error("exchange blocks of", &made.path);
                            return if is_unable { Ok(()) } else { Err(failed(error)) };
                        }
                        result => result.map_err(io_error("exchange blocks of", &made.path))?,
                    }
                    at += end - start;
                }
                at += gaps * (end - start);
            }
        }
        Ok(())
    }

    fn write(
        &self,
        ReservedFile { file, path, .. }: &ReservedFile,
        seed: u64,
        on_written: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), BenchError> {
        let (mut file, mut random) = (file, Random::from_seed(seed));
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = self.file_bytes;
        while left > 0 {
            let len = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            random.fill(&mut piece[..len]);
            file.write_all(&piece[..len]).map_err(io_error("write", path))?;
            left -= len as u64;
            if !on_written(len as u64) {
                return Err(BenchError::Stopped);
            }
        }
        file.sync_all().map_err(io_error("write out", path))
    }
}

/// Creates a file with space in one extent, whose number and bytes are given.
fn reserve_in_one(
    directory: &Path,
    (number, bytes): (u32, u64),
    count: Count<'_>,
) -> Result<ReservedFile, BenchError> {
    let mut rejected = Vec::new();
    loop {
        let made = ReservedFile::new(directory, number, 1)?;
        made.reserve(0, bytes)?;
        let given = made.count_extents(count)?;
        if given == 1 {
            return Ok(made);
        }
        if rejected.len() == ATTEMPTS {
            made.check_extents(given)?;
        }
        // The file keeps its space as long as it is open.
        made.remove()?;
        rejected.push(made);
    }
}

/// A new file with allocated space, and its required number of extents.
struct ReservedFile {
    file: File,
    path: PathBuf,
    extents: u64,
}

impl ReservedFile {
    fn new(directory: &Path, number: u32, extents: u64) -> Result<ReservedFile, BenchError> {
        let path = directory.join(format!("{FILE}{number}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        Ok(ReservedFile { file: file.map_err(io_error("make", &path))?, path, extents })
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), BenchError> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len)
            .map_err(|error| io_error("reserve room for", &self.path)(error.into()))
    }

    /// Removes the name; the file system frees the space when the file is closed.
    fn remove(&self) -> Result<(), BenchError> {
        std::fs::remove_file(&self.path).map_err(io_error("remove", &self.path))
    }

    fn count_extents(&self, count: Count<'_>) -> Result<u64, BenchError> {
        count(&self.file).map_err(|why| {
            let path = self.path.display();
            BenchError::Failed(format!("count the extents of {path}: {why}"))
        })
    }

    /// Checks that the file has the required number of extents.
    fn check_extents(&self, given: u64) -> Result<(), BenchError> {
        let asked = self.extents;
        if given == asked {
            return Ok(());
        }
        let (path, plural) = (self.path.display(), if asked == 1 { "" } else { "s" });
        let error = format!("make {path} in {asked} extent{plural}: the file system gave {given}");
        Err(BenchError::Failed(error))
    }
}

/// Removes both sets from a directory, and returns the number of their files. A missing set has
/// none.
///
/// # Errors
/// A set contains another entry, and nothing of that set is removed; or a file cannot be removed.
pub fn remove(directory: &Path) -> Result<u64, BenchError> {
    Ok(remove_set(directory, FRAGMENTED)? + remove_set(directory, CONTIGUOUS)?)
}

/// Removes a set of files from a directory, and returns their number; 0 if there is none.
///
/// # Errors
/// As for [`remove`].
pub fn remove_set(directory: &Path, name: &str) -> Result<u64, BenchError> {
    let set = directory.join(name);
    if set.exists() { remove_directory(&set) } else { Ok(0) }
}

/// Removes a directory with files that were made.
pub(super) fn remove_directory(directory: &Path) -> Result<u64, BenchError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io_error("list", directory))? {
        let entry = entry.map_err(io_error("list", directory))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(FILE));
        if !is_file || number.is_none_or(|number| number.parse::<u32>().is_err()) {
            let path = entry.path();
            let foreign = "it is not one of the files that were made";
            return Err(BenchError::Failed(format!("remove {}: {foreign}", path.display())));
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
