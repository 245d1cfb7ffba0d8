//! Running other programs: with their output shown, or kept for the message when they fail.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// How much of a failed program's output goes into a message.
const TAIL_LINES: usize = 12;

/// What a program left.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Everything it printed as a result.
    pub(crate) stdout: String,
    /// Everything it printed as a note.
    pub(crate) stderr: String,
}

impl Output {
    /// Whether the program ended with exit code 0.
    pub(crate) fn ok(&self) -> bool {
        self.code == Some(0)
    }
}

/// The root of this workspace, looked for upwards from the current directory.
pub(crate) fn workspace() -> Result<PathBuf> {
    let start = std::env::current_dir().context("find the current directory")?;
    start
        .ancestors()
        .find(|dir| dir.join("xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .with_context(|| format!("no xtask/Cargo.toml in or above {}", start.display()))
}

fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// `cargo`, in the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root);
    command
}

/// The same, ended after `seconds` with all the tests that it runs.
pub(crate) fn cargo_within(seconds: u64, root: &Path) -> Command {
    let mut command = client(seconds, &cargo_program());
    command.current_dir(root);
    command
}

/// The directory that cargo builds into.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let mut command = cargo(&workspace()?);
    let text = text(command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]))?;
    let facts: serde_json::Value = serde_json::from_str(&text).context("parse cargo metadata")?;
    let dir = facts["target_directory"].as_str().context("cargo names no target directory")?;
    Ok(PathBuf::from(dir))
}

/// A client program that is ended after `seconds`, with its process group, so that a stuck server
/// is a failure.
pub(crate) fn client(seconds: u64, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]).arg(program);
    command
}

/// Runs with everything shown; an error if it does not end well.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let line = describe(command);
    println!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("run {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs with the output kept, whatever the exit code. It goes through files: a pipe would stay
/// open as long as anything that the program started and left behind.
pub(crate) fn keep(command: &mut Command) -> Result<Output> {
    let line = describe(command);
    let file = || tempfile::tempfile().context("make a file for what a program prints");
    let [stdout, stderr] = [file()?, file()?];
    for (file, is_result) in [(&stdout, true), (&stderr, false)] {
        let copy = file.try_clone().context("hand on a file for what a program prints")?;
        if is_result {
            command.stdout(copy)
        } else {
            command.stderr(copy)
        };
    }
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("run {line}"))?;
    let printed = |mut file: File| -> Result<String> {
        let mut bytes = Vec::new();
        file.rewind()
            .and_then(|()| file.read_to_end(&mut bytes))
            .context("read what it printed")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Output { code: status.code(), stdout: printed(stdout)?, stderr: printed(stderr)? })
}

/// Runs and answers the standard output; an error, with the end of its notes, if it fails.
pub(crate) fn text(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let out = keep(command)?;
    if !out.ok() {
        let code = out.code.map_or_else(|| "a signal".into(), |code| format!("exit code {code}"));
        let late = if out.code == Some(124) { " (took too long)" } else { "" };
        bail!("{line}: {code}{late}\n{}", tail(&format!("{}{}", out.stdout, out.stderr)));
    }
    Ok(out.stdout)
}

/// The last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// The command as a person would type it, without the part that limits its time.
fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    if words[0] == "timeout" {
        words.drain(..3);
    }
    if let Some(name) = Path::new(&words[0]).file_name() {
        words[0] = name.to_string_lossy().into_owned();
    }
    words.join(" ")
}

/// Whether a program can be found in the search path.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}

/// Whether this process may do what only the administrator may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_an_error_that_carries_its_words() {
        let error = text(Command::new("sh").args(["-c", "echo reason >&2; exit 3"])).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains("exit code 3") && message.contains("reason"), "{message}");
    }

    #[test]
    fn a_stuck_client_is_ended() {
        let error = text(client(1, "sleep").arg("30")).unwrap_err();
        assert!(format!("{error:#}").starts_with("sleep 30: "), "{error:#}");
    }

    #[test]
    fn what_a_stuck_client_leaves_behind_is_not_waited_for() {
        let begun = std::time::Instant::now();
        text(client(1, "sh").args(["-c", "setsid sleep 60 & sleep 60"])).unwrap_err();
        assert!(begun.elapsed().as_secs() < 50, "it waits for what the client started");
    }
}
