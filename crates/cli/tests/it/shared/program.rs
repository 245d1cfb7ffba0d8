//! The program in a directory, and the outcome of its runs.

use std::path::Path;
use std::process::{Command, Stdio};

/// Exit code and output of a finished command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Returns the program under test, or the one that `cargo xtask prove` names.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("LARDER_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into())
}

/// Returns the command `larder bench NAME` with `args`, in a directory.
pub(crate) fn bench(name: &str, directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", name]).args(args).current_dir(directory).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run_command(command: &mut Command) -> Outcome {
    let output = command.output().expect("larder can be started");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Returns the sorted names of the entries of a directory.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("UTF-8")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}
