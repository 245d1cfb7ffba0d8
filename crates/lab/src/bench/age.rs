//! An aged file system: files that grow in turn and are replaced, from a seed, until they have a
//! given number of fragments.
//!
//! Space is allocated piece by piece (fallocate(2)), so that no delayed allocation joins the
//! pieces; then the bytes are written into it. Invariants: nothing that existed before is changed
//! or removed; after an error or a stop no file is left, or the error says so. Sizes are bytes.

use super::error::BenchError;
use super::fragments::{Count, FILE, Watch, io_error, remove_directory};
use crate::random::Random;
use larder_core::units::{BLOCK_BYTES_U64, as_f64};
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Directory of the files.
pub const AGED: &str = "aged";
/// Mean number of pieces of a file.
const PIECES: u64 = 32;
/// One of so many files is replaced in each round but the first.
const REPLACED: u64 = 3;
/// One of so many files gets a hole.
const SPARSE: u64 = 5;
/// Length of a hole.
const HOLE_BYTES: u64 = 16 * BLOCK_BYTES_U64;

/// Files, and the fragments that they get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VolumeAger {
    /// Number of files.
    pub files: u32,
    /// Mean length of a file.
    pub file_bytes: u64,
    /// Mean number of fragments of a file at which it is done.
    pub fragments: f64,
    /// Maximum number of rounds.
    pub rounds: u32,
    /// Seed of the lengths, the order and the data.
    pub seed: u64,
}

/// The reached state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgedState {
    /// Bytes of all files.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// Mean number of fragments of a file.
    pub fragments: f64,
}

/// A file that grows.
struct Growing {
    file: File,
    path: PathBuf,
    /// Number of pieces that are missing.
    left: u64,
    /// End of the last piece.
    end: u64,
    /// Offsets and lengths of the pieces.
    pieces: Vec<(u64, u64)>,
}

impl VolumeAger {
    /// Returns the most bytes that the files can have together.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        // Pieces and their number are each up to half longer than the mean.
        u64::from(self.files).saturating_mul(self.file_bytes / 4 * 9 + HOLE_BYTES)
    }

    /// Makes the files in the new directory `aged` of an existing one.
    ///
    /// # Errors
    /// The directory exists, the file system fails, or `watch` returns false.
    pub fn make(
        &self,
        directory: &Path,
        count: Count<'_>,
        watch: Watch<'_>,
    ) -> Result<AgedState, BenchError> {
        let aged = directory.join(AGED);
        std::fs::create_dir(&aged).map_err(io_error("make", &aged))?;
        match self.fill(&aged, count, watch) {
            Ok(state) => Ok(state),
            Err(error) => {
                let removed = remove_directory(&aged).map(drop);
                BenchError::first_of(Err(error), removed).map(|()| AgedState::default())
            }
        }
    }

    fn fill(
        &self,
        directory: &Path,
        count: Count<'_>,
        watch: Watch<'_>,
    ) -> Result<AgedState, BenchError> {
        let mut random = Random::from_seed(self.seed);
        let (mut state, mut written) = (AgedState::default(), 0);
        while state.rounds < self.rounds.max(1) {
            let is_first = state.rounds == 0;
            let chosen: Vec<u32> =
                (1..=self.files).filter(|_| random.below(REPLACED) == 0 || is_first).collect();
            self.round(directory, &chosen, &mut random, &mut |bytes| {
                written += bytes;
                watch(written)
            })?;
            state = self.state(directory, state.rounds + 1, count)?;
            if state.fragments >= self.fragments {
                break;
            }
        }
        Ok(state)
    }

    /// Replaces files by new ones, which grow in turn.
    fn round(
        &self,
        directory: &Path,
        chosen: &[u32],
        random: &mut Random,
        written: Watch<'_>,
    ) -> Result<(), BenchError> {
        let mut growing = Vec::new();
        for number in chosen {
            let path = directory.join(format!("{FILE}{number}"));
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error("remove", &path)(error));
                }
                _ => {}
            }
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            let file = file.map_err(io_error("make", &path))?;
            let left = around(PIECES, random);
            growing.push(Growing { file, path, left, end: 0, pieces: Vec::new() });
        }
        let piece_blocks = (self.file_bytes / PIECES / BLOCK_BYTES_U64).max(1);
        while growing.iter().any(|file| file.left > 0) {
            for file in growing.iter_mut().filter(|file| file.left > 0) {
                if file.left == 2 && random.below(SPARSE) == 0 {
                    file.end += HOLE_BYTES;
                }
                file.grow(around(piece_blocks, random) * BLOCK_BYTES_U64)?;
            }
        }
        growing.iter().try_for_each(|file| file.write(random, written))
    }

    fn state(
        &self,
        directory: &Path,
        rounds: u32,
        count: Count<'_>,
    ) -> Result<AgedState, BenchError> {
        let (mut bytes, mut fragments) = (0, 0);
        for number in 1..=self.files {
            let path = directory.join(format!("{FILE}{number}"));
            let file = File::open(&path).map_err(io_error("open", &path))?;
            bytes += file.metadata().map_err(io_error("stat", &path))?.len();
            fragments += count(&file).map_err(|reason| {
                let path = path.display();
                BenchError::Failed(format!("count the fragments of {path}: {reason}"))
            })?;
        }
        let fragments = as_f64(fragments) / as_f64(u64::from(self.files.max(1)));
        Ok(AgedState { bytes, rounds, fragments })
    }
}

/// Returns a number from half of the mean to one and a half of it, at least 1.
fn around(mean: u64, random: &mut Random) -> u64 {
    (mean / 2 + random.below(mean + 1)).max(1)
}

impl Growing {
    fn grow(&mut self, len: u64) -> Result<(), BenchError> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.end, len)
            .map_err(|error| io_error("allocate space for", &self.path)(error.into()))?;
        self.pieces.push((self.end, len));
        self.end += len;
        self.left -= 1;
        Ok(())
    }

    fn write(&self, random: &mut Random, written: Watch<'_>) -> Result<(), BenchError> {
        for (offset, len) in &self.pieces {
            let mut data = vec![0; usize::try_from(*len).unwrap_or(0)];
            random.fill(&mut data);
            self.file.write_all_at(&data, *offset).map_err(io_error("write", &self.path))?;
            if !written(*len) {
                return Err(BenchError::Stopped);
            }
        }
        self.file.sync_all().map_err(io_error("write out", &self.path))
    }
}

#[cfg(test)]
mod tests;
