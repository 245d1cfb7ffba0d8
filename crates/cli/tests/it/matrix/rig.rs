//! The command with its scratch directory. Tests are skipped on a machine that cannot create file
//! systems.

use larder_testing::{MachineLock, skip};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Locks the machine for one test at a time: each start removes the left-overs of all killed runs.
pub(crate) fn lock_scratch() -> MachineLock {
    MachineLock::exclusive("scratch")
}

/// Returns true if file systems can be created here; otherwise reports a skip.
pub(crate) fn can_run() -> bool {
    let tools = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
    let missing = if !rustix::process::geteuid().is_root() {
        Some("root")
    } else if !Path::new("/dev/loop-control").exists() {
        Some("loop devices")
    } else if !tools.iter().any(|path| Path::new(path).exists()) {
        Some("mkfs.ext4")
    } else {
        None
    };
    if let Some(missing) = missing {
        skip(format_args!("needs {missing}"));
    }
    missing.is_none()
}

/// Returns the program under test, or the one that `cargo xtask prove matrix` names.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("LARDER_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_larder").into())
}

/// Returns `larder bench matrix` on ext4 with `args` and with images in `scratch`.
pub(crate) fn command(scratch: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["bench", "matrix", "--workload", "postmark", "--fs", "ext4"]);
    command.args(["--size", "64MiB", "--scratch"]).arg(scratch).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the standard error of a command.
pub(crate) fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts a run that does not end by itself, waits until the benchmark has created files, and
/// returns the mountpoint of its file system.
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

/// Waits until `condition` returns true.
pub(crate) fn until(event: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain: {event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the names of the entries of a directory, or none if the directory is missing.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns the mounts and loop devices that belong to a directory.
pub(crate) fn leftovers(directory: &Path) -> Vec<String> {
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
