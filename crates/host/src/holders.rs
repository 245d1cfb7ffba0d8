//! Users of a directory that prevent its unmount: processes with an open or mapped file or a
//! working directory in it, and loop devices on its files, with their uses.
//!
//! Only root sees the processes of other users; processes that this process may not inspect are
//! left out. Processes that cannot be inspected completely, since they block it or are too large,
//! are named after the users.

use crate::disk::Disk;
use crate::inspect::Scan;
use crate::process_files::{links, mapped_files};
use crate::{mounts, proc, process_name};
use larder_schema::control::{PathUser, PathUsers};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of users that are described.
const USERS_MAX: usize = 5;

/// Describes the first users of paths below `directory` except this process, loop devices before
/// processes, and counts the others.
#[must_use]
pub fn holders(directory: &Path) -> PathUsers {
    let unnumbered = |description| PathUser { pid: None, description };
    let mut scan = Scan::start();
    let others = Scan::processes().into_iter().filter(|&pid| pid != std::process::id());
    let processes = others.filter_map(|pid| user(&mut scan, pid, directory));
    let mut all = loops(directory).into_iter().map(unnumbered).chain(processes);
    let mut first: Vec<PathUser> = all.by_ref().take(USERS_MAX).collect();
    let others = all.count() as u64;
    first.extend(scan.describe_incomplete().map(unnumbered));
    PathUsers { first, others }
}

/// Describes a process, if it uses a path below `directory`.
#[must_use]
pub fn holder(pid: u32, directory: &Path) -> Option<PathUser> {
    user(&mut Scan::start(), pid, directory)
}

fn user(scan: &mut Scan, pid: u32, directory: &Path) -> Option<PathUser> {
    let below = directory.to_owned();
    let found = scan.inspect(pid, move |deadline| path_in_use(pid, &below, deadline));
    let path = found.ok().flatten()?;
    let name = process_name::of(pid).unwrap_or_default();
    let description = format!("process {pid} ({name}) uses {}", path.display());
    Some(PathUser { pid: Some(pid), description })
}

/// Returns a path below `directory` that a process uses, and true if the answer is certain.
fn path_in_use(pid: u32, directory: &Path, deadline: Instant) -> (Option<PathBuf>, bool) {
    let is_below = |path: &PathBuf| path.starts_with(directory);
    let mut links = links(pid, deadline);
    let open = links.by_ref().filter_map(|link| std::fs::read_link(link).ok()).find(is_below);
    if open.is_some() {
        return (open, true);
    }
    let mut maps = mapped_files(pid, deadline);
    let mapped = maps.by_ref().map(|(_, path)| path).find(is_below);
    let is_certain = mapped.is_some() || (links.is_complete && maps.is_complete);
    (mapped, is_certain)
}

fn loops(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in proc::names("/sys/block") {
        let disk = Disk { name };
        let Ok(text) = std::fs::read(disk.directory().join("loop/backing_file")) else { continue };
        let file = backing_file(&text);
        if file.starts_with(directory) {
            let device = Path::new("/dev").join(&disk.name);
            let mut uses = mounts::mount_points_of(&device);
            uses.extend(is_swap(&device).then(|| "swap".to_owned()));
            found.push(describe_loop(&device, file, &uses));
        }
    }
    found.sort();
    found
}

/// Returns the path in a file of sysfs: any bytes, and a newline.
fn backing_file(text: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(text.strip_suffix(b"\n").unwrap_or(text)))
}

/// Describes a loop device with its backing file and its uses: mount points, or `swap`.
fn describe_loop(device: &Path, file: &Path, uses: &[String]) -> String {
    let joint = if uses.is_empty() { "" } else { ", used as " };
    let (device, file) = (device.display(), file.display());
    format!("{device} is on {file}{joint}{}", uses.join(" and "))
}

