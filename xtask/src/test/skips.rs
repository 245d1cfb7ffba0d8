//! Tests that could not run here, each with its reason.
//!
//! A test reports a skip by a line `TEST<TAB>REASON` in the file given by `LARDER_SKIPS`
//! (`larder_testing::skip`). In continuous integration a skip that the list in the repository does
//! not allow is a failure, so that a missing package cannot disable a test silently.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::Line;
use crate::run;
use crate::table::Verdict;

/// The list of allowed skips, one per line: `TEST: START OF THE REASON`; `#` begins a comment.
const ALLOWED: &str = ".ci/allowed-skips";

/// The file to which the tests of one run append their skips.
#[derive(Debug)]
pub(super) struct Skips {
    file: tempfile::NamedTempFile,
}

impl Skips {
    /// Creates an empty file.
    pub(super) fn collect() -> Self {
        let file = tempfile::NamedTempFile::new().expect("TMPDIR takes a file");
        // Tests of other users append to it as well.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        file.as_file().set_permissions(all).expect("the owner sets permissions");
        Skips { file }
    }

    /// Returns the value of `LARDER_SKIPS`.
    pub(super) fn file(&self) -> &Path {
        self.file.path()
    }

    /// Adds a skip of a whole step.
    pub(super) fn add(&self, name: &str, reason: &str) {
        writeln!(self.file.as_file(), "{name}\t{reason}").expect("TMPDIR takes a line");
    }

    /// Adds a line for each skip: skipped, or failed if it is not allowed.
    pub(super) fn report(&self, lines: &mut Vec<Line>) {
        let text = fs::read_to_string(self.file.path()).expect("the file is ours");
        let allowed = std::env::var_os("CI").map(|_| allowed());
        lines.extend(judge(&text, allowed.as_deref()));
    }
}

/// Returns the entries of the list in the repository.
fn allowed() -> Vec<String> {
    let path = run::workspace().map(|root: PathBuf| root.join(ALLOWED));
    let text = path.ok().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Returns a line for each distinct skip of a file; `allowed` is `None` if all skips are allowed.
fn judge(text: &str, allowed: Option<&[String]>) -> Vec<Line> {
    let skips: BTreeSet<&str> = text.lines().collect();
    let line = |skip: &str| {
        let (name, reason) = skip.split_once('\t').unwrap_or((skip, "no reason given"));
        let entry = format!("{name}: {reason}");
        let fine = allowed.is_none_or(|list| list.iter().any(|it| entry.starts_with(it.as_str())));
        let refusal = format!("{reason}; not allowed by {ALLOWED}");
        let note = if fine { reason.to_owned() } else { refusal };
        let verdict = if fine { Verdict::Skipped } else { Verdict::Fails };
        Line { name: name.to_owned(), note, verdict }
    };
    skips.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_that_is_not_allowed_fails_only_in_continuous_integration() {
        let text =
            "io::mount\tneeds root\nlab::traces\tno ../shared/traces\nio::mount\tneeds root\n";
        let verdicts = |allowed: Option<&[String]>| -> Vec<Verdict> {
            judge(text, allowed).iter().map(|line| line.verdict).collect()
        };
        assert_eq!(verdicts(None), [Verdict::Skipped; 2]);
        let list = ["io::mount: needs".to_owned()];
        assert_eq!(verdicts(Some(&list)), [Verdict::Skipped, Verdict::Fails]);
        assert_eq!(verdicts(Some(&[])), [Verdict::Fails; 2]);
    }
}
