//! Parts of tests that another process runs: it is this program, which runs that one test.
//!
//! A process that serves a mount must not access mappings of its files: while one of its threads
//! waits for a page, another one may wait for their common address space.

use crate::common::spawn::starting;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than any part takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Runs a program that this process has written. A child between fork and exec has the program open
/// for writing, and until the exec the kernel refuses to run it.
pub(crate) fn status(program: &Path) -> io::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        let starting = starting();
        let ran = Command::new(program).status();
        drop(starting);
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ExecutableFileBusy;
        if !ran.as_ref().is_err_and(is_busy) || begun.elapsed() > TIMEOUT {
            return ran;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn variable(part: &str) -> String {
    format!("LARDER_PART_{}", part.to_uppercase())
}

/// Returns the arguments for this process, if it is the other one.
pub(crate) fn arguments(part: &str) -> Option<Vec<String>> {
    let words = std::env::var(variable(part)).ok()?;
    Some(words.split('\n').map(str::to_owned).collect())
}

/// Runs `test` in another process with these arguments, and fails if it fails.
pub(crate) fn run(part: &str, test: &str, words: &[String]) {
    let program = std::env::current_exe().expect("this program has a name");
    let mut output_file: File = tempfile::tempfile().expect("a file");
    let starting = starting();
    let mut child = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(variable(part), words.join("\n"))
        .stdin(Stdio::null())
        .stdout(output_file.try_clone().expect("a descriptor"))
        .stderr(output_file.try_clone().expect("a descriptor"))
        .spawn()
        .expect("this program runs");
    drop(starting);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break Some(status);
        }
        if begun.elapsed() > TIMEOUT {
            child.kill().expect("it is ours");
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut output = String::new();
    output_file.rewind().expect("a file");
    output_file.read_to_string(&mut output).expect("text");
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{output}");
    assert!(output.contains("test result: ok. 1 passed"), "{test} did not run:\n{output}");
}
