//! Without root, in a container, on a file system in memory, without an event, without the kernel's
//! types, beside a directory whose server is dead: still useful, and one sentence on what is missing.

use super::rig::{Bench, Watching, program};
use larder_testing::{MachineLock, skip};
use std::fs::File;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What a watch of a second may take, with all that it looks for at its end.
const LONG: Duration = Duration::from_mins(1);

fn watch(before: &[&str], words: &[&str]) -> Output {
    let mut all: Vec<std::ffi::OsString> = before.iter().map(Into::into).collect();
    all.push(program());
    all.extend(["watch", "--for", "500ms"].map(Into::into));
    all.extend(words.iter().map(Into::into));
    let _tracefs = MachineLock::shared("tracefs");
    Command::new(&all[0]).args(&all[1..]).output().unwrap()
}

/// What is mounted from here on is for nobody else, and tracefs is there; it may have been before.
const PRIVATE: &str = "mount --make-rprivate / && \
     { mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing; }";

/// In a mount namespace of its own, with tracefs, after a line of shell.
fn hidden(line: &str, words: &[&str]) -> Output {
    let script = format!(
        "{PRIVATE} && {line} && \
         exec \"$0\" watch --for 500ms \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(program()).args(words);
    let _tracefs = MachineLock::shared("tracefs");
    command.output().unwrap()
}

fn sentences(out: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let shown = String::from_utf8_lossy(&out.stdout);
    assert!(shown.contains("memory: "), "it shows nothing: {shown}");
    said.lines().map(str::to_owned).collect()
}

fn says(out: &Output, wanted: &[&str]) {
    let all = sentences(out);
    let matches = |line: &&String| wanted.iter().all(|word| line.contains(word));
    assert_eq!(all.iter().filter(matches).count(), 1, "{wanted:?} in {all:?}");
}

/// Whether this machine lets us hide things.
pub(crate) fn may_hide() -> bool {
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", PRIVATE]).output();
    let may = tried.is_ok_and(|out| out.status.success());
    if !may {
        skip("cannot create a mount namespace with tracefs");
    }
    may
}

pub(crate) fn without_root() {
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let as_nobody = if rustix::process::geteuid().is_root() { &nobody[..] } else { &["env"] };
    let out = watch(as_nobody, &[]);
    says(&out, &["missing: hits, misses, files and processes", "root"]);
    refuses_to_count(&watch(as_nobody, &["--bpf", "on"]), "root");
}

/// Who asks for `--bpf on` gets it, or hears why not.
fn refuses_to_count(out: &Output, why: &str) {
    assert!(!out.status.success(), "it was to count, and cannot");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("count look-ups in the kernel: ") && said.contains(why), "{said}");
}

/// Root, but not of the machine.
pub(crate) fn in_a_container() {
    let script = "mount --make-rprivate / && \
                  { ! mountpoint -q /sys/kernel/tracing || umount /sys/kernel/tracing; } && \
                  { ! mountpoint -q /sys/kernel/debug || umount -l /sys/kernel/debug; } && \
                  exec setpriv \"--bounding-set=$0\" \"$@\"";
    let drops = "-sys_admin,-bpf,-perfmon,-dac_override,-dac_read_search";
    let out = watch(&["unshare", "--mount", "sh", "-c", script, drops], &[]);
    says(
        &out,
        &["missing: hits, misses, files and processes", "in a container, run it on the host"],
    );
    println!("shown: in a container: {}", sentences(&out).join("; "));
}

pub(crate) fn in_memory() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let out = watch(&["env"], &[memory.path().to_str().unwrap()]);
    says(&out, &["missing: reads and writes of tmpfs", "memory themselves"]);
}

pub(crate) fn without_an_event() {
    let line = "mount -t tmpfs none /sys/kernel/tracing/events/filemap/mm_filemap_get_pages";
    let out = hidden(line, &[]);
    says(&out, &["missing: hit ratios", "6.12"]);
    says(&out, &["not counted in the kernel", "mm_filemap_get_pages"]);
}

pub(crate) fn without_types() {
    let line = "mount --bind /dev/null /sys/kernel/btf/vmlinux";
    let out = hidden(line, &[]);
    says(&out, &["look-ups through tracefs, not counted in the kernel", "/sys/kernel/btf/vmlinux"]);
    refuses_to_count(&hidden(line, &["--bpf", "on"]), "kernel: understand");
}

/// A FUSE file system that nobody answers for, until dropped.
struct Dead {
    place: std::path::PathBuf,
    _device: File,
}

impl Drop for Dead {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.place, flags).unwrap();
    }
}

/// Names of files are looked for in the directories of their file system, and none is entered that is
/// another's.
pub(crate) fn beside_a_dead_directory(bench: &Bench) {
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
        skip("cannot open /dev/fuse");
        return;
    };
    let place = bench.path().join("a-dead-one");
    std::fs::create_dir(&place).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&device);
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &place, "fuse", flags, Some(options.as_c_str())).unwrap();
    let _dead = Dead { place, _device: device };
    let path = bench.fill("short-lived", 16);
    let watching = Watching::start(&[bench.path().to_str().unwrap()]);
    // It is gone before anybody could look at what it has open.
    let input = format!("if={}", path.display());
    let mut dd = Command::new("dd");
    dd.args([&input, "of=/dev/null", "bs=4096"]).stderr(Stdio::null());
    assert!(dd.status().unwrap().success());
    let begun = Instant::now();
    let watch = watching.end_within(LONG);
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
