//! A directory for a proof, which is removed even if the proof is interrupted.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
pub(crate) use larder_testing::Cleanup;

/// Removes the directory `$1`. Other guards may unmount file systems in it at the same time; the
/// contents of a mounted file system are not deleted.
const REMOVE: &str = "
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf --one-file-system -- \"$1\" && break
  sleep 0.2
done";

/// A directory for images and sockets, accessible to every user, always removed.
pub(crate) struct Scratch {
    path: PathBuf,
    _cleanup: Cleanup,
}

impl Scratch {
    /// Creates a directory under TMPDIR.
    pub(crate) fn new() -> Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    /// Creates a directory in this one.
    pub(crate) fn new_in(parent: &Path) -> Result<Self> {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("larder-").permissions(all).tempdir_in(parent);
        let dir = dir.with_context(|| format!("make a directory under {}", parent.display()))?;
        let cleanup = Cleanup::start(REMOVE, &[&dir.path().to_string_lossy()])?;
        Ok(Self { path: dir.keep(), _cleanup: cleanup })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_gone_afterwards() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
