//! Making the page cache forget: one file, or everything.
//!
//! What is dirty is written first, so nothing is lost. A drop is a wish: pages that are mapped,
//! locked, read or written meanwhile stay. So every function here answers with what it found
//! afterwards, and whoever needs a cold file looks at that.

use super::{Residency, ResidencyError, of_file, open};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that drops everything when a number is written to it.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Page cache, and the inodes and directory entries that hold on to it. The 4 keeps the kernel from
/// writing a line to its log each time.
const EVERYTHING: &str = "7";
/// Pauses between attempts to drop the pages of a file; half a second in all. The kernel cannot
/// drop a page that it has isolated for a moment to age or move it, and on a busy machine such a
/// moment lasts until the kernel thread gets a processor again.
const PAUSES_MS: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Time for which a file must stay cold after a repeated attempt: a program that uses the file
/// brings pages back in less.
const SETTLE: Duration = Duration::from_millis(20);

/// Why nothing was dropped. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    /// What is there cannot be found out.
    #[error(transparent)]
    Residency(#[from] ResidencyError),
    /// What is dirty could not be written, or the kernel refused the advice.
    #[error("drop the pages of {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Only the administrator may drop everything.
    #[error("drop everything that is cached: {source} (writing {DROP_CACHES} needs root)")]
    Everything {
        /// What the system said.
        source: io::Error,
    },
}

/// Writes what is dirty of a file and drops its pages; what is resident afterwards.
///
/// # Errors
/// The file cannot be opened, written out or looked at. Pages that stay are no error.
pub fn file(path: &Path) -> Result<Residency, DropError> {
    opened(&open(path)?, path)
}

/// The same for an open file; the path is for messages.
///
/// # Errors
/// The file cannot be written out or looked at.
pub fn opened(file: &File, path: &Path) -> Result<Residency, DropError> {
    let failed = |source| DropError::File { path: path.to_path_buf(), source };
    let mut found = Residency::default();
    for pause in PAUSES_MS {
        std::thread::sleep(Duration::from_millis(pause));
        // The kernel drops no dirty page; a length of nothing means all of the file.
        file.sync_all().map_err(failed)?;
        fadvise(file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
        let had_stayed = !found.is_cold();
        found = of_file(file, path)?;
        if found.is_cold() && had_stayed {
            std::thread::sleep(SETTLE);
            found = of_file(file, path)?;
        }
        if found.is_cold() {
            break;
        }
    }
    Ok(found)
}

/// Writes everything that is dirty on this machine and drops all pages, inodes and directory
/// entries that nobody uses.
///
/// # Errors
/// It needs root.
pub fn everything() -> Result<(), DropError> {
    rustix::fs::sync();
    std::fs::write(DROP_CACHES, EVERYTHING).map_err(|source| DropError::Everything { source })
}

/// Whether [`everything`] is allowed to us.
#[must_use]
pub fn may_drop_everything() -> bool {
    rustix::fs::access(DROP_CACHES, rustix::fs::Access::WRITE_OK).is_ok()
}