fn is_swap(device: &Path) -> bool {
    let swaps = proc::read("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split_whitespace().next().map(Path::new) == Some(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// Returns the users without the note on processes that a busy machine inspects too slowly.
    fn users(found: &PathUsers) -> Vec<PathUser> {
        found.first.iter().filter(|user| user.pid.is_some()).cloned().collect()
    }

    #[test]
    fn who_works_in_a_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(users(&holders(&path)), []);
        let mut child = Command::new("cat")
            .current_dir(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = holders(&path);
        drop(child.stdin.take());
        child.wait().unwrap();
        let description = format!("process {} (cat) uses {}", child.id(), path.display());
        assert_eq!(users(&found), [PathUser { pid: Some(child.id()), description }]);
        assert_eq!(found.others, 0);
        assert_eq!(holder(std::process::id(), &path), None);
    }

    /// A program that uses a file in one of the ways that its first thread does not show: by a
    /// mapping, by descriptors of another thread, or after the end of its first thread.
    const HIDER: &str = r"
import ctypes, mmap, os, sys, threading
how, path, libc = sys.argv[1], sys.argv[2], ctypes.CDLL(None)
ready = lambda: (print('ready', flush=True), sys.stdin.readline())
def other():
    if how == 'unshare':
        assert libc.unshare(0x400) == 0
    os.open(path, os.O_RDONLY)
    ready()
    os._exit(0)
if how == 'map':
    file = os.open(path, os.O_RDONLY)
    kept = mmap.mmap(file, 4096, prot=mmap.PROT_READ)
    os.closerange(3, 64)
    ready()
else:
    threading.Thread(target=other).start()
    libc.syscall(60, 0) if how == 'leader' else threading.Event().wait()
";

    #[test]
    fn no_way_of_use_hides_a_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let file = path.join("file");
        std::fs::write(&file, [0; 4096]).unwrap();
        if cfg!(not(target_arch = "x86_64")) || Command::new("python3").arg("-V").output().is_err()
        {
            larder_testing::skip("python3 and the system calls of x86-64 are needed");
            return;
        }
        for how in ["map", "unshare", "leader"] {
            let mut child = Command::new("python3")
                .args(["-c", HIDER, how])
                .arg(&file)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            output.read_line(&mut line).unwrap();
            let found = holders(&path);
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(line, "ready\n");
            let pids: Vec<_> = users(&found).iter().map(|user| user.pid).collect();
            assert_eq!(pids, [Some(child.id())], "{how}");
        }
    }

    #[test]
    fn a_process_that_blocks_its_inspection_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let work = |path: &Path| {
            Command::new("cat").current_dir(path).stdin(Stdio::piped()).spawn().unwrap()
        };
        let mut children = [work(&path), work(Path::new("/"))];
        let pids = children.each_ref().map(std::process::Child::id);
        let blocked = pids.map(crate::inspect::tests::block);
        let found = holders(&path);
        for child in &mut children {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        drop(blocked);
        let pid = pids.into_iter().min().unwrap();
        let description = format!("process {pid} (cat) and 1 more cannot be inspected completely");
        assert_eq!(found.first, [PathUser { pid: None, description }]);
    }

    #[test]
    fn a_list_that_a_limit_cut_is_no_certain_answer() {
        let own_pid = std::process::id();
        let nowhere = Path::new("/no/such/directory");
        let later = Instant::now() + std::time::Duration::from_mins(1);
        assert_eq!(path_in_use(own_pid, nowhere, later), (None, true));
        assert_eq!(path_in_use(own_pid, nowhere, Instant::now()), (None, false));
    }

    #[test]
    fn a_backing_file_may_have_any_name() {
        let path = |bytes| Path::new(OsStr::from_bytes(bytes));
        assert_eq!(backing_file(b"/mnt/\xff \n\n"), path(b"/mnt/\xff \n"));
        assert_eq!(backing_file(b"/mnt/disk "), path(b"/mnt/disk "));
    }

    #[test]
    fn holders_are_said_in_words() {
        let file = backing_file(b"/mnt/disk\n");
        let describe = |uses: &[String]| describe_loop(Path::new("/dev/loop0"), file, uses);
        assert_eq!(describe(&[]), "/dev/loop0 is on /mnt/disk");
        let used = describe(&["/srv".to_owned(), "swap".to_owned()]);
        assert_eq!(used, "/dev/loop0 is on /mnt/disk, used as /srv and swap");
    }
}
