//! Dropping pages from the page cache: of one file, or of the whole machine.
//!
//! The functions write dirty pages back first, so no data is lost. A drop is best effort: pages
//! that are mapped, locked, or read or written meanwhile stay resident. Every function therefore
//! returns the residency afterwards, and a caller that needs a cold file checks it.

use super::{Residency, ResidencyError, of_file, open};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The file to write a number to, to drop caches.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Drops the page cache and unreferenced inodes and directory entries. Bit 4 keeps the kernel from
/// logging each write.
const EVERYTHING: &str = "7";
/// Pauses between attempts to drop the pages of a file; half a second in total. The kernel cannot
/// drop a page while it has isolated it to age or migrate it, and on a busy machine the page stays
/// isolated until the kernel thread gets a processor again.
const PAUSES_MS: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Time for which a file must stay cold after a repeated attempt: a program that uses the file
/// brings pages back within this time.
const SETTLE: Duration = Duration::from_millis(20);

/// Writes the dirty pages of a file back and drops its pages; returns the residency afterwards.
///
/// # Errors
/// The file cannot be opened, written back or queried. Pages that stay resident are no error.
pub fn file(path: &Path) -> Result<Residency, ResidencyError> {
    opened(&open(path)?, path)
}

/// Does the same for an open file; `path` is for messages.
///
/// # Errors
/// The file cannot be written back or queried.
pub fn opened(file: &File, path: &Path) -> Result<Residency, ResidencyError> {
    let failed = |source| {
        let operation = format!("drop the pages of {}", path.display());
        ResidencyError { operation, source }
    };
    let mut found = Residency::default();
    for pause in PAUSES_MS {
        std::thread::sleep(Duration::from_millis(pause));
        // The kernel drops no dirty page; a length of `None` means the whole file.
        file.sync_all().map_err(failed)?;
        fadvise(file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
        let was_warm = !found.is_cold();
        found = of_file(file, path)?;
        if found.is_cold() && was_warm {
            std::thread::sleep(SETTLE);
            found = of_file(file, path)?;
        }
        if found.is_cold() {
            break;
        }
    }
    Ok(found)
}

/// Writes all dirty pages of this machine back and drops all unused pages, inodes and directory
/// entries.
///
/// # Errors
/// The process lacks root privileges.
pub fn everything() -> Result<(), ResidencyError> {
    rustix::fs::sync();
    std::fs::write(DROP_CACHES, EVERYTHING).map_err(|error| {
        let reason = format!("{error} (writing {DROP_CACHES} needs root)");
        let operation = "drop everything that is cached".to_owned();
        ResidencyError { operation, source: io::Error::new(error.kind(), reason) }
    })
}
