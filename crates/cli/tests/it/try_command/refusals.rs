//! Refused runs: one message, and no files left behind.

use super::rig::{
    LONG, SHORT, can_run, command, directory, expect_refusal, names, run_try, text, until,
};
use larder_testing::{Cleanup, has_tool, is_root, skip};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs a tool that must succeed.
fn tool(name: &str, args: &[&str]) {
    let output = Command::new(name).args(args).output().unwrap();
    assert!(output.status.success(), "{name} {args:?}: {}", text(&output.stderr));
}

/// A mounted file system, unmounted when dropped, or when the test process dies.
struct MountedFs(TempDir, Cleanup);

impl MountedFs {
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Creates and mounts a small ext4.
    fn small(bytes: u64) -> Option<MountedFs> {
        if !has_tool("mkfs.ext4") {
            return None;
        }
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(bytes).unwrap();
        let path = image.path().to_str().unwrap();
        tool("mkfs.ext4", &["-q", "-F", path]);
        let point = directory();
        let cleanup = unmount_at_exit(point.path());
        tool("mount", &["-o", "loop", path, point.path().to_str().unwrap()]);
        std::fs::remove_dir(point.path().join("lost+found")).unwrap();
        Some(MountedFs(point, cleanup))
    }
}

impl Drop for MountedFs {
    fn drop(&mut self) {
        tool("umount", &[self.0.path().to_str().unwrap()]);
        self.1.cancel();
    }
}

/// Unmounts and removes a directory when the test process dies.
fn unmount_at_exit(point: &Path) -> Cleanup {
    let script = "umount --lazy \"$1\"; rmdir -- \"$1\"";
    Cleanup::with(script, &[point.to_str().unwrap()])
}

#[test]
fn a_path_that_is_missing_or_a_file_is_named() {
    let directory = directory();
    let missing = expect_refusal(&directory.path().join("missing"), &SHORT);
    assert!(missing.contains("missing: no such file or directory"), "{missing}");
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let message = expect_refusal(&file, &SHORT);
    assert!(
        message.ends_with("file: it is not a directory; name the one that it is in"),
        "{message}"
    );
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn wrong_words_are_refused_as_the_benchmark_refuses_them() {
    let directory = directory();
    let refusal = |args: &[&str]| {
        let output = run_try(directory.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(names(directory.path()), [""; 0]);
        text(&output.stderr)
    };
    let message = refusal(&["--workload", "probe", "--", "--trials", "3"]);
    assert!(message.contains("run probe here: --trials belongs before the --"), "{message}");
    let message = refusal(&["--workload", "probe", "--", "--in-process", "memory"]);
    assert!(message.contains("in-process"), "{message}");
    let message = refusal(&["--workload", "fileload", "--", "--read", "4KiB,8KiB"]);
    assert!(message.contains("name one --read"), "{message}");
    let message = refusal(&["--workload", "postmark", "--", "--classic"]);
    assert!(message.contains("--classic is one run with a prompt"), "{message}");
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_larder"));
    elsewhere.arg("try").arg(directory.path()).args(["-o", "/missing/page.html"]);
    let message = text(&elsewhere.output().unwrap().stderr);
    assert!(message.contains("cannot write /missing/page.html"), "{message}");
    let message = refusal(&["--memory", "1KiB"]);
    assert!(message.contains("larder: cannot "), "what the cache says: {message}");
}

#[test]
fn a_directory_in_memory_gains_nothing() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let message = expect_refusal(directory.path(), &SHORT);
    let reason = "it is in memory already (tmpfs), so a cache in memory gains nothing";
    assert!(message.contains(reason), "{message}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    if !is_root() {
        return;
    }
    let point = directory();
    let path = point.path().to_str().unwrap().to_owned();
    let cleanup = unmount_at_exit(point.path());
    tool("mount", &["--bind", &path, &path]);
    let mounted = MountedFs(point, cleanup);
    tool("mount", &["-o", "remount,ro,bind", &path]);
    let message = expect_refusal(mounted.path(), &SHORT);
    assert!(
        message.contains("make a scratch directory in ") && message.contains("read-only"),
        "{message}"
    );
    drop(mounted);
    // The directory belongs to another user.
    let directory = directory();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let larder = command(directory.path(), &SHORT);
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--clear-groups", "--"]).arg(larder.get_program());
    let output = other.args(larder.get_args()).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("permission denied"), "{stderr}");
}

#[test]
fn without_fuse_it_is_said_before_anything_is_measured() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let larder = command(directory.path(), &SHORT);
    // A mount namespace in which /dev is empty.
    let mut namespace = Command::new("unshare");
    namespace.args(["--mount", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"]);
    let output = namespace.arg(larder.get_program()).args(larder.get_args()).output().unwrap();
    let stderr = text(&output.stderr);
    if !stderr.contains("larder") {
        skip(format_args!("no mount namespace here ({stderr})"));
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("larder: cannot ") && stderr.contains("/dev/fuse"), "{stderr}");
    assert!(!stderr.contains("by turns"), "nothing was begun: {stderr}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn much_of_the_free_space_is_used_only_if_somebody_says_so() {
    if !can_run() || !is_root() {
        return;
    }
    let Some(small) = MountedFs::small(64 << 20) else { return };
    let args = ["--memory", "32MiB", "--trials", "1", "--", "--size", "16MiB"];
    let message = expect_refusal(small.path(), &args);
    assert!(
        message.contains("more than a tenth, and there is no terminal for a question; add --yes"),
        "{message}"
    );
    let output = run_try(small.path(), &[&["--yes"], &args[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = super::rig::page(small.path());
    std::fs::remove_file(page).unwrap();
    let too_much = ["--yes", "--", "--size", "1GiB"];
    let message = expect_refusal(small.path(), &too_much);
    assert!(message.contains("it needs 1 GiB and "), "{message}");
    assert_eq!(names(small.path()), [""; 0]);
}

#[test]
fn a_disk_that_becomes_full_ends_it_with_a_sentence() {
    if !can_run() || !is_root() {
        return;
    }
    let Some(small) = MountedFs::small(64 << 20) else { return };
    let mut long = LONG.map(str::to_owned);
    "postmark".clone_into(&mut long[1]);
    let args: Vec<&str> = long[..4].iter().map(String::as_str).collect();
    let work = ["--trials", "1000", "--", "--number", "100", "--transactions", "200"];
    let child = command(small.path(), &[&args[..], &work].concat()).spawn().unwrap();
    until("it has begun", || !names(small.path()).is_empty());
    // Writes until no block is free.
    let filler = small.path().join("fill");
    let mut file = File::create(&filler).unwrap();
    let result = std::io::copy(&mut std::io::repeat(1), &mut file);
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("larder: cannot run the trial: "), "{stderr}");
    drop(file);
    assert_eq!(names(small.path()), ["fill"]);
}
