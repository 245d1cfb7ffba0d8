//! The command on a directory with files, with its temporary files in another directory.

use crate::try_command::rig::{mounts, names, text};
use larder_schema::measured::MeasuredSizing;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub(super) const MIB: u64 = 1 << 20;

/// A directory to measure, and one for temporary files.
pub(super) struct Rig {
    pub(super) data: TempDir,
    pub(super) temporary: TempDir,
}

impl Rig {
    /// Makes a directory with a file of `bytes` bytes.
    pub(super) fn new(bytes: u64) -> Rig {
        let directory = crate::try_command::rig::directory;
        let rig = Rig { data: directory(), temporary: directory() };
        let content = vec![7; usize::try_from(bytes).unwrap()];
        std::fs::write(rig.data.path().join("rows"), content).unwrap();
        symlink("rows", rig.data.path().join("link")).unwrap();
        rig
    }

    /// Returns `larder size --measure` with options and a script for sh(1).
    pub(super) fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(["size", "--measure"]).arg(self.data.path()).args(options);
        command.args(["--", "sh", "-c", script]).env("TMPDIR", self.temporary.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn run(&self, options: &[&str], script: &str) -> Output {
        self.command(options, script).output().unwrap()
    }

    /// Runs the command, which must succeed, and returns its result and its messages.
    pub(super) fn measure(&self, options: &[&str], script: &str) -> (MeasuredSizing, String) {
        let output = self.run(&[&["--json"], options].concat(), script);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&json["schema"], &json["version"]),
            (&"larder-size-measured".into(), &1.into())
        );
        self.expect_nothing_left();
        (serde_json::from_value(json).unwrap(), stderr)
    }

    pub(super) fn expect_nothing_left(&self) {
        let temporary = self.temporary.path();
        assert_eq!((names(temporary), mounts(temporary)), (vec![], vec![]));
    }

    /// Runs the command, which must be refused, and returns its last message.
    pub(super) fn refusal(&self, options: &[&str], script: &str) -> String {
        let output = self.run(options, script);
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(2), ""),
            "{stderr}"
        );
        self.expect_nothing_left();
        let last = stderr.lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("larder: cannot "), "{stderr}");
        last
    }
}

/// Returns the content of a file of the rig.
pub(super) fn content(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
