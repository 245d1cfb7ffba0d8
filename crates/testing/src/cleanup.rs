//! Undoes the changes of a test or a proof to the machine, even if its process is killed.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// A shell script that runs when the value is dropped and when the test process dies.
///
/// A shell with its own process group waits for the end of a pipe that the test process holds.
#[derive(Debug)]
pub struct Cleanup(Child);

impl Cleanup {
    /// Arms the script; its arguments are `$1`, `$2` and so on.
    ///
    /// # Panics
    /// The shell cannot be started.
    #[must_use]
    pub fn with(script: &str, args: &[&str]) -> Self {
        Cleanup::start(script, args).expect("the shell can be started")
    }

    /// As [`Cleanup::with`].
    ///
    /// # Errors
    /// The shell cannot be started.
    pub fn start(script: &str, args: &[&str]) -> io::Result<Self> {
        let guarded = format!("read -r word; if [ \"$word\" != done ]; then {script}\nfi");
        let mut shell = Command::new("sh");
        shell.args(["-c", &guarded, "cleanup"]).args(args).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let failed = |error| io::Error::other(format!("start the shell that cleans up: {error}"));
        shell.spawn().map(Cleanup).map_err(failed)
    }

    /// Ends the shell without running the script.
    pub fn cancel(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            // A shell that has ended runs nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_on_drop_and_not_after_cancel() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made");
        let arm = || Cleanup::with("touch \"$1\"", &[file.to_str().unwrap()]);
        let mut cancelled = arm();
        cancelled.cancel();
        drop(cancelled);
        assert!(!file.exists());
        drop(arm());
        assert!(file.exists());
    }
}
