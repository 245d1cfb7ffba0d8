//! The directory for the sockets of running servers: the service's runtime directory, if systemd
//! sets one, otherwise the runtime directory of the user (`larder_io::runtime_directory`).

use anyhow::Result;
use larder_io::runtime_directory::{self, PrivateDirectory};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the directory; creates it if it is missing.
///
/// # Errors
/// It cannot be created, or others than its owner can write to it.
pub fn runtime_directory() -> Result<PathBuf> {
    let directory = match of_service() {
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
    let path = of_service().map_or_else(runtime_directory::runtime_directory, Ok)?;
    Ok(PrivateDirectory::open(&path)?.path().to_owned())
}

/// Returns the first directory of `RUNTIME_DIRECTORY` (systemd.exec(5)).
fn of_service() -> Option<PathBuf> {
    let given = std::env::var_os("RUNTIME_DIRECTORY").filter(|value| !value.is_empty())?;
    let first = given.as_bytes().split(|&byte| byte == b':').next()?;
    Some(Path::new(OsStr::from_bytes(first)).to_owned())
}
