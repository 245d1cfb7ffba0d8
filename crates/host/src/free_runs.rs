//! Free space of a file system, in runs of adjacent free blocks: the ioctl(2) GETFSMAP of ext4 and
//! XFS (`ioctl_getfsmap(2)`).
//!
//! Positions and lengths are bytes.

use crate::syscall::space_map;
use rustix::fs::{major, minor};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Free space cannot be read: a clause about the file system.
#[derive(Debug, thiserror::Error)]
pub enum FreeRunsError {
    /// The file system does not support GETFSMAP.
    #[error("it does not report free space by place (no GETFSMAP)")]
    Unsupported,
    /// The call failed.
    #[error("it does not report free space: {0}")]
    Failed(io::Error),
}

/// Calls `found` for each run of free blocks of the device of the file system that holds an open
/// file or directory: its first byte, and its length. Other devices, for a log or real-time files,
/// are left out.
///
/// # Errors
/// The file system does not report its free space, or this process may not read it.
pub fn of(file: &File, mut found: impl FnMut(u64, u64)) -> Result<(), FreeRunsError> {
    let device = file.metadata().map_err(FreeRunsError::Failed)?.dev();
    // `new_encode_dev` of the kernel.
    let (major, minor) = (major(device), minor(device));
    let device = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
    let mut run: Option<(u64, u64)> = None;
    let result = space_map::for_each(file, |record| {
        if !record.is_free() || record.device != device {
            return;
        }
        match &mut run {
            Some((start, len)) if *start + *len == record.physical => *len += record.length,
            _ => {
                if let Some((start, len)) = run.replace((record.physical, record.length)) {
                    found(start, len);
                }
            }
        }
    });
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => FreeRunsError::Unsupported,
        _ => FreeRunsError::Failed(error),
    })?;
    if let Some((start, len)) = run {
        found(start, len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::Mount;
    use crate::space;
    use std::path::Path;

    #[test]
    fn runs_are_apart_and_together_the_free_space() {
        let root = File::open("/").unwrap();
        let mut runs = Vec::new();
        match of(&root, |start, len| runs.push((start, len))) {
            Err(FreeRunsError::Unsupported) => {
                larder_testing::skip("the root file system has no GETFSMAP");
                return;
            }
            result => result.unwrap(),
        }
        assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "apart");
        let sum: u64 = runs.iter().map(|run| run.1).sum();
        let total = space::total_bytes(Path::new("/")).unwrap();
        assert!(sum > 0 && sum <= total, "{sum} of {total} bytes");
        let mount = Mount::of(Path::new("/proc")).unwrap();
        assert_eq!(mount.fs_type, "proc");
        let error = of(&File::open("/proc").unwrap(), |_, _| ()).unwrap_err();
        assert!(matches!(error, FreeRunsError::Unsupported), "{error}");
    }
}
