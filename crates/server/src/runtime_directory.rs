//! The directory for the sockets of running servers: the service's runtime directory, if systemd
//! sets one, otherwise the runtime directory of the user (`larder_io::runtime_directory`).

use anyhow::Result;
use larder_io::runtime_directory::{self, PrivateDirectory, RuntimeDirectoryError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the directory; creates it if it is missing.
///
/// # Errors
/// It cannot be created, or others than its owner can write to it.
pub fn runtime_directory() -> Result<PathBuf> {
    let directory = match of_service("RUNTIME_DIRECTORY") {
        Some(directory) => PrivateDirectory::open(&directory),
        None => PrivateDirectory::runtime(),
    };
    Ok(directory?.path().to_owned())
}

/// Returns the directory if it exists.
///
/// # Errors
/// It does not exist, or others than its owner can write to it.
pub fn known_runtime_directory() -> Result<PathBuf> {
    Ok(PrivateDirectory::open(&runtime_directory_path()?)?.path().to_owned())
}

/// Returns the path of the directory, which need not exist.
///
/// # Errors
/// The user has none.
pub fn runtime_directory_path() -> Result<PathBuf, RuntimeDirectoryError> {
    of_service("RUNTIME_DIRECTORY").map_or_else(runtime_directory::runtime_directory, Ok)
}

/// Returns the first directory of a variable that systemd.exec(5) sets, such as
/// `RUNTIME_DIRECTORY`; they are separated by colons.
pub(crate) fn of_service(variable: &str) -> Option<PathBuf> {
    first(std::env::var_os(variable)?.as_bytes())
}

fn first(directories: &[u8]) -> Option<PathBuf> {
    let first = directories.split(|&byte| byte == b':').next()?;
    (!first.is_empty()).then(|| OsStr::from_bytes(first).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_directory_is_taken() {
        let directory = |directories: &str| first(directories.as_bytes());
        assert_eq!(directory("/var/lib/larder"), Some("/var/lib/larder".into()));
        assert_eq!(directory("/var/lib/a:/var/lib/b"), Some("/var/lib/a".into()));
        assert_eq!(directory(""), None);
    }
}
