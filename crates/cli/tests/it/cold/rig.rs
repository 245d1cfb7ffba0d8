//! File systems to work on, and the command.

use larder_testing::{Cleanup, has_tool, is_root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Large enough for every file system: XFS wants 300 MiB. The image is sparse.
const IMAGE_BYTES: u64 = 512 << 20;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// What the command did.
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

/// Runs `larder bench` with these words.
pub(crate) fn bench(words: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("bench").args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Bytes that no file system stores as nothing, nor inside of an inode.
pub(crate) fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + at / 4096) % 251).unwrap()).collect()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory whose pages can be dropped; none where the temporary directory has no disk.
pub(crate) fn on_a_disk() -> Option<TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let mount = larder_host::mounts::Mount::of(directory.path()).unwrap();
    if mount.is_memory() || mount.is_fuse() {
        skip(format_args!("the temporary directory is on {}", mount.fs_type));
        return None;
    }
    Some(directory)
}

/// Runs a tool and returns its output. If the tool fails, reports a skip and returns `None`.
pub(crate) fn tool(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        skip(format_args!("{program} {}: {}", words.join(" "), said.trim()));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a tool for cleanup and ignores its failure.
pub(crate) fn undo(program: &str, words: &[&str]) {
    drop(Command::new(program).args(words).output().unwrap());
}

/// Unmounts `$1`, even if it is in use. The mount may have failed before.
const UNMOUNT: &str = "umount \"$1\" || umount --lazy \"$1\"";

/// A file system in a file, mounted until dropped, or until the test process dies.
pub(crate) struct Loop {
    point: PathBuf,
    _cleanup: Cleanup,
    _directory: TempDir,
}

impl Loop {
    /// Nothing where this machine cannot: then why was printed.
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

/// A directory seen through FUSE, mounted until dropped, or until the test process dies.
pub(crate) struct Bind {
    point: PathBuf,
    _cleanup: Cleanup,
    _directory: TempDir,
}

impl Bind {
    /// Nothing where this machine cannot: then why was printed.
    pub(crate) fn with(options: &[&str]) -> Option<Bind> {
        if !is_root() || !has_tool("bindfs") || !has_tool("fusermount3") {
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            skip("/dev/fuse is missing");
            return None;
        }
        let directory = on_a_disk()?;
        let (below, point) = (directory.path().join("below"), directory.path().join("point"));
        std::fs::create_dir(&below).unwrap();
        std::fs::create_dir(&point).unwrap();
        let places = [below.to_str().unwrap(), point.to_str().unwrap()];
        let script = format!("{UNMOUNT}; rm -rf --one-file-system -- \"$2\"");
        let cleanup = Cleanup::with(&script, &[places[1], directory.path().to_str().unwrap()]);
        tool("bindfs", &[options, &places].concat())?;
        Some(Bind { point, _cleanup: cleanup, _directory: directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.point
    }
}
