//! The runtime directory: `/run/larder` for root, `$XDG_RUNTIME_DIR/larder` for other users.
//!
//! Invariant: only the owner of the process, and root, can create, replace or remove an entry of
//! the directory. A directory that another user owns or may write to is refused. A directory that
//! all users share, such as /tmp, is never used.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Name of the directory in its parent.
const NAME: &str = "larder";
/// Permission bits that let other users change a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A reason why the runtime directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirectoryError {
    /// A user other than root has no runtime directory.
    #[error(
        "find a runtime directory: {} is missing; set XDG_RUNTIME_DIR to a directory that only you \
         can write to", .0.display()
    )]
    Missing(PathBuf),
    /// The kernel refused the operation.
    #[error("open {}: {source}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Another user could replace its entries.
    #[error("use {}: {reason}", path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// An open directory that only this user and root can change.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    descriptor: OwnedFd,
}

/// Returns the parent of the runtime directory: for root always `/run`, so that all processes of
/// root agree; for others `$XDG_RUNTIME_DIR`, else `/run/user/UID`.
fn parent() -> Result<PathBuf, RuntimeDirectoryError> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok("/run".into());
    }
    if let Some(path) = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let path = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    if path.is_dir() { Ok(path) } else { Err(RuntimeDirectoryError::Missing(path)) }
}

/// Returns the path of the runtime directory, which need not exist.
///
/// # Errors
/// If the user has none.
pub fn runtime_directory() -> Result<PathBuf, RuntimeDirectoryError> {
    Ok(parent()?.join(NAME))
}

impl PrivateDirectory {
    /// Opens the runtime directory, and creates it if it is missing.
    ///
    /// # Errors
    /// If the user has none, it cannot be created, or others may change it.
    pub fn runtime() -> Result<Self, RuntimeDirectoryError> {
        PrivateDirectory::within(&parent()?)
    }

    /// Opens a directory that exists.
    ///
    /// # Errors
    /// If it is missing, or others may change it.
    pub fn open(path: &Path) -> Result<Self, RuntimeDirectoryError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty());
        let descriptor = descriptor.map_err(|error| failed(path, error))?;
        PrivateDirectory::checked(path.to_owned(), descriptor)
    }

    /// Opens the runtime directory whose parent is `parent`.
    ///
    /// # Errors
    /// If it cannot be created, or others may change it or its parent.
    pub fn within(parent: &Path) -> Result<Self, RuntimeDirectoryError> {
        let parent = PrivateDirectory::open(parent)?;
        parent.subdirectory(NAME, 0o700)
    }

    /// Opens a subdirectory, and creates it with `mode` if it is missing. A symbolic link is not
    /// followed.
    ///
    /// # Errors
    /// As for the runtime directory.
    pub fn subdirectory(&self, name: &str, mode: u32) -> Result<Self, RuntimeDirectoryError> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(&path, error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())
            .map_err(|error| failed(&path, error))?;
        PrivateDirectory::checked(path, descriptor)
    }

    /// Checks the owner and the mode of an open directory.
    fn checked(path: PathBuf, descriptor: OwnedFd) -> Result<Self, RuntimeDirectoryError> {
        let stat = rustix::fs::fstat(&descriptor).map_err(|error| failed(&path, error))?;
        let (user, owner) = (rustix::process::geteuid().as_raw(), stat.st_uid);
        if owner != user && owner != 0 {
            let reason = format!("it belongs to user {owner}, and not to user {user} or root");
            return Err(RuntimeDirectoryError::Unsafe { path, reason });
        }
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
            let reason = "other users may write to it (chmod go-w)".to_owned();
            return Err(RuntimeDirectoryError::Unsafe { path, reason });
        }
        Ok(PrivateDirectory { path, descriptor })
    }

    /// Returns its path, for messages and for addresses of sockets.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for PrivateDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn failed(path: &Path, error: Errno) -> RuntimeDirectoryError {
    RuntimeDirectoryError::Open { path: path.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refusal(parent: &Path) -> String {
        PrivateDirectory::within(parent).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_runtime_directory_is_created_and_found_again() {
        let parent = tempfile::tempdir().unwrap();
        let made = PrivateDirectory::within(parent.path()).unwrap();
        assert_eq!(made.path(), parent.path().join("larder"));
        let permissions = std::fs::metadata(made.path()).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o022, 0, "others cannot write to it");
        let claims = made.subdirectory("claims", 0o700).unwrap();
        let again = PrivateDirectory::within(parent.path()).unwrap();
        assert_eq!(again.subdirectory("claims", 0o700).unwrap().path(), claims.path());
    }

    #[test]
    fn a_directory_that_others_can_replace_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (parent.path().join("larder"), tempfile::tempdir().unwrap());
        symlink(elsewhere.path(), &path).unwrap();
        assert!(refusal(parent.path()).starts_with("open "), "a symbolic link is not followed");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let set_mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(&path, 0o777);
        assert!(refusal(parent.path()).ends_with("other users may write to it (chmod go-w)"));
        set_mode(&path, 0o755);
        set_mode(parent.path(), 0o1777);
        assert!(refusal(parent.path()).contains("other users may write to it"), "its parent");
        set_mode(parent.path(), 0o755);
        if larder_testing::is_root() {
            chown(&path, Some(65_534), None).unwrap();
            assert!(refusal(parent.path()).contains("it belongs to user 65534"));
        }
    }
}
