//! The directory for the sockets of running servers, the same for those who make them and those who
//! look for them: /run/larder for root, and a directory of the user's runtime directory for others.
//!
//! Nobody else may put anything there: it belongs to this user, and no other one may write to it. A
//! directory that all users share, as /tmp, is never used.

use anyhow::{Context, Result, bail};
use larder_io::owned_file::{self, Existence};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of the directory in a user's runtime directory.
const NAME: &str = "larder";
/// The directory of root.
const OF_ROOT: &str = "/run/larder";

/// The directory; it is made if it is not there.
pub(crate) fn runtime_directory() -> Result<PathBuf> {
    find(Existence::Make)
}

/// The directory, if it is there.
pub(crate) fn known_runtime_directory() -> Result<PathBuf> {
    find(Existence::Expect)
}

fn find(existence: Existence) -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // Of a service: systemd.exec(5).
    if let Some(given) = variable("RUNTIME_DIRECTORY") {
        let first = given.as_bytes().split(|&byte| byte == b':').next().unwrap_or_default();
        let directory = Path::new(OsStr::from_bytes(first));
        return check(directory, Existence::Expect).map(|()| directory.to_owned());
    }
    let directory = if user == 0 {
        PathBuf::from(OF_ROOT)
    } else {
        let of_user = match variable("XDG_RUNTIME_DIR") {
            Some(directory) => PathBuf::from(directory),
            None => PathBuf::from(format!("/run/user/{user}")),
        };
        if !of_user.is_dir() {
            bail!(
                "find a directory for sockets: {} does not exist; set XDG_RUNTIME_DIR to a \
                 directory of yours that others cannot write to",
                of_user.display()
            );
        }
        check(&of_user, Existence::Expect)?;
        of_user.join(NAME)
    };
    check(&directory, existence).map(|()| directory)
}

fn check(directory: &Path, existence: Existence) -> Result<()> {
    let checked = owned_file::check_directory(directory, existence);
    checked.with_context(|| format!("use the directory {} for sockets", directory.display()))
}
