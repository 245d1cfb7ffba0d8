//! Undoes a proof's changes to the machine, even if the proof is interrupted.
//!
//! A guard is a small shell that waits on a pipe held by this process. The pipe closes when the
//! guard is dropped, when a panic unwinds, and when this process dies for any reason, kill -9
//! included; then the shell runs its script. The shell has its own process group, so that Ctrl-C in
//! the terminal does not end it first.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// Runs a shell script when dropped, or when this process dies.
#[derive(Debug)]
pub(crate) struct Cleanup(Child);

impl Cleanup {
    /// Arms the script; its arguments are `$1`, `$2` and so on.
    pub(crate) fn with(script: &str, args: &[&str]) -> Result<Self> {
        let guarded = format!("read -r word; if [ \"$word\" != done ]; then {script}\nfi");
        let mut shell = Command::new("sh");
        shell.args(["-c", &guarded, "cleanup"]).args(args).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(shell.spawn().context("start the shell that cleans up")?))
    }

    /// Ends the guard without running the script.
    pub(crate) fn cancel(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            // A shell that has ended needs no cancellation.
            drop(pipe.write_all(b"done\n"));
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

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
        let cleanup = Cleanup::with(REMOVE, &[&dir.path().to_string_lossy()])?;
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
    fn the_script_runs_on_drop_and_not_after_cancel() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made");
        let arm = || Cleanup::with("touch \"$1\"", &[&file.to_string_lossy()]).unwrap();
        let mut cancelled = arm();
        cancelled.cancel();
        drop(cancelled);
        assert!(!file.exists());
        drop(arm());
        assert!(file.exists());
    }

    #[test]
    fn scratch_is_gone_afterwards() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
