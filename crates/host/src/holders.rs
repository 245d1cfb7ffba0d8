//! Users of a directory that prevent its unmount: processes with an open or mapped file or a
//! working directory in it, and loop devices on its files, with their uses.
//!
//! Only root sees the processes of other users; processes that this process may not inspect are
//! left out.

use crate::disk::Disk;
use crate::{mounts, proc, processes};
use larder_schema::control::{PathUser, PathUsers};
use std::path::Path;

/// Maximum number of users that are described.
const USERS_MAX: usize = 5;

/// Describes the first users of paths below `directory` except this process, loop devices before
/// processes, and counts the others.
#[must_use]
pub fn holders(directory: &Path) -> PathUsers {
    let of_device = |description| PathUser { pid: None, description };
    let others = processes::pids().into_iter().filter(|&pid| pid != std::process::id());
    let processes = others.filter_map(|pid| holder(pid, directory));
    let mut all = loops(directory).into_iter().map(of_device).chain(processes);
    let first = all.by_ref().take(USERS_MAX).collect();
    PathUsers { first, others: all.count() as u64 }
}

/// Describes a process, if it uses a path below `directory`.
#[must_use]
pub fn holder(pid: u32, directory: &Path) -> Option<PathUser> {
    let open = processes::links(pid).filter_map(|link| std::fs::read_link(link).ok());
    let mapped = processes::mapped_files(pid).map(|(_, path)| path);
    let path = open.chain(mapped).find(|path| path.starts_with(directory))?;
    let name = processes::name(pid).unwrap_or_default();
    let description = format!("process {pid} ({name}) uses {}", path.display());
    Some(PathUser { pid: Some(pid), description })
}

fn loops(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in proc::names("/sys/block") {
        let disk = Disk { name };
        let Some(file) = proc::read(disk.directory().join("loop/backing_file")) else { continue };
        if Path::new(&file).starts_with(directory) {
            let device = Path::new("/dev").join(&disk.name);
            let mut uses = mounts::mount_points_of(&device);
            uses.extend(is_swap(&device).then(|| "swap".to_owned()));
            found.push(describe_loop(&device, &file, &uses));
        }
    }
    found.sort();
    found
}

/// Describes a loop device with its backing file and its uses: mount points, or `swap`.
fn describe_loop(device: &Path, file: &str, uses: &[String]) -> String {
    let joint = if uses.is_empty() { "" } else { ", used as " };
    format!("{} is on {file}{joint}{}", device.display(), uses.join(" and "))
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

    #[test]
    fn who_works_in_a_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(holders(&path), PathUsers::default());
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
        assert_eq!(found.first, [PathUser { pid: Some(child.id()), description }]);
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
    mapping = mmap.mmap(file, 4096, prot=mmap.PROT_READ)
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
            let pids: Vec<_> = found.first.iter().map(|user| user.pid).collect();
            assert_eq!(pids, [Some(child.id())], "{how}");
        }
    }

    #[test]
    fn holders_are_said_in_words() {
        let describe = |uses: &[String]| describe_loop(Path::new("/dev/loop0"), "/mnt/disk", uses);
        assert_eq!(describe(&[]), "/dev/loop0 is on /mnt/disk");
        let used = describe(&["/srv".to_owned(), "swap".to_owned()]);
        assert_eq!(used, "/dev/loop0 is on /mnt/disk, used as /srv and swap");
    }
}
