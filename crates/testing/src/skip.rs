//! Reports of tests, and of parts of tests, that cannot run on this machine.

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;

/// The environment variable with the absolute path of the file that collects skips.
const SKIPS: &str = "LARDER_SKIPS";

/// Reports that the running test, or a part of it, cannot run here.
///
/// Prints `skipped: REASON`. If the environment variable `LARDER_SKIPS` names a file, appends the
/// line `PACKAGE::module::test_name<TAB>REASON` to it. A test calls this and returns, or continues
/// with its next part.
///
/// # Panics
/// That file cannot be written: a skip that is not reported looks like a test that passed.
#[expect(clippy::print_stdout, reason = "the test run collects and prints the reasons")]
pub fn skip(reason: impl Display) {
    let reason = one_line(&reason.to_string());
    println!("skipped: {reason}");
    let Some(file) = std::env::var_os(SKIPS).filter(|file| !file.is_empty()) else { return };
    let line = format!("{}\t{reason}\n", test_name());
    if let Err(error) = append(Path::new(&file), &line) {
        panic!("cannot append to {}: {error}", Path::new(&file).display());
    }
}

/// Appends with a single write, so that lines of concurrent tests do not mix.
fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().create(true).append(true).open(file)?;
    let written = file.write(line.as_bytes())?;
    if written == line.len() { Ok(()) } else { Err(std::io::ErrorKind::WriteZero.into()) }
}

/// Returns the text with each run of white space as one space.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns `PACKAGE::module::test_name` of the running test. Cargo and nextest set the package;
/// nextest sets the name, and otherwise libtest names the thread after the test.
fn test_name() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "unknown".to_owned());
    let test = std::env::var("NEXTEST_TEST_NAME")
        .unwrap_or_else(|_| std::thread::current().name().unwrap_or("unknown_test").to_owned());
    format!("{package}::{test}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_with_the_name_of_the_test() {
        assert_eq!(one_line("no\ttool:\n  not found\n"), "no tool: not found");
        let name = test_name();
        let test = "skip::tests::a_skip_is_one_line_with_the_name_of_the_test";
        assert!(name.ends_with(&format!("::{test}")), "{name}");
    }

    #[test]
    fn skips_are_appended() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("skips");
        append(&file, "a\tb\n").unwrap();
        append(&file, "c\td\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\tb\nc\td\n");
        assert!(append(directory.path(), "a\tb\n").is_err(), "it is a directory");
    }
}
