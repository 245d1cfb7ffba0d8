//! Runs other programs: shows their output, or captures it for the message of a failure.

use std::borrow::BorrowMut;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The number of lines of a failed program's output in a message.
const TAIL_LINES: usize = 12;

/// Makes a [`Command`] from a command line with variables in braces; a number before the line is a
/// timeout in seconds.
macro_rules! cmd {
    ($line:literal) => {{
        let shell = crate::run::shell();
        std::process::Command::from(xshell::cmd!(shell, $line))
    }};
    ($seconds:expr, $line:literal) => {
        crate::run::with_timeout($seconds, &crate::run::cmd!($line))
    };
}
pub(crate) use cmd;

/// Returns the shell whose current directory `cmd!` uses.
pub(crate) fn shell() -> xshell::Shell {
    xshell::Shell::new().expect("the current directory exists")
}

pub(crate) struct Output {
    /// The exit code; `None` if a signal ended the program.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    pub(crate) fn ok(&self) -> bool {
        self.code == Some(0)
    }
}

/// Returns the factor for time limits from the environment variable FACTOR, for a machine that is
/// slow or busy; 1 if it is not set.
pub(crate) fn time_factor() -> Result<u64> {
    let Ok(factor) = std::env::var("FACTOR") else { return Ok(1) };
    let factor = factor.parse().ok().filter(|&factor| factor > 0);
    factor.context("FACTOR, which multiplies time limits, is not a positive integer")
}

/// Returns the root of this workspace: the current directory or the nearest suitable ancestor.
pub(crate) fn workspace() -> Result<PathBuf> {
    let start = std::env::current_dir().context("find the current directory")?;
    start
        .ancestors()
        .find(|dir| dir.join("xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .with_context(|| format!("no xtask/Cargo.toml in or above {}", start.display()))
}

/// Returns the command `cargo`, in the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.current_dir(root);
    command
}

/// Returns the command `cargo` with a timeout, which also ends the tests that it runs.
pub(crate) fn cargo_with_timeout(seconds: u64, root: &Path) -> Command {
    with_timeout(seconds, &cargo(root))
}

/// Returns the output of `cargo metadata` for the crates of a workspace.
pub(crate) fn metadata(root: &Path) -> Result<serde_json::Value> {
    json_of(cargo(root).args(["metadata", "--no-deps", "--offline", "--format-version=1"]))
}

/// Returns the directory of cargo's build output.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let dir = metadata(&workspace()?)?["target_directory"].as_str().map(PathBuf::from);
    dir.context("cargo names no target directory")
}

/// Builds with cargo, and returns the path of the executable of this name.
pub(crate) fn build_executable(root: &Path, words: &[&str], name: &str) -> Result<PathBuf> {
    let text = stdout_of(cargo(root).args(words).arg("--message-format=json"))?;
    let of_name = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    };
    text.lines().filter_map(of_name).next_back().with_context(|| format!("cargo built no {name}"))
}

/// Returns a command that ends after `seconds`, with its process group, so that a hanging server is
/// a failure.
///
/// `timeout` has its own process group, which Ctrl-C does not reach. Therefore the kernel also ends
/// it when the thread that started it ends, even by kill -9 of this process.
pub(crate) fn with_timeout(seconds: u64, command: &Command) -> Command {
    let mut limited = if installed("setpriv") {
        cmd!("setpriv --pdeathsig TERM timeout --kill-after=5")
    } else {
        cmd!("timeout --kill-after=5")
    };
    limited.arg(seconds.to_string()).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    limited
}

/// Runs a command with its output shown; fails if the command fails.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let line = describe(command);
    println!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("run {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs a command with its output captured, whatever the exit code. The output goes to files: a
/// pipe would stay open as long as any background process of the program.
pub(crate) fn capture(mut command: impl BorrowMut<Command>) -> Result<Output> {
    let command = command.borrow_mut();
    let line = describe(command);
    let file = || tempfile::tempfile().context("make a file for the output of a program");
    let [stdout, stderr] = [file()?, file()?];
    let copy = |file: &File| file.try_clone().context("duplicate a file descriptor");
    command.stdin(Stdio::null()).stdout(copy(&stdout)?).stderr(copy(&stderr)?);
    let status = command.status().with_context(|| format!("run {line}"))?;
    let printed = |mut file: File| -> Result<String> {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).context("read an output")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Output { code: status.code(), stdout: printed(stdout)?, stderr: printed(stderr)? })
}

/// Runs a command and returns its standard output; a failure has the last lines of the output.
pub(crate) fn stdout_of(mut command: impl BorrowMut<Command>) -> Result<String> {
    let out = capture(command.borrow_mut())?;
    if !out.ok() {
        let line = describe(command.borrow());
        let code = out.code.map_or_else(|| "a signal".into(), |code| format!("exit code {code}"));
        let late = if out.code == Some(124) { " (took too long)" } else { "" };
        bail!("{line}: {code}{late}\n{}", tail(&format!("{}{}", out.stdout, out.stderr)));
    }
    Ok(out.stdout)
}

/// Runs a command and parses its standard output as JSON, from the first brace on.
pub(crate) fn json_of(mut command: impl BorrowMut<Command>) -> Result<serde_json::Value> {
    json_in(&stdout_of(command.borrow_mut())?).with_context(|| describe(command.borrow()))
}

/// Returns the first JSON object in a text.
pub(crate) fn json_in(text: &str) -> Result<serde_json::Value> {
    let start = text.find('{').context("the output contains no JSON")?;
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    values.next().context("the output contains no JSON")?.context("parse JSON")
}

/// Returns the last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Returns the command line as typed by a user, without the part that limits its time.
fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    if words[0] == "setpriv" {
        words.drain(..3);
    }
    if words[0] == "timeout" {
        words.drain(..1);
        let is_limit = |word: &String| word.starts_with('-') || word.parse::<u64>().is_ok();
        words.drain(..words.iter().take_while(|word| is_limit(word)).count());
    }
    if let Some(name) = Path::new(&words[0]).file_name() {
        words[0] = name.to_string_lossy().into_owned();
    }
    words.join(" ")
}

/// Returns true if a program is in the search path.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}

/// Returns the reason why a proof that needs root and these programs cannot run, if there is one.
pub(crate) fn unmet_requirement(needs: &[&str]) -> Option<String> {
    if is_root() { missing_program(needs) } else { Some("needs root".into()) }
}

/// Returns the reason why a proof that needs these programs, but not root, cannot run.
pub(crate) fn missing_program(needs: &[&str]) -> Option<String> {
    needs.iter().find(|name| !installed(name)).map(|name| format!("{name} is not installed"))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_an_error_that_carries_its_words() {
        let error = stdout_of(cmd!("sh -c 'echo reason >&2; exit 3'")).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains("exit code 3") && message.contains("reason"), "{message}");
    }

    #[test]
    fn a_stuck_client_is_ended() {
        let error = stdout_of(cmd!(1, "sleep 30")).unwrap_err();
        assert!(format!("{error:#}").starts_with("sleep 30: "), "{error:#}");
    }

    #[test]
    fn what_a_stuck_client_leaves_behind_is_not_waited_for() {
        let begun = std::time::Instant::now();
        stdout_of(cmd!(1, "sh -c 'setsid sleep 60 & sleep 60'")).unwrap_err();
        assert!(begun.elapsed().as_secs() < 50, "it waits for what the client started");
    }
}
