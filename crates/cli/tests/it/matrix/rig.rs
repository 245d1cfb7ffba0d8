//! The command in a scratch directory of its own; skipped where this machine does not let us.

use larder_testing::{MachineLock, skip};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// One test at a time: each start clears up after all that were killed.
pub(crate) fn alone() -> MachineLock {
    MachineLock::exclusive("scratch")
}

/// Whether file systems can be made here; says so if not.
pub(crate) fn may() -> bool {
    let tools = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
    let lacks = if !rustix::process::geteuid().is_root() {
        Some("root")
    } else if !Path::new("/dev/loop-control").exists() {
        Some("loop devices")
    } else if !tools.iter().any(|path| Path::new(path).exists()) {
        Some("mkfs.ext4")
    } else {
        None
    };
    if let Some(lacks) = lacks {
        skip(format_args!("needs {lacks}"));
    }
    lacks.is_none()
}

/// Returns the program under test, or the one that `cargo xtask prove matrix` names.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("LARDER_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into())
}

/// `larder bench matrix` on ext4 with these words and images in `scratch`.
pub(crate) fn command(scratch: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", "matrix", "--workload", "postmark", "--fs", "ext4"]);
    command.args(["--size", "64MiB", "--scratch"]).arg(scratch).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What is said on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a run that would take for ever, and waits until the benchmark works in it: where it is
/// mounted.
pub(crate) fn start(scratch: &Path) -> (Child, PathBuf) {
    let long = ["--scheduler", "none", "--", "--transactions", "2000000", "--bias-create", "6"];
    let child = command(scratch, &long).spawn().unwrap();
    let mut found = None;
    until("the benchmark begins", || {
        found = names(scratch).first().map(|name| scratch.join(name).join("mounted"));
        found.as_ref().is_some_and(|point| {
            names(point).iter().any(|name| name.starts_with("larder-postmark-"))
        })
    });
    (child, found.unwrap())
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is in a directory; nothing if it is gone.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Mounts and loop devices that belong to a directory.
pub(crate) fn traces(directory: &Path) -> Vec<String> {
    let directory = directory.canonicalize().unwrap();
    let directory = directory.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut found: Vec<String> =
        mounts.lines().filter(|line| line.contains(directory)).map(str::to_owned).collect();
    for device in names(Path::new("/sys/block")) {
        let file = Path::new("/sys/block").join(&device).join("loop/backing_file");
        let file = std::fs::read_to_string(file).unwrap_or_default();
        found.extend(file.starts_with(directory).then(|| format!("{device}: {file}")));
    }
    found
}
