//! What it refuses: one sentence, and nothing is left.

use super::rig::{LONG, SHORT, command, directory, done, may, names, refused, text, until};
use larder_testing::{Cleanup, has_tool, is_root, skip};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs a tool that must succeed.
fn tool(name: &str, words: &[&str]) {
    let output = Command::new(name).args(words).output().unwrap();
    assert!(output.status.success(), "{name} {words:?}: {}", text(&output.stderr));
}

/// A mounted file system, unmounted when dropped, or when the test process dies.
struct Mounted(TempDir, Cleanup);

impl Mounted {
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A small ext4 of its own.
    fn small(bytes: u64) -> Option<Mounted> {
        if !has_tool("mkfs.ext4") {
            return None;
        }
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(bytes).unwrap();
        let path = image.path().to_str().unwrap();
        tool("mkfs.ext4", &["-q", "-F", path]);
        let point = directory();
        let cleanup = unmounted_at_death(point.path());
        tool("mount", &["-o", "loop", path, point.path().to_str().unwrap()]);
        std::fs::remove_dir(point.path().join("lost+found")).unwrap();
        Some(Mounted(point, cleanup))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &[self.0.path().to_str().unwrap()]);
        self.1.cancel();
    }
}

/// Unmounts and removes a directory when the test process dies.
fn unmounted_at_death(point: &Path) -> Cleanup {
    let script = "umount --lazy \"$1\"; rmdir -- \"$1\"";
    Cleanup::with(script, &[point.to_str().unwrap()])
}

#[test]
fn a_path_that_is_missing_or_a_file_is_named() {
    let directory = directory();
    let missing = refused(&directory.path().join("missing"), &SHORT);
    assert!(missing.contains("missing: No such file or directory"), "{missing}");
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let said = refused(&file, &SHORT);
    assert!(said.ends_with("file: it is no directory; name the one that it is in"), "{said}");
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn wrong_words_are_refused_as_the_benchmark_refuses_them() {
    let directory = directory();
    let of = |words: &[&str]| {
        let output = done(directory.path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(names(directory.path()), [""; 0]);
        text(&output.stderr)
    };
    let said = of(&["--workload", "probe", "--", "--trials", "3"]);
    assert!(said.contains("run probe here: --trials belongs before the --"), "{said}");
    let said = of(&["--workload", "probe", "--", "--in-process", "memory"]);
    assert!(said.contains("in-process"), "{said}");
    let said = of(&["--workload", "fileload", "--", "--read", "4KiB,8KiB"]);
    assert!(said.contains("name one --read"), "{said}");
    let said = of(&["--workload", "postmark", "--", "--classic"]);
    assert!(said.contains("--classic is one run with a prompt"), "{said}");
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_larder"));
    elsewhere.arg("try").arg(directory.path()).args(["-o", "/missing/page.html"]);
    let said = text(&elsewhere.output().unwrap().stderr);
    assert!(said.contains("failed to write /missing/page.html"), "{said}");
    let said = of(&["--memory", "1KiB"]);
    assert!(said.contains("larder: failed to "), "what the cache says: {said}");
}

#[test]
fn a_directory_in_memory_gains_nothing() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let said = refused(directory.path(), &SHORT);
    let why = "it is in memory already (tmpfs), so a cache in memory gains nothing";
    assert!(said.contains(why), "{said}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    if !is_root() {
        return;
    }
    let point = directory();
    let path = point.path().to_str().unwrap().to_owned();
    let cleanup = unmounted_at_death(point.path());
    tool("mount", &["--bind", &path, &path]);
    let mounted = Mounted(point, cleanup);
    tool("mount", &["-o", "remount,ro,bind", &path]);
    let said = refused(mounted.path(), &SHORT);
    assert!(said.contains("make a scratch directory in ") && said.contains("Read-only"), "{said}");
    drop(mounted);
    // Somebody else's.
    let directory = directory();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let words = command(directory.path(), &SHORT);
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--clear-groups", "--"]).arg(words.get_program());
    let output = other.args(words.get_args()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn without_fuse_it_is_said_before_anything_is_measured() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let words = command(directory.path(), &SHORT);
    // A mount namespace in which there is no /dev.
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"]);
    let output = alone.arg(words.get_program()).args(words.get_args()).output().unwrap();
    let said = text(&output.stderr);
    if !said.contains("larder") {
        skip(format_args!("no mount namespace here ({said})"));
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("larder: failed to ") && said.contains("/dev/fuse"), "{said}");
    assert!(!said.contains("by turns"), "nothing was begun: {said}");
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn much_of_the_free_space_is_used_only_if_somebody_says_so() {
    if !may() || !is_root() {
        return;
    }
    let Some(small) = Mounted::small(64 << 20) else { return };
    let words = ["--memory", "32MiB", "--trials", "1", "--", "--size", "16MiB"];
    let said = refused(small.path(), &words);
    assert!(said.contains("more than a tenth, and nobody is there to ask; say --yes"), "{said}");
    let output = done(small.path(), &[&["--yes"], &words[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = super::rig::page(small.path());
    std::fs::remove_file(page).unwrap();
    let too_much = ["--yes", "--", "--size", "1GiB"];
    let said = refused(small.path(), &too_much);
    assert!(said.contains("it needs 1 GiB and "), "{said}");
    assert_eq!(names(small.path()), [""; 0]);
}

#[test]
fn a_disk_that_becomes_full_ends_it_with_a_sentence() {
    if !may() || !is_root() {
        return;
    }
    let Some(small) = Mounted::small(64 << 20) else { return };
    let mut long = LONG.map(str::to_owned);
    "postmark".clone_into(&mut long[1]);
    let words: Vec<&str> = long[..4].iter().map(String::as_str).collect();
    let work = ["--trials", "1000", "--", "--number", "100", "--transactions", "200"];
    let child = command(small.path(), &[&words[..], &work].concat()).spawn().unwrap();
    until("it has begun", || !names(small.path()).is_empty());
    // Until there is not one block left.
    let everything = small.path().join("fill");
    let mut file = File::create(&everything).unwrap();
    let filled = std::io::copy(&mut std::io::repeat(1), &mut file);
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("larder: failed to run the trial: "), "{said}");
    drop(file);
    assert_eq!(names(small.path()), ["fill"]);
}
