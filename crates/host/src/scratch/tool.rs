//! Execution of the programs that create, attach and mount file systems.
//!
//! Each program runs in its own process group, so that Ctrl-C in a terminal stops Larder between
//! two programs and never interrupts one.

use super::ScratchError;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories of administration programs, for users whose search path lacks them.
const DIRECTORIES: &[&str] = &["/usr/sbin", "/sbin", "/usr/local/sbin"];

pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// Returns a command for a program of this package.
pub(super) fn tool(program: &str, package: &str) -> Result<Command, ScratchError> {
    find(program).map(Command::new).ok_or_else(|| {
        ScratchError::Other(format!(
            "find {program}: it is not installed (on Debian: apt-get install {package})"
        ))
    })
}

/// Runs a command to its end; an error contains the command's output.
pub(super) fn run(command: &mut Command) -> Result<(), ScratchError> {
    let command_line = command_line(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let output = command.output().map_err(ScratchError::io(format!("run {command_line}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let output = if words.is_empty() { output.status.to_string() } else { words.join(" ") };
    Err(ScratchError::Other(format!("run {command_line}: {output}")))
}

/// Returns the command line as a user would type it.
fn command_line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = [name].into_iter().chain(command.get_args()).collect();
    words.into_iter().map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_what_it_said() {
        let mut failing = tool("sh", "dash").unwrap();
        let error = run(failing.args(["-c", "echo 'bad  block' >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "run sh -c echo 'bad  block' >&2; exit 3: bad block");
        let error = run(tool("sh", "dash").unwrap().args(["-c", "exit 3"])).unwrap_err();
        assert!(error.to_string().ends_with("exit status: 3"), "{error}");
        let error = tool("no-such-program", "no-package").unwrap_err().to_string();
        assert_eq!(
            error,
            "find no-such-program: it is not installed (on Debian: apt-get install no-package)"
        );
    }
}
