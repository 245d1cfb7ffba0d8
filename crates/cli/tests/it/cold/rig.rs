//! File systems for tests, and the `larder bench` command.

use larder_testing::{Cleanup, has_tool, is_root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Size of an image, enough for every file system: XFS needs 300 MiB. The image is sparse.
const IMAGE_BYTES: u64 = 512 << 20;
/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

/// Runs `larder bench` with `args`.
pub(crate) fn bench(args: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("bench").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Returns content that no file system stores as a hole or inside an inode.
pub(crate) fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

/// Waits until `condition` returns true.
pub(crate) fn until(event: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < TIMEOUT, "waited in vain: {event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Creates a directory whose pages can be dropped. Reports a skip and returns `None` if the
/// temporary directory is not on a disk.
pub(crate) fn create_disk_directory() -> Option<TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let mount = larder_host::mounts::Mount::of(directory.path()).unwrap();
    if mount.is_memory() || mount.is_fuse() {
        skip(format_args!("the temporary directory is on {}", mount.fs_type));
        return None;
    }
    Some(directory)
}

/// Runs a tool and returns its output. If the tool fails, reports a skip and returns `None`.
pub(crate) fn tool(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().unwrap();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        skip(format_args!("{program} {}: {}", args.join(" "), stderr.trim()));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a tool for cleanup and ignores its failure.
pub(crate) fn undo(program: &str, args: &[&str]) {
    drop(Command::new(program).args(args).output().unwrap());
}

/// Unmounts `$1`, even if it is in use. The mount may have failed before.
const UNMOUNT: &str = "umount \"$1\" || umount --lazy \"$1\"";

/// A file system in an image file, mounted until dropped or until the test process dies.
pub(crate) struct Loop {
    point: PathBuf,
    _cleanup: Cleanup,
    _directory: TempDir,
}

impl Loop {
    /// Creates and mounts a file system of type `kind`. Reports a skip and returns `None` if this
    /// machine cannot.
    pub(crate) fn with(kind: &str) -> Option<Loop> {
        let maker = format!("mkfs.{kind}");
        if !is_root() || !has_tool(&maker) || !has_tool("losetup") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (image, point) = (directory.path().join("image"), directory.path().join("point"));
        std::fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
        std::fs::create_dir(&point).unwrap();
        tool(&maker, &["-q", image.to_str().unwrap()])?;
        let device = tool("losetup", &["--find", "--show", image.to_str().unwrap()])?;
        let script =
            format!("{UNMOUNT}; losetup --detach \"$2\"; rm -rf --one-file-system -- \"$3\"");
        let (shown, whole) = (point.to_str().unwrap(), directory.path().to_str().unwrap());
        let cleanup = Cleanup::with(&script, &[shown, &device, whole]);
        tool("mount", &["-t", kind, &device, shown])?;
        Some(Loop { point, _cleanup: cleanup, _directory: directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.point
    }
}

/// A bindfs (FUSE) mount of a directory, mounted until dropped or until the test process dies.
pub(crate) struct Bind {
    point: PathBuf,
    _cleanup: Cleanup,
    _directory: TempDir,
}

impl Bind {
    /// Mounts a directory with bindfs. Reports a skip and returns `None` if this machine cannot.
    pub(crate) fn with(options: &[&str]) -> Option<Bind> {
        if !is_root() || !has_tool("bindfs") || !has_tool("fusermount3") {
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            skip("/dev/fuse is missing");
            return None;
        }
        let directory = create_disk_directory()?;
        let (below, point) = (directory.path().join("below"), directory.path().join("point"));
        std::fs::create_dir(&below).unwrap();
        std::fs::create_dir(&point).unwrap();
        let paths = [below.to_str().unwrap(), point.to_str().unwrap()];
        let script = format!("{UNMOUNT}; rm -rf --one-file-system -- \"$2\"");
        let cleanup = Cleanup::with(&script, &[paths[1], directory.path().to_str().unwrap()]);
        tool("bindfs", &[options, &paths].concat())?;
        Some(Bind { point, _cleanup: cleanup, _directory: directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.point
    }
}
