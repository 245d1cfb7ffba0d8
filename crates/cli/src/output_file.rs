//! The type of options and arguments that name a file to write.

use anyhow::{Result, ensure};
use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The path of a file that the command writes. Every option and argument that names such a file
/// has this type, so that [`NamedFiles`](crate::named_files::NamedFiles) finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFile(PathBuf);

impl From<OsString> for OutputFile {
    fn from(path: OsString) -> Self {
        OutputFile(path.into())
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// Refuses to replace a regular file with a trace: a recording cannot be made again, and two
/// arguments are easily swapped. A device or a pipe is written in place.
pub(crate) fn check_unused(path: &Path, operation: &str) -> Result<()> {
    ensure!(
        !path.is_file(),
        "{operation} {}: it exists already; remove it, or name another file",
        path.display()
    );
    Ok(())
}
