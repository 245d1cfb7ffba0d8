//! The command in a directory of its own on a disk; skipped where nothing can be mounted.

use larder_testing::skip;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// How long a trial is: a machine may stand still for half of it, and something is measured.
pub(crate) const LENGTH: &str = "400ms";
/// Work that takes a moment, and all of it so often that there can be a verdict.
pub(crate) const SHORT: [&str; 11] = [
    "--workload",
    "probe",
    "--memory",
    "16MiB",
    "--trials",
    "4",
    "--",
    "--size",
    "1MiB",
    "--length",
    LENGTH,
];
/// [`SHORT`] with one trial, for tests that do not check the measurements.
pub(crate) fn shortest() -> [&'static str; 11] {
    SHORT.map(|word| if word == "4" { "1" } else { word })
}

/// Work that would take for ever.
pub(crate) const LONG: [&str; 9] =
    ["--workload", "probe", "--memory", "16MiB", "--", "--size", "1MiB", "--length", "1h"];

/// Whether a directory can be mounted here; says so if not.
pub(crate) fn may() -> bool {
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3"];
    let may_mount =
        rustix::process::geteuid().is_root() || helper.iter().any(|path| Path::new(path).exists());
    let may = Path::new("/dev/fuse").exists() && may_mount;
    if !may {
        skip("needs FUSE");
    }
    may
}

/// An empty directory on a disk, if the build is on one.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// `larder try` in a directory with these words, and its page beside the directory.
pub(crate) fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("try").arg(directory).arg("-o").arg(page(directory)).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Where the page of a run in a directory goes.
pub(crate) fn page(directory: &Path) -> PathBuf {
    directory.with_extension("json")
}

/// Runs it to its end.
pub(crate) fn done(directory: &Path, words: &[&str]) -> Output {
    command(directory, words).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// It refuses with one sentence and leaves nothing.
pub(crate) fn refused(directory: &Path, words: &[&str]) -> String {
    let output = done(directory, words);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{said}");
    let last = said.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("larder: failed to "), "{said}");
    last
}

/// What is in a directory; nothing if it is gone.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What is mounted below a directory.
pub(crate) fn mounts(directory: &Path) -> Vec<String> {
    let directory = directory.canonicalize().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let inside = format!("{}/", directory.display());
    mounts.lines().filter(|line| line.contains(&inside)).map(str::to_owned).collect()
}

/// Processes that this one has started.
pub(crate) fn children(child: &Child) -> Vec<i32> {
    let pid = child.id();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
    };
    let all: String = tasks.map(of).collect::<Vec<_>>().join(" ");
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
