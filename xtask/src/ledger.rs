//! Ledgers of long runs in bench-runs/: the executed seeds of each suite per version of the code,
//! so that a proof continues where the last one stopped.
//!
//! An entry counts as long as its hash is that of the code under test. Of entries for earlier code
//! only the number of seeds is kept. A ledger is replaced as a whole: a proof that is killed
//! leaves the old file or the new one.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Map, Value, json};

use crate::run::{self, cmd};

const SCHEMA: &str = "larder-ledger";
/// Prints the hash of the files below its arguments, except tests, and of the text `EXTRA`. Blank
/// lines of Rust code and lines that are comments as a whole do not count.
const HASH: &str = r#"set -eo pipefail
    files() { LC_ALL=C find "$@" -type f -print0 | LC_ALL=C sort -z; }
    { files "$@" -name '*.rs' -not -name tests.rs -not -path '*/tests/*' |
          xargs -0r awk '!/^[ \t]*(\/\/.*)?$/'
      files "$@" -not -name '*.rs' -not -path '*/tests/*' | xargs -0r cat
      printf %s "$EXTRA"; } | sha256sum | cut -c 1-16"#;
/// The sources that are compiled into the server.
const SOURCES: [&str; 4] = ["crates/mem", "crates/core", "crates/io", "crates/server"];
/// The scripts that run the tests.
const SCRIPTS: &str = "xtask/posix";

/// Returns the hash of the code under test (the sources and the names and versions of their
/// dependencies, or a file) and of the test scripts.
pub(crate) fn code_hash(root: &Path, file: Option<&Path>) -> Result<String> {
    if let Some(file) = file {
        return hash(root, &[Path::new(SCRIPTS), file], "");
    }
    let tree = run::stdout_of(run::cargo(root).args([
        "tree",
        "--locked",
        "--offline",
        "-p=larder-server",
        "--all-features",
        "-e=normal",
        "--prefix=none",
    ]))
    .context("list the dependencies of the server")?;
    let of_others = tree.lines().filter(|line| !line.starts_with("larder-"));
    let dependencies: BTreeSet<&str> =
        of_others.map(|line| line.trim_end_matches(" (*)")).collect();
    let paths = [SCRIPTS].into_iter().chain(SOURCES).map(Path::new);
    hash(root, &paths.collect::<Vec<_>>(), &Vec::from_iter(dependencies).join("\n"))
}

/// Returns the hash of files and of the files below directories, except tests and comments.
pub(crate) fn hash_files(root: &Path, paths: &[&Path]) -> Result<String> {
    hash(root, paths, "")
}

fn hash(root: &Path, paths: &[&Path], extra: &str) -> Result<String> {
    let mut command = cmd!("bash -c {HASH} hash");
    command.args(paths).env("EXTRA", extra);
    let hash = run::stdout_of(command.current_dir(root)).context("hash the code under test")?;
    Ok(hash.trim().to_owned())
}

/// Results of consecutive seeds of one suite on one variant.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SeedResults {
    /// Totals by name, such as `executions`, `passed`, `not_run`.
    pub(crate) counts: Map<String, Value>,
    /// Failed tests, with their messages.
    pub(crate) failed: Map<String, Value>,
    /// Tests that did not run, with the reasons.
    pub(crate) not_run: Map<String, Value>,
    /// Number of seeds that were executed on earlier code.
    pub(crate) earlier: u64,
}

impl SeedResults {
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    pub(crate) fn add_count(&mut self, name: &str, count: u64) {
        self.counts.insert(name.to_owned(), (self.count(name) + count).into());
    }

    /// Adds the results of later seeds.
    fn extend(&mut self, later: &SeedResults) {
        for name in later.counts.keys() {
            self.add_count(name, later.count(name));
        }
        self.failed.extend(later.failed.clone());
        self.not_run.extend(later.not_run.clone());
        self.earlier += later.earlier;
    }
}

/// The ledger of a proof.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    commit: String,
    entries: Vec<Value>,
}

impl Ledger {
    /// Opens `bench-runs/NAME.json`; a missing ledger is empty.
    pub(crate) fn open(root: &Path, name: &str) -> Result<Self> {
        let mut git = cmd!("git describe --always --dirty");
        let commit = run::stdout_of(git.current_dir(root)).unwrap_or_default().trim().to_owned();
        let path = root.join("bench-runs").join(name).with_extension("json");
        let entries = read(&path)?;
        Ok(Self { path, commit, entries })
    }

