//! Reading whole files into the page cache, and querying many files without changing their
//! residency.
//!
//! On a file system where an open drops pages (FUSE without `kernel_cache`), each file is opened
//! once, and that descriptor serves reads, queries and drops; [`Files`] keeps the descriptors open.
//! An open by another program still drops pages, which the next query shows.

use super::drop;
use super::{Residency, ResidencyError, of_file, open, read_full};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// Time for which files are read again before missing pages are reported: proactive reclaim may
/// evict cold pages for most of a second at a time.
const RETRY_TIME: Duration = Duration::from_secs(3);
/// Maximum number of files kept open; further files are opened for each operation.
const OPEN_MAX: usize = 512;

/// A set of files that is queried as a whole.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    /// Descriptors of the first paths.
    opened: Vec<File>,
}

/// Residency of a set of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetResidency {
    /// Total of all files.
    pub sum: Residency,
    /// The first file that has resident pages, with its residency.
    pub resident: Option<(PathBuf, Residency)>,
    /// The first file that lacks pages, with its residency.
    pub lacking: Option<(PathBuf, Residency)>,
}

impl Files {
    /// Opens the files.
    ///
    /// # Errors
    /// A path cannot be opened, or is neither a file nor a block device.
    pub fn open(paths: Vec<PathBuf>) -> Result<Files, ResidencyError> {
        let opened =
            paths.iter().take(OPEN_MAX).map(|path| open(path)).collect::<Result<_, _>>()?;
        Ok(Files { paths, opened })
    }

    /// Returns the paths of the files.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the current residency of the files.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn residency(&self) -> Result<SetResidency, ResidencyError> {
        self.residency_after(|_| Ok(()))
    }

    /// Writes dirty pages back and drops the pages of the files. Before each file it calls
    /// `keep_going`; once `keep_going` returns false, the remaining files stay as they are.
    ///
    /// # Errors
    /// A file cannot be written back or queried.
    pub fn drop(&self, mut keep_going: impl FnMut() -> bool) -> Result<(), ResidencyError> {
        self.for_each_file(
            |file, path| if keep_going() { drop::opened(file, path).map(|_| ()) } else { Ok(()) },
        )
    }

    /// Reads the files until every page is resident, as far as possible, and queries each file
    /// after a further open, as a program that uses the file performs it: if an open drops pages,
    /// the result shows it. It calls `keep_going` with the bytes of each read, and stops once
    /// `keep_going` returns false.
    ///
    /// # Errors
    /// A file cannot be opened, read or queried.
    pub fn fill(
        &self,
        mut keep_going: impl FnMut(u64) -> bool,
    ) -> Result<SetResidency, ResidencyError> {
        let mut buffer = vec![0; READ_BYTES];
        let started = Instant::now();
        loop {
            let mut running = true;
            self.for_each_file(|file, path| {
                if running && !of_file(file, path)?.is_warm() {
                    running = read_all(file, path, &mut buffer, &mut keep_going)?;
                }
                Ok(())
            })?;
            let found = self.residency_after(|path| open(path).map(core::mem::drop))?;
            // A short lack of memory or proactive reclaim takes some of the pages that were just
            // read; a file system that drops pages at open takes all of them.
            let is_partly_missing = found.lacking.is_some() && found.sum.resident > 0;
            if !running || !is_partly_missing || started.elapsed() > RETRY_TIME {
                return Ok(found);
            }
        }
    }

    /// Returns the residency of the files, each after `prepare` was called with its path.
    fn residency_after(
        &self,
        prepare: impl Fn(&Path) -> Result<(), ResidencyError>,
    ) -> Result<SetResidency, ResidencyError> {
        let mut found = SetResidency::default();
        self.for_each_file(|file, path| {
            prepare(path)?;
            found.add(path, of_file(file, path)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn for_each_file(
        &self,
        mut work: impl FnMut(&File, &Path) -> Result<(), ResidencyError>,
    ) -> Result<(), ResidencyError> {
        for (number, path) in self.paths.iter().enumerate() {
            match self.opened.get(number) {
                Some(file) => work(file, path)?,
                None => work(&open(path)?, path)?,
            }
        }
        Ok(())
    }
}

/// Reads a file from front to back; returns false if `keep_going` stopped it.
fn read_all(
    file: &File,
    path: &Path,
    buffer: &mut [u8],
    keep_going: &mut impl FnMut(u64) -> bool,
) -> Result<bool, ResidencyError> {
    let failed = |source| {
        let operation = format!("read {} into memory", path.display());
        ResidencyError { operation, source }
    };
    let mut offset = 0;
    loop {
        let bytes = read_full(file, buffer, offset).map_err(failed)? as u64;
        offset += bytes;
        if bytes == 0 {
            return Ok(true);
        }
        if !keep_going(bytes) {
            return Ok(false);
        }
    }
}

impl SetResidency {
    fn add(&mut self, path: &Path, residency: Residency) {
        self.sum += residency;
        if self.resident.is_none() && !residency.is_cold() {
            self.resident = Some((path.to_path_buf(), residency));
        }
        if self.lacking.is_none() && !residency.is_warm() {
            self.lacking = Some((path.to_path_buf(), residency));
        }
    }
}
