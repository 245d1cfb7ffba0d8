//! Invalid input and interrupted runs of every benchmark that works in a directory: each prints one
//! clear error message and leaves no files behind. PostMark and the matrix have further cases in
//! their own tests.

use larder_testing::{has_tool, is_root, skip};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// A benchmark.
struct Bench {
    name: &'static str,
    /// Arguments of a run that takes minutes and needs at least 8 MiB. DIRECTORY stands for the
    /// working directory.
    long: &'static str,
    /// Arguments of a short run.
    short: &'static str,
}

const BENCHES: [Bench; 5] = [
    Bench {
        name: "postmark",
        long: "--location DIRECTORY --number 1000 --size 9000 --transactions 10000000 \
               --bias-create -1 --trials 1",
        short: "--location DIRECTORY --number 10 --transactions 20 --trials 1",
    },
    Bench {
        name: "probe",
        long: "DIRECTORY --size 8MiB --length 10m --trials 1",
        short: "DIRECTORY --size 64KiB --length 20ms --trials 1",
    },
    Bench {
        name: "iozone",
        long: "DIRECTORY -i 0 -i 1 -s 8MiB -r 4KiB --trials 10000",
        short: "DIRECTORY -i 0 -s 64KiB -r 4KiB --trials 1",
    },
    Bench {
        name: "fileload",
        long: "DIRECTORY --size 8MiB --users 1 --reads 100000000 --trials 1",
        short: "DIRECTORY --size 64KiB --users 1 --reads 10 --trials 1",
    },
    Bench {
        name: "server",
        long: "DIRECTORY --clients 1 --items 2 --size 4MiB --measure 10m --trials 1",
        short: "DIRECTORY --clients 1 --items 1 --size 64KiB --warm-up 0s --measure 3s --trials 1",
    },
];

fn command(bench: &Bench, args: &str, directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["bench", bench.name]);
    for word in args.split_whitespace() {
        if word == "DIRECTORY" {
            command.arg(directory)
        } else {
            command.arg(word)
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the error message of a run that is refused or fails.
fn refused(bench: &Bench, args: &str, directory: &Path) -> String {
    let output = command(bench, args, directory).output().unwrap();
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{}: {stderr}", bench.name);
    assert!(output.stdout.is_empty(), "{}", bench.name);
    let sentence = stderr.lines().last().unwrap_or_default();
    assert!(sentence.starts_with("larder: cannot "), "{}: {stderr}", bench.name);
    sentence.to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the names of the entries of `directory`.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A small tmpfs, unmounted when dropped.
struct SmallFs {
    directory: tempfile::TempDir,
}

impl SmallFs {
    /// Mounts a tmpfs. Reports a skip and returns `None` if this machine cannot.
    fn mounted(options: &str) -> Option<SmallFs> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let output =
            mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(directory.path()).output();
        match output {
            Ok(output) if output.status.success() => Some(SmallFs { directory }),
            failure => {
                skip(format_args!("cannot mount a file system ({failure:?})"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for SmallFs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.directory.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "another run uses the directory");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for bench in &BENCHES {
        let sentence = refused(bench, bench.short, &directory.path().join("missing"));
        assert!(sentence.contains("missing"), "{}: {sentence}", bench.name);
        assert_eq!(names(directory.path()), [""; 0], "{}", bench.name);
    }
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let Some(small) = SmallFs::mounted("ro") else { return };
    for bench in &BENCHES {
        let sentence = refused(bench, bench.short, small.path());
        let path = small.path().to_str().unwrap();
        assert!(
            sentence.contains("read-only file system") && sentence.contains(path),
            "{}: {sentence}",
            bench.name
        );
    }
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_written() {
    let Some(small) = SmallFs::mounted("size=4m") else { return };
    for bench in &BENCHES {
        let sentence = refused(bench, bench.long, small.path());
        assert!(sentence.contains(" are free"), "{}: {sentence}", bench.name);
        assert_eq!(names(small.path()), [""; 0], "{}", bench.name);
    }
}

/// Starts a long run and waits until it has created an entry in `directory`.
fn start(bench: &Bench, directory: &Path) -> Child {
    let child = command(bench, bench.long, directory).spawn().unwrap();
    let begun = Instant::now();
    while names(directory).is_empty() {
        assert!(begun.elapsed() < TIMEOUT, "{} makes nothing", bench.name);
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn a_run_that_is_stopped_removes_what_it_made() {
    let directory = tempfile::tempdir().unwrap();
    for bench in &BENCHES {
        for signal in [Signal::INT, Signal::TERM] {
            let child = start(bench, directory.path());
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
            kill_process(id, signal).unwrap();
            let output = child.wait_with_output().unwrap();
            let stderr = stderr(&output);
            assert!(!output.status.success(), "{}: {stderr}", bench.name);
            assert!(
                stderr.contains("stopped") && stderr.contains("removed"),
                "{}: {stderr}",
                bench.name
            );
            assert_eq!(names(directory.path()), [""; 0], "{}", bench.name);
        }
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_or_named() {
    for bench in &BENCHES {
        let directory = tempfile::tempdir().unwrap();
        let mut child = start(bench, directory.path());
        child.kill().unwrap();
        child.wait().unwrap();
        let left = names(directory.path());
        assert_eq!(left.len(), 1, "{}: a killed run cannot remove anything", bench.name);
        let output = command(bench, bench.short, directory.path()).output().unwrap();
        let stderr = stderr(&output);
        assert!(output.status.success(), "{}: {stderr}", bench.name);
        assert!(
            stderr.contains(&left[0]) && stderr.contains("left by a killed run"),
            "{}: {stderr}",
            bench.name
        );
        assert_eq!(names(directory.path()), [""; 0], "{}", bench.name);
    }
}

#[test]
fn what_another_run_works_on_is_left_alone() {
    for bench in &BENCHES {
        let directory = tempfile::tempdir().unwrap();
        let mut child = start(bench, directory.path());
        let output = command(bench, bench.short, directory.path()).output().unwrap();
        assert_eq!(names(directory.path()).len(), 1, "{}: {}", bench.name, stderr(&output));
        assert!(child.try_wait().unwrap().is_none(), "{}: it goes on", bench.name);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_tool_that_is_missing_is_named_with_its_package() {
    let directory = tempfile::tempdir().unwrap();
    if !is_root() || !has_tool("mkfs.ext4") {
        return;
    }
    // `larder` does not accept a device as a tool. The mount namespace is private to the command.
    let script = "mount --bind /dev/null $(readlink -f /usr/sbin/mkfs.ext4) && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_larder")]);
    command.args(["bench", "matrix", "--workload", "probe", "--fs", "ext4", "--scratch"]);
    let output = command.arg(directory.path()).output().unwrap();
    let stderr = stderr(&output);
    if !stderr.starts_with("larder: ") {
        return skip(format_args!("cannot create a mount namespace ({stderr})"));
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let known = "find mkfs.ext4: it is not installed (on Debian: apt-get install e2fsprogs)";
    assert_eq!(stderr, format!("larder: cannot {known}\n"));
    assert_eq!(names(directory.path()), [""; 0]);
}
