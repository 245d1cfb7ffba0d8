//! The command in a directory on a disk. Tests are skipped on a machine that cannot mount a
//! directory.

use larder_testing::skip;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Length of a trial: something is measured even if the machine stalls for half of it.
pub(crate) const LENGTH: &str = "400ms";
/// A short workload, with enough trials for a verdict.
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

/// A workload that does not end by itself.
pub(crate) const LONG: [&str; 9] =
    ["--workload", "probe", "--memory", "16MiB", "--", "--size", "1MiB", "--length", "1h"];

/// Returns true if a directory can be mounted here; otherwise reports a skip.
pub(crate) fn can_run() -> bool {
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3"];
    let may_mount =
        rustix::process::geteuid().is_root() || helper.iter().any(|path| Path::new(path).exists());
    let can_run = Path::new("/dev/fuse").exists() && may_mount;
    if !can_run {
        skip("needs FUSE");
    }
    can_run
}

/// Creates an empty directory, which is on a disk if the build directory is.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns `larder try` in a directory with `args`. Its page is next to the directory.
pub(crate) fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("try").arg(directory).arg("-o").arg(page(directory)).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the path of the page of a run in a directory.
pub(crate) fn page(directory: &Path) -> PathBuf {
    directory.with_extension("json")
}

/// Runs the command to its end.
pub(crate) fn run_try(directory: &Path, args: &[&str]) -> Output {
    command(directory, args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must be refused with one message, and returns the message.
pub(crate) fn expect_refusal(directory: &Path, args: &[&str]) -> String {
    let output = run_try(directory, args);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("larder: cannot "), "{stderr}");
    last
}

/// Returns the names of the entries of a directory, or none if the directory is missing.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns the mounts below a directory.
pub(crate) fn mounts(directory: &Path) -> Vec<String> {
    let directory = directory.canonicalize().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let prefix = format!("{}/", directory.display());
    mounts.lines().filter(|line| line.contains(&prefix)).map(str::to_owned).collect()
}

/// Returns the child processes of `child`.
pub(crate) fn children(child: &Child) -> Vec<i32> {
    let pid = child.id();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
    };
    let all: String = tasks.map(of).collect::<Vec<_>>().join(" ");
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Waits until `condition` returns true.
pub(crate) fn until(event: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain: {event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