    /// Returns the entries of a suite on a variant that count for this code, in the order of seeds.
    fn valid(&self, [suite, variant, code]: [&str; 3]) -> impl Iterator<Item = &Value> {
        self.entries.iter().filter(move |entry| is_of(entry, suite, variant, Some(code)))
    }

    /// Returns the first seed that was not executed on this code.
    pub(crate) fn next_seed(&self, key: [&str; 3]) -> u64 {
        self.valid(key).map(|entry| seeds(entry).end).max().unwrap_or(0)
    }

    /// Returns the results of all seeds on this code; none if there are none.
    pub(crate) fn outcome(&self, key: [&str; 3]) -> Option<SeedResults> {
        self.valid(key).map(outcome_of).reduce(|mut all, later| {
            all.extend(&later);
            all
        })
    }

    /// Returns the number of seeds that were executed on earlier code.
    pub(crate) fn earlier(&self, [suite, variant, code]: [&str; 3]) -> u64 {
        let of_suite = self.entries.iter().filter(|entry| is_of(entry, suite, variant, None));
        of_suite.map(|entry| earlier_in(entry, code)).sum()
    }

    /// Adds results and writes the ledger. Entries of the same suite and variant for earlier code
    /// are removed; the number of their seeds is added to the new entry.
    pub(crate) fn add(
        &mut self,
        [suite, variant, code]: [&str; 3],
        mut range: Range<u64>,
        outcome: &SeedResults,
    ) -> Result<()> {
        let dir = self.path.parent().context("a ledger lies in a directory")?;
        // Other proofs may write at the same time.
        let lock = std::fs::File::open(dir).context("open the directory of the ledgers")?;
        flock(&lock, FlockOperation::LockExclusive).context("lock the directory of the ledgers")?;
        self.entries = read(&self.path)?;
        let is_same = |entry: &Value| is_of(entry, suite, variant, None);
        let is_void = |entry: &Value| is_same(entry) && !is_of(entry, suite, variant, Some(code));
        let mut whole = SeedResults::default();
        for void in self.entries.extract_if(.., |entry| is_void(entry)) {
            whole.earlier += earlier_in(&void, code);
        }
        let before = |entry: &Value| is_same(entry) && seeds(entry).end == range.start;
        if let Some(at) = self.entries.iter().position(before) {
            let earlier = self.entries.remove(at);
            range.start = seeds(&earlier).start;
            whole.extend(&outcome_of(&earlier));
        }
        whole.extend(outcome);
        let date = run::stdout_of(cmd!("date -u +%Y-%m-%dT%H:%M:%SZ"))?;
        self.entries.push(json!({
            "suite": suite, "variant": variant, "seeds": [range.start, range.end],
            "counts": whole.counts, "failed": whole.failed, "not_run": whole.not_run,
            "earlier": whole.earlier, "code": code, "commit": self.commit, "at": date.trim(),
        }));
        let key = |entry: &Value| {
            let word = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            (word("suite"), word("variant"), seeds(entry).start)
        };
        self.entries.sort_by_key(key);
        self.write()
    }

    fn write(&self) -> Result<()> {
        let whole = json!({ "schema": SCHEMA, "version": 1, "entries": self.entries });
        let dir = self.path.parent().context("a ledger lies in a directory")?;
        let mut file = tempfile::NamedTempFile::new_in(dir).context("create a ledger")?;
        let text = serde_json::to_string_pretty(&whole).context("print a ledger")?;
        writeln!(file, "{text}").context("write a ledger")?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(mode).context("set the mode of a ledger")?;
        file.as_file().sync_all().context("flush a ledger")?;
        file.persist(&self.path).with_context(|| format!("replace {}", self.path.display()))?;
        Ok(())
    }
}

fn is_of(entry: &Value, suite: &str, variant: &str, code: Option<&str>) -> bool {
    entry["suite"] == suite
        && entry["variant"] == variant
        && code.is_none_or(|code| entry["code"] == code)
}

fn seeds(entry: &Value) -> Range<u64> {
    let bound = |index: usize| entry["seeds"][index].as_u64().unwrap_or(0);
    bound(0)..bound(1)
}

/// Returns the number of an entry's seeds that were not executed on this code.
fn earlier_in(entry: &Value, code: &str) -> u64 {
    let Range { start, end } = seeds(entry);
    let void = if entry["code"] == code { 0 } else { end.saturating_sub(start) };
    void + outcome_of(entry).earlier
}

