//! Undoing what a proof changed on the machine, also when the proof is interrupted.
//!
//! A guard is a small shell that waits on a pipe held by this process. The pipe closes when the
//! guard is dropped, when a panic unwinds, and when this process dies in any way, kill -9 included;
//! then the shell runs its script. It has a process group of its own, so that Ctrl-C in the
//! terminal does not end it first.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// Runs a shell script when dropped, or when this process dies.
#[derive(Debug)]
pub(crate) struct Undo {
    shell: Child,
}

impl Undo {
    /// Arms the script; its arguments are `$1`, `$2` and so on.
    pub(crate) fn with(script: &str, args: &[&str]) -> Result<Self> {
        let guarded = format!("read -r word; if [ \"$word\" != done ]; then {script}\nfi");
        let shell = Command::new("sh")
            .args(["-c", &guarded, "undo"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the shell that undoes")?;
        Ok(Self { shell })
    }

    /// Ends the guard without running the script: somebody else has done it.
    pub(crate) fn cancel(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // A shell that is gone needs no cancelling.
            drop(pipe.write_all(b"done\n"));
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}

/// A directory for images and sockets, open to every user, removed whatever happens.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _undo: Undo,
}

impl Scratch {
    /// A new directory under TMPDIR.
    pub(crate) fn new() -> Result<Self> {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let dir = tempfile::Builder::new()
            .prefix("larder-")
            .permissions(all)
            .tempdir()
            .context("make a directory under TMPDIR")?;
        let undo = Undo::with("rm -rf -- \"$1\"", &[&dir.path().to_string_lossy()])?;
        Ok(Self { path: dir.keep(), _undo: undo })
    }

    /// Where it is.
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
        let arm = || Undo::with("touch \"$1\"", &[&file.to_string_lossy()]).unwrap();
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
