//! Wrong uses of every command: `tests/wrong_uses.txt` lists each with its standard error and exit
//! code. To accept changed messages, write the file again, and review the difference:
//!
//! ```text
//! LARDER_WRITE_WRONG_USES=1 cargo nextest run -p larder --all-features wrong_uses
//! git diff crates/cli/tests/wrong_uses.txt
//! ```

use crate::shared::program::{Outcome, program, run_command};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable that makes the test write the file.
const WRITE: &str = "LARDER_WRITE_WRONG_USES";
/// Runs `larder` for a time that only a command exceeds that is not refused.
const SHELL: &str = "larder() { timeout 20 \"$LARDER\" \"$@\"; }\n";
/// Time limit for the start of the server on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum length of the first paragraph of a message.
const CHARACTERS_MAX: usize = 300;
/// Texts of the program's own language, and sentences behind a verb that does not need them.
const FORBIDDEN: [&str; 8] =
    ["failed to", "os error", "Err(", "Some(", "None", "unwrap", "panicked", "..="];

/// A part of the file.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    /// A command, with the lines of its standard error and of its exit code.
    Use { command: &'a str, expected: Vec<&'a str> },
    /// A comment, a heading, or a command that makes files.
    Line(&'a str),
}

/// Parses the file. A use ends with the line of its exit code; a new one has only its command.
fn parse(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            parts.push(Part::Line(line));
            continue;
        };
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with(['$', '#', '!'])) {
            expected.push(line);
            if line.starts_with("exit ") {
                break;
            }
        }
        if !expected.last().is_some_and(|line| line.starts_with("exit ")) {
            parts.push(Part::Use { command, expected: Vec::new() });
            parts.extend(expected.into_iter().map(Part::Line));
            continue;
        }
        parts.push(Part::Use { command, expected });
    }
    parts
}

/// The directory in which commands run, with its files and its server.
struct Rig {
    directory: TempDir,
    server: Child,
}

impl Rig {
    fn new(parts: &[Part<'_>]) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let lines = parts.iter().filter_map(|part| match part {
            Part::Line(line) => line.strip_prefix("! "),
            Part::Use { .. } => None,
        });
        let script: String = lines.flat_map(|line| [line, "\n"]).collect();
        let made = run_command(&mut shell(directory.path(), &format!("set -e\n{script}")));
        assert_eq!(made.code, Some(0), "{made:?}");
        let mut server = Command::new(program());
        server.args("serve served.img --memory 16MiB --listen unix:nbd.sock".split(' '));
        server.args(["--control", "served.control"]).current_dir(directory.path());
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let rig = Rig { server: server.spawn().unwrap(), directory };
        let started_at = Instant::now();
        while !rig.directory.path().join("served.control").exists() {
            assert!(started_at.elapsed() < TIMEOUT, "the server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        rig
    }

    /// Runs a wrong use; returns the lines of the file.
    fn lines(&self, command: &str) -> Vec<String> {
        let Outcome { code, err, .. } = run_command(&mut shell(self.directory.path(), command));
        let err = err.replace(self.directory.path().to_str().unwrap(), "DIRECTORY");
        let code = code.map_or_else(|| "by a signal".to_owned(), |code| code.to_string());
        err.lines().map(str::to_owned).chain([format!("exit {code}")]).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The test compares messages; the end of the server is the subject of others.
        drop(self.server.kill().and_then(|()| self.server.wait()));
    }
}

/// Returns the command that runs a script in a directory.
fn shell(directory: &Path, script: &str) -> Command {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-runs");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{SHELL}{script}")).current_dir(directory);
    command.env("LARDER", program()).env("RUNS", runs).env("LC_ALL", "C").env_remove("LARDER_LOG");
    command.env("RUNTIME_DIRECTORY", directory.join("runtime")).stdin(Stdio::null());
    command
}

/// Returns true if a use is for this machine and build, by the comment behind it.
fn is_for_here(command: &str) -> bool {
    match command.split_once(" # ").map_or("", |(_, needs)| needs) {
        "" => true,
        "root" => rustix::process::geteuid().is_root(),
        "fuse" => Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root(),
        "tls" => cfg!(feature = "tls"),
        other => panic!("{command}: there is no condition {other}"),
    }
}

