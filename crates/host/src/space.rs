//! Free space of a file system.

use std::io;
use std::path::Path;

/// Returns the bytes that this process may still write to the file system that holds a path.
///
/// # Errors
/// The path does not exist, or the file system does not report it.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns the size of the file system that holds a path.
///
/// # Errors
/// As for [`free_bytes`].
pub fn total_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_blocks.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_room_and_a_missing_path_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let free = free_bytes(directory.path()).unwrap();
        assert!(free > 0 && free <= total_bytes(directory.path()).unwrap());
        assert!(free_bytes(&directory.path().join("absent")).is_err());
    }
}
