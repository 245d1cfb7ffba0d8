//! `larder watch` without root, in a container, on a file system in memory, without an event,
//! without the kernel's types, and next to a directory whose server is dead: it still works, and
//! one message names what is missing.

use super::rig::{TestFs, Watcher, program};
use larder_testing::{MachineLock, skip};
use std::fs::File;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Maximum duration of a watch of one second, including all lookups at its end.
const WATCH_TIME_MAX: Duration = Duration::from_mins(1);

fn watch(wrapper: &[&str], args: &[&str]) -> Output {
    let mut all: Vec<std::ffi::OsString> = wrapper.iter().map(Into::into).collect();
    all.push(program());
    all.extend(["watch", "--for", "500ms"].map(Into::into));
    all.extend(args.iter().map(Into::into));
    let _tracefs = MachineLock::shared("tracefs");
    Command::new(&all[0]).args(&all[1..]).output().unwrap()
}

/// Makes later mounts invisible to other namespaces, and mounts tracefs if it is not mounted.
const PRIVATE: &str = "mount --make-rprivate / && \
     { mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing; }";

/// Runs a watch in a mount namespace with tracefs, after a shell command.
fn run_hidden(line: &str, args: &[&str]) -> Output {
    let script = format!(
        "{PRIVATE} && {line} && \
         exec \"$0\" watch --for 500ms \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(program()).args(args);
    let _tracefs = MachineLock::shared("tracefs");
    command.output().unwrap()
}

fn messages(out: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    let shown = String::from_utf8_lossy(&out.stdout);
    assert!(shown.contains("memory: "), "it shows nothing: {shown}");
    stderr.lines().map(str::to_owned).collect()
}

fn assert_message(out: &Output, parts: &[&str]) {
    let all = messages(out);
    let matches = |line: &&String| parts.iter().all(|word| line.contains(word));
    assert_eq!(all.iter().filter(matches).count(), 1, "{parts:?} in {all:?}");
}

/// Returns true if this machine can hide files in a mount namespace.
pub(crate) fn can_hide() -> bool {
    let output = Command::new("unshare").args(["--mount", "sh", "-c", PRIVATE]).output();
    let can = output.is_ok_and(|out| out.status.success());
    if !can {
        skip("cannot create a mount namespace with tracefs");
    }
    can
}

pub(crate) fn without_root() {
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let as_nobody = if rustix::process::geteuid().is_root() { &nobody[..] } else { &["env"] };
    let out = watch(as_nobody, &[]);
    assert_message(&out, &["missing: hits, misses, files and processes", "root"]);
    assert_counting_refused(&watch(as_nobody, &["--bpf", "on"]), "root");
}

/// Checks that a command with `--bpf on` fails, with a reason that contains `reason`.
fn assert_counting_refused(out: &Output, reason: &str) {
    assert!(!out.status.success(), "it was to count, and cannot");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        stderr.contains("count lookups in the kernel: ") && stderr.contains(reason),
        "{stderr}"
    );
}

/// Root without the capabilities of the host.
pub(crate) fn in_a_container() {
    let script = "mount --make-rprivate / && \
                  { ! mountpoint -q /sys/kernel/tracing || umount /sys/kernel/tracing; } && \
                  { ! mountpoint -q /sys/kernel/debug || umount -l /sys/kernel/debug; } && \
                  exec setpriv \"--bounding-set=$0\" \"$@\"";
    let drops = "-sys_admin,-bpf,-perfmon,-dac_override,-dac_read_search";
    let out = watch(&["unshare", "--mount", "sh", "-c", script, drops], &[]);
    assert_message(
        &out,
        &["missing: hits, misses, files and processes", "in a container, run it on the host"],
    );
    println!("shown: in a container: {}", messages(&out).join("; "));
}

pub(crate) fn in_memory() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let out = watch(&["env"], &[memory.path().to_str().unwrap()]);
    assert_message(&out, &["missing: reads and writes of tmpfs", "memory themselves"]);
}

pub(crate) fn without_an_event() {
    let line = "mount -t tmpfs none /sys/kernel/tracing/events/filemap/mm_filemap_get_pages";
    let out = run_hidden(line, &[]);
    assert_message(&out, &["missing: hit ratios", "6.12"]);
    assert_message(&out, &["not counted in the kernel", "mm_filemap_get_pages"]);
}

pub(crate) fn without_types() {
    let line = "mount --bind /dev/null /sys/kernel/btf/vmlinux";
    let out = run_hidden(line, &[]);
    assert_message(
        &out,
        &["lookups through tracefs, not counted in the kernel", "/sys/kernel/btf/vmlinux"],
    );
    assert_counting_refused(&run_hidden(line, &["--bpf", "on"]), "kernel: understand");
}

/// A FUSE file system without a server, until dropped.
struct DeadFuseMount {
    mountpoint: std::path::PathBuf,
    _device: File,
}

impl Drop for DeadFuseMount {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.mountpoint, flags).unwrap();
    }
}

/// The command looks up file names in the directories of their file system, and enters no directory
/// of another file system.
pub(crate) fn check_dead_directory(test_fs: &TestFs) {
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
        skip("cannot open /dev/fuse");
        return;
    };
    let mountpoint = test_fs.path().join("a-dead-one");
    std::fs::create_dir(&mountpoint).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&device);
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &mountpoint, "fuse", flags, Some(options.as_c_str())).unwrap();
    let _dead = DeadFuseMount { mountpoint, _device: device };
    let path = test_fs.fill("short-lived", 16);
    let watcher = Watcher::start(&[test_fs.path().to_str().unwrap()]);
    // The process ends before the command can examine its open files.
    let input = format!("if={}", path.display());
    let mut dd = Command::new("dd");
    dd.args([&input, "of=/dev/null", "bs=4096"]).stderr(Stdio::null());
    assert!(dd.status().unwrap().success());
    let begun = Instant::now();
    let watch = watcher.end_within(WATCH_TIME_MAX);
    assert_eq!(watch.total.lost_events, 0, "events were lost");
    println!("shown: beside a dead directory it ends after {:.1} s", begun.elapsed().as_secs_f64());
    let name = path.display().to_string();
    let pages: u64 = watch
        .total
        .rows
        .iter()
        .filter(|row| row.file == name && row.process == "dd")
        .map(|row| row.counts.read_pages)
        .sum();
    assert_eq!(pages, 16, "{:?}", watch.total.rows);
}
