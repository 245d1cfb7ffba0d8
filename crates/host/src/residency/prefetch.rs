//! Making the page cache hold a file as a whole, and looking at many files without changing what is
//! looked at.
//!
//! Where an open drops pages (FUSE without a kept cache), a file is opened once, and that open file
//! is read, looked at and dropped; [`Files`] keeps them open. Other programs that open the file
//! change it all the same, which shows at the next look.

use super::drop::{self, DropError};
use super::{Residency, ResidencyError, of_file, open, read_piece};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// For how long files are read again before what is missing counts as missing: the kernel may page
/// out what rests for most of a second at a time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Files that are kept open; more are opened one by one.
const OPEN_MAX: usize = 512;

/// Why a file could not be read in. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// What is there cannot be found out.
    #[error(transparent)]
    Residency(#[from] ResidencyError),
    /// It cannot be read.
    #[error("read {} into memory: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Files that are looked at as one.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    /// Open files of the first paths.
    opened: Vec<File>,
}

/// What was found of several files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// All together.
    pub sum: Residency,
    /// The first one that has resident pages, with what it has.
    pub resident: Option<(PathBuf, Residency)>,
    /// The first one that lacks pages, with what it has.
    pub lacking: Option<(PathBuf, Residency)>,
}

impl Files {
    /// Opens the files.
    ///
    /// # Errors
    /// One cannot be opened, or is neither a file nor a block device.
    pub fn open(paths: Vec<PathBuf>) -> Result<Files, ResidencyError> {
        let opened =
            paths.iter().take(OPEN_MAX).map(|path| open(path)).collect::<Result<_, _>>()?;
        Ok(Files { paths, opened })
    }

    /// Which files.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What is resident of them now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn residency(&self) -> Result<Found, ResidencyError> {
        let mut found = Found::default();
        self.each(|file, path| {
            found.add(path, of_file(file, path)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Writes out what is dirty and drops their pages; what is resident afterwards. `more` is asked
    /// before each file whether to go on; if not, the rest stays as it is.
    ///
    /// # Errors
    /// A file cannot be written out or looked at.
    pub fn drop(&self, mut more: impl FnMut() -> bool) -> Result<(), DropError> {
        self.each(|file, path| if more() { drop::opened(file, path).map(|_| ()) } else { Ok(()) })
    }

    /// Reads them until every page is resident, as far as that can be, and looks after each was
    /// opened once more, as somebody who works with it will do: where an open drops pages, this
    /// shows it. `more` is asked with the bytes of each piece whether to go on.
    ///
    /// # Errors
    /// A file cannot be opened, read or looked at.
    pub fn fill(&self, mut more: impl FnMut(u64) -> bool) -> Result<Found, FillError> {
        let mut buffer = vec![0; PIECE_BYTES];
        let begun = Instant::now();
        loop {
            let mut going = true;
            self.each(|file, path| {
                if going && !of_file(file, path)?.is_warm() {
                    going = read_all(file, path, &mut buffer, &mut more)?;
                }
                Ok::<(), FillError>(())
            })?;
            let found = self.reopened()?;
            // Memory that is short for a moment, or a kernel that pages out what rests, takes some
            // of the pages that were just read; where opening drops them, all are gone.
            let some_lack = found.lacking.is_some() && found.sum.resident > 0;
            if !going || !some_lack || begun.elapsed() > PATIENCE {
                return Ok(found);
            }
        }
    }

    fn reopened(&self) -> Result<Found, ResidencyError> {
        let mut found = Found::default();
        self.each(|file, path| {
            core::mem::drop(open(path)?);
            found.add(path, of_file(file, path)?);
            Ok::<(), ResidencyError>(())
        })?;
        Ok(found)
    }

    fn each<E: From<ResidencyError>>(
        &self,
        mut work: impl FnMut(&File, &Path) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, path) in self.paths.iter().enumerate() {
            match self.opened.get(number) {
                Some(file) => work(file, path)?,
                None => work(&open(path)?, path)?,
            }
        }
        Ok(())
    }
}

/// Reads a file from front to back; false if it was told to stop.
fn read_all(
    file: &File,
    path: &Path,
    buffer: &mut [u8],
    more: &mut impl FnMut(u64) -> bool,
) -> Result<bool, FillError> {
    let failed = |source| FillError::Read { path: path.to_path_buf(), source };
    let mut offset = 0;
    loop {
        let bytes = read_piece(file, buffer, offset).map_err(failed)? as u64;
        offset += bytes;
        if bytes == 0 {
            return Ok(true);
        }
        if !more(bytes) {
            return Ok(false);
        }
    }
}

impl Found {
    fn add(&mut self, path: &Path, one: Residency) {
        self.sum += one;
        if self.resident.is_none() && !one.is_cold() {
            self.resident = Some((path.to_path_buf(), one));
        }
        if self.lacking.is_none() && !one.is_warm() {
            self.lacking = Some((path.to_path_buf(), one));
        }
    }
}