fn outcome_of(entry: &Value) -> SeedResults {
    let map = |name: &str| entry[name].as_object().cloned().unwrap_or_default();
    let earlier = entry["earlier"].as_u64().unwrap_or(0);
    SeedResults { counts: map("counts"), failed: map("failed"), not_run: map("not_run"), earlier }
}

/// Returns the entries of a ledger; none if it is missing.
fn read(path: &Path) -> Result<Vec<Value>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let whole = crate::record::read(path)?;
    let is_known = whole["schema"] == SCHEMA && whole["version"] == 1;
    ensure!(is_known, "{}: not a {SCHEMA} of version 1", path.display());
    Ok(whole["entries"].as_array().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(executions: u64) -> SeedResults {
        let mut outcome = SeedResults::default();
        outcome.add_count("executions", executions);
        outcome
    }

    #[test]
    fn seeds_accumulate_for_one_code_and_are_void_for_another() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bench-runs")).unwrap();
        let (old, new) = (["fsx", "mount", "a"], ["fsx", "mount", "b"]);
        let mut ledger = Ledger::open(dir.path(), "hardening").unwrap();
        assert_eq!((ledger.next_seed(old), ledger.outcome(old)), (0, None));
        ledger.add(old, 0..3, &outcome(3)).unwrap();
        ledger.add(["fsx", "volume", "a"], 0..1, &outcome(1)).unwrap();
        let mut other = Ledger::open(dir.path(), "hardening").unwrap();
        other.add(old, 3..5, &outcome(2)).unwrap();
        assert_eq!(other.entries.len(), 2, "consecutive seeds are one entry");
        assert_eq!((other.next_seed(old), other.outcome(old)), (5, Some(outcome(5))));
        assert_eq!((other.next_seed(new), other.earlier(new), other.earlier(old)), (0, 5, 0));
        // The first ledger was read before the seeds 3 and 4 were added, and must not lose them.
        ledger.add(old, 5..6, &outcome(1)).unwrap();
        assert_eq!(ledger.outcome(old), Some(outcome(6)));
        ledger.add(new, 0..1, &outcome(1)).unwrap();
        ledger.add(new, 1..2, &outcome(1)).unwrap();
        let ledger = Ledger::open(dir.path(), "hardening").unwrap();
        assert_eq!(ledger.outcome(new), Some(SeedResults { earlier: 6, ..outcome(2) }));
        assert_eq!(ledger.earlier(new), 6);
        assert_eq!((ledger.next_seed(old), ledger.next_seed(new)), (0, 2));
        assert_eq!(ledger.entries.len(), 2, "void entries of the same cell are gone");
    }

    #[test]
    fn a_ledger_of_another_schema_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bench-runs/x.json");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "{\"schema\": \"other\"}").unwrap();
        assert!(Ledger::open(dir.path(), "x").is_err());
    }

    #[test]
    fn tests_and_comments_are_not_part_of_the_code() {
        let dir = tempfile::tempdir().unwrap();
        let hash_with = |files: &[(&str, &str)]| {
            for (name, text) in files {
                let path = dir.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            hash_files(dir.path(), &[Path::new("src")]).unwrap()
        };
        let first = hash_with(&[("src/lib.rs", "fn f() {}\n"), ("src/data", "# text\n")]);
        let comments = [("src/lib.rs", "//! Words.\n\n  // More.\nfn f() {}\n")];
        assert_eq!(hash_with(&comments), first);
        assert_eq!(hash_with(&[("src/tests.rs", "x"), ("src/a/tests/b.rs", "y")]), first);
        let data = hash_with(&[("src/data", "// text\n")]);
        assert_ne!(data, first, "only Rust has comments");
        assert_ne!(hash_with(&[("src/lib.rs", "fn g() {}\n")]), data);
        assert!(hash_files(dir.path(), &[Path::new("src"), Path::new("gone")]).is_err());
    }

    #[test]
    fn the_code_is_that_of_the_sources_or_of_the_binary() {
        let root = run::workspace().unwrap();
        let code_of = |binary| code_hash(&root, binary).unwrap();
        assert_eq!(code_of(None), code_of(None));
        assert_ne!(code_of(None), code_of(Some(&root.join("Cargo.lock"))));
    }
}
