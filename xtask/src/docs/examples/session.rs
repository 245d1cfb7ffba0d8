//! A shell that runs the examples of one page in an empty directory.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::run;

/// Time limit of a command in seconds, before the factor for slow machines.
const COMMAND_S_MAX: u64 = 120;
/// Time limit for the first output of a command in the background.
const BACKGROUND_MAX: Duration = Duration::from_secs(20);
/// Time limit for background processes to end.
const END_TIME_MAX: Duration = Duration::from_secs(30);
/// Output of a background process whose lines are not known is complete after this time.
const QUIET: Duration = Duration::from_secs(1);
/// Precedes the exit status of a command in the output.
const END: char = '\x1e';
/// The directory of the session in the pages.
const SHOWN_DIRECTORY: &str = "/srv/example";

/// Runs each command that arrives on standard input; 0 bytes separate them. At the end it ends the
/// jobs. A subshell loses a signal that arrives immediately before its exec, so jobs that still run
/// after 5 s get another one.
const LOOP: &str = "while IFS= read -r -d '' command; do eval \"$command\" </dev/null; \
    printf '\\036%d\\n' \"$?\"; done; \
    for try in 1 2 3 4 5; do kill $(jobs -rp) 2>/dev/null || break; \
    for step in {1..50}; do [ -n \"$(jobs -rp)\" ] || break; sleep 0.1; done; done; wait";

#[derive(Debug)]
pub(super) struct Session {
    shell: Child,
    output: Receiver<Vec<u8>>,
    directory: TempDir,
    seconds_max: u64,
}

/// Output and exit status of a command.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) status: i32,
}

impl Session {
    /// Starts a shell in which `larder` is this program.
    pub(super) fn start(larder: &Path) -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory")?;
        let programs = larder.parent().context("find the directory of larder")?.to_owned();
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(programs).chain(std::env::split_paths(&old));
        let path = std::env::join_paths(path).context("join PATH")?;
        let (mut reader, writer) = std::io::pipe().context("make a pipe")?;
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", LOOP]).current_dir(directory.path());
        command.env("PATH", path).env("HOME", directory.path()).env_remove("XDG_RUNTIME_DIR");
        command.env("LARDER_SOURCE", run::workspace()?);
        // Servers of other pages are not found.
        command.env("RUNTIME_DIRECTORY", directory.path());
        command.envs([("TZ", "UTC"), ("LC_ALL", "C.UTF-8"), ("COLUMNS", "110"), ("TERM", "dumb")]);
        command.process_group(0).stdin(Stdio::piped());
        command.stdout(writer.try_clone().context("duplicate a pipe")?).stderr(writer);
        let shell = command.spawn().context("start bash")?;
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let seconds_max = COMMAND_S_MAX * run::time_factor()?;
        Ok(Session { shell, output, directory, seconds_max })
    }

    /// Runs a command. One that ends with `&` has printed everything when `lines` lines are there,
    /// or, if that is 0, when nothing follows for a while.
    ///
    /// # Errors
    /// The command takes too long, or ends the shell.
    pub(super) fn run(&mut self, command: &str, lines: usize) -> Result<Printed> {
        let input = self.shell.stdin.as_mut().context("the shell has no input")?;
        let sent = input.write_all(command.as_bytes()).and_then(|()| input.write_all(&[0]));
        sent.with_context(|| format!("run `{command}`: the shell has ended"))?;
        let in_background = command.trim_end().ends_with('&');
        let background_max = if lines > 0 { BACKGROUND_MAX } else { QUIET };
        let started_at = Instant::now();
        let mut bytes = Vec::new();
        loop {
            let printed = split_status(&bytes);
            let is_complete = |text: &str| lines > 0 && text.lines().count() >= lines;
            let limit = match printed {
                Some((text, status)) if !in_background || is_complete(&text) => {
                    return Ok(self.shown(&text, status));
                }
                Some(_) => background_max,
                None => Duration::from_secs(self.seconds_max),
            };
            let rest = limit.saturating_sub(started_at.elapsed());
            match (self.output.recv_timeout(rest), split_status(&bytes)) {
                (Ok(more), _) => bytes.extend(more),
                (Err(_), Some((text, status))) => return Ok(self.shown(&text, status)),
                (Err(_), None) => bail!("`{command}` did not end within {} s", self.seconds_max),
            }
        }
    }

    /// Returns output with the directory that pages show.
    fn shown(&self, text: &str, status: i32) -> Printed {
        let own = self.directory.path().display().to_string();
        Printed { text: text.replace(&own, SHOWN_DIRECTORY), status }
    }

    /// Ends the shell and its background processes.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.shell.stdin.take());
        let started_at = Instant::now();
        while self.shell.try_wait().context("wait for the shell")?.is_none() {
            if started_at.elapsed() > END_TIME_MAX {
                bail!("the background processes of the page do not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Splits off the status of a command, which the shell may print before the output of a background
/// process.
fn split_status(bytes: &[u8]) -> Option<(String, i32)> {
    let text = String::from_utf8_lossy(bytes);
    let (before, rest) = text.split_once(END)?;
    let (status, after) = rest.split_once('\n')?;
    Some((format!("{before}{after}"), status.parse().ok()?))
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Ok(None) = self.shell.try_wait() {
            if let Some(group) = i32::try_from(self.shell.id()).ok().and_then(Pid::from_raw) {
                // The processes may have ended meanwhile.
                let _gone = kill_process_group(group, Signal::KILL);
            }
            drop(self.shell.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_share_a_shell_and_jobs_end_with_it() {
        let mut session = Session::start(Path::new("/bin/true")).unwrap();
        let mut run = |command: &str| {
            let Printed { text, status } = session.run(command, 0).unwrap();
            (text, status)
        };
        assert_eq!(run("x=3; pwd"), (format!("{SHOWN_DIRECTORY}\n"), 0));
        assert_eq!(run("echo $x >&2; false"), ("3\n".to_owned(), 1));
        assert_eq!(run("cat"), (String::new(), 0));
        assert_eq!(run("sleep 1000 &").1, 0);
        session.end().unwrap();
    }

    #[test]
    fn a_background_process_is_awaited_by_its_lines() {
        let mut session = Session::start(Path::new("/bin/true")).unwrap();
        let printed = session.run("(read -t 0.2 < /dev/zero; echo ready; exec sleep 1000) &", 1);
        assert_eq!(printed.unwrap().text, "ready\n");
        session.end().unwrap();
    }
}