/// Returns the lines of each use, in the order of the file; `None` if it is not for this machine.
fn run_all(parts: &[Part<'_>], commands: &[&str]) -> Vec<Option<Vec<String>>> {
    let next = AtomicUsize::new(0);
    let run_some = || {
        let (rig, mut found) = (Rig::new(parts), Vec::new());
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(command) = commands.get(number)
        {
            found.push((number, is_for_here(command).then(|| rig.lines(command))));
        }
        found
    };
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, lines)| lines).collect()
}

/// Returns the objections to a message.
fn objections(lines: &[String]) -> Vec<String> {
    let paragraph: Vec<_> =
        lines.iter().take_while(|line| !line.is_empty() && !line.starts_with("exit ")).collect();
    let characters: usize = paragraph.iter().map(|line| line.chars().count()).sum();
    let mut found = Vec::new();
    if characters > CHARACTERS_MAX {
        found.push(format!("it has {characters} characters, more than {CHARACTERS_MAX}"));
    }
    for text in FORBIDDEN {
        if lines.iter().any(|line| line.contains(text)) {
            found.push(format!("it contains \"{text}\""));
        }
    }
    if paragraph.is_empty() {
        found.push("there is no message".to_owned());
    }
    found
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong_uses.txt")
}

#[test]
fn every_wrong_use_is_answered_as_reviewed() {
    let text = std::fs::read_to_string(file()).unwrap();
    let parts = parse(&text);
    let commands: Vec<_> = parts.iter().filter_map(Part::command).collect();
    let distinct: HashSet<_> = commands.iter().collect();
    assert!(commands.len() >= 150 && distinct.len() == commands.len(), "a use is there twice");
    let mut found = run_all(&parts, &commands).into_iter();
    let (mut differences, mut written) = (String::new(), String::new());
    for part in &parts {
        let Part::Use { command, expected } = part else {
            writeln!(written, "{}", part.line()).unwrap();
            continue;
        };
        let expected: Vec<_> = expected.iter().map(|line| (*line).to_owned()).collect();
        let lines = found.next().unwrap().unwrap_or_else(|| expected.clone());
        writeln!(written, "$ {command}\n{}", lines.join("\n")).unwrap();
        let problems = objections(&lines);
        if lines != expected || !problems.is_empty() {
            writeln!(differences, "$ {command}").unwrap();
            for (sign, lines) in [('-', &expected), ('+', &lines), ('!', &problems)] {
                for line in lines {
                    writeln!(differences, "{sign} {line}").unwrap();
                }
            }
        }
    }
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(file(), written).unwrap();
    }
    assert!(differences.is_empty(), "{differences}\nto accept these messages, set {WRITE}=1");
}

impl<'a> Part<'a> {
    fn command(&self) -> Option<&'a str> {
        match self {
            Part::Use { command, .. } => Some(command),
            Part::Line(_) => None,
        }
    }

    fn line(&self) -> &'a str {
        match self {
            Part::Use { command, .. } => command,
            Part::Line(line) => line,
        }
    }
}

#[test]
fn a_use_ends_with_its_exit_code() {
    let parts = parse("# a\n$ larder x\nerror: y\n\n  tip: z\nexit 2\n$ larder new\n\n# b\n");
    let known = ["error: y", "", "  tip: z", "exit 2"].to_vec();
    assert_eq!(
        parts,
        [
            Part::Line("# a"),
            Part::Use { command: "larder x", expected: known },
            Part::Use { command: "larder new", expected: vec![] },
            Part::Line(""),
            Part::Line("# b"),
        ]
    );
}

#[test]
fn long_and_internal_messages_are_objected_to() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    assert_eq!(objections(&lines("larder: cannot read x: it is empty\nexit 2")), [""; 0]);
    assert_eq!(objections(&lines("exit 2")), ["there is no message"]);
    let wrong = format!("larder: failed to read x (os error 2){}\nexit 2", " ".repeat(300));
    assert_eq!(objections(&lines(&wrong)).len(), 3);
}
