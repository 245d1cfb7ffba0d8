//! Users of a directory that prevent its unmount: processes with an open or mapped file or a
//! working directory in it, and loop devices on its files, with their uses.
//!
//! Only root sees the processes of other users; processes that this process may not inspect are
//! left out. A sentence on processes that cannot be inspected completely, since they block it or
//! are too large, follows the users.

use crate::disk::Disk;
use crate::inspect::{WAIT_MAX, inspect};
use crate::mounts::{self, Mount};
use crate::process_files::{links, mapped_files};
use crate::process_identity::ProcessIdentity;
use crate::process_links::{Link, LinkPath, Step};
use crate::scan::Scan;
use crate::{proc, process_name};
use larder_schema::control::{PathUser, PathUsers};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of users that are described.
const USERS_MAX: usize = 5;
/// Time after which an answer no longer affects the next one. A stop asks at least once a minute.
const ANSWER_AGE_MAX: Duration = Duration::from_mins(2);

/// The answer to a question that is asked again until the directory is no longer in use.
struct Answer {
    directory: PathBuf,
    given_at: Instant,
    /// All processes that use the directory.
    processes: BTreeMap<ProcessIdentity, PathUser>,
    /// The described users.
    named: Vec<PathUser>,
    /// The named users, the number of the others, and the note on processes that were not inspected
    /// completely.
    shown: PathUsers,
}

static LAST_ANSWER: Mutex<Option<Answer>> = Mutex::new(None);

/// Describes the first users of paths below `directory` except this process, loop devices before
/// processes, and counts the others.
///
/// If the same question is asked again, a process that cannot be inspected now remains a user, and
/// the answer remains the same as long as the described users do: a load on the machine changes the
/// number of processes that cannot be inspected.
#[must_use]
pub fn holders(directory: &Path) -> PathUsers {
    let last = LAST_ANSWER.lock().ok().and_then(|mut last| last.take());
    let is_recent =
        |last: &Answer| last.directory == directory && last.given_at.elapsed() < ANSWER_AGE_MAX;
    let answer = answer(directory, last.filter(is_recent));
    let shown = answer.shown.clone();
    if let Ok(mut last) = LAST_ANSWER.lock() {
        *last = Some(answer);
    }
    shown
}

fn answer(directory: &Path, last: Option<Answer>) -> Answer {
    let unnumbered = |description| PathUser { pid: None, description };
    let (mut scan, place) = (Scan::start(), MountedPath::of(directory));
    let (mut users, mut processes) = (BTreeMap::new(), BTreeMap::new());
    let pids = Scan::processes().into_iter().filter(|&pid| pid != std::process::id());
    scan.inspect_all(
        pids,
        |pid| place.inspection(pid),
        |pid, path| {
            users.extend(path.ok().flatten().map(|path| (pid, describe(pid, &path))));
            ControlFlow::Continue(())
        },
    );
    let unknown = std::mem::take(&mut scan.incomplete).into_iter();
    let unknown: Vec<u32> = unknown.filter(|pid| !users.contains_key(pid)).collect();
    let before = |identity: &ProcessIdentity| {
        last.as_ref().and_then(|last| last.processes.get(identity).cloned())
    };
    for pid in unknown.iter().chain(users.keys()) {
        let Some(identity) = ProcessIdentity::of(*pid) else { continue };
        match before(&identity).or_else(|| users.get(pid).cloned()) {
            Some(user) => drop(processes.insert(identity, user)),
            None => scan.incomplete.push(*pid),
        }
    }
    let mut all: Vec<PathUser> = processes.values().cloned().collect();
    all.sort_by_key(|user| user.pid);
    let mut named: Vec<_> = loops(directory).into_iter().map(unnumbered).chain(all).collect();
    let others = named.len().saturating_sub(USERS_MAX) as u64;
    named.truncate(USERS_MAX);
    let note = scan.describe_incomplete().map(unnumbered);
    let has_note = |last: &Answer| last.shown.first.len() > last.named.len();
    let shown = match last {
        Some(last) if last.named == named && (note.is_none() || has_note(&last)) => last.shown,
        _ => PathUsers { first: named.iter().cloned().chain(note).collect(), others },
    };
    let directory = directory.to_owned();
    Answer { directory, given_at: Instant::now(), processes, named, shown }
}

/// Describes a process, if it uses a path below `directory`.
#[must_use]
pub fn holder(pid: u32, directory: &Path) -> Option<PathUser> {
    let path = inspect(pid, WAIT_MAX, MountedPath::of(directory).inspection(pid));
    path.ok()?.0.map(|path| describe(pid, &path))
}

fn describe(pid: u32, path: &Path) -> PathUser {
    let description = format!("{} uses {}", process_name::describe(pid), quoted(path));
    PathUser { pid: Some(pid), description }
}

/// Returns a path as a word: in quotation marks unless it has none but common characters, so that
/// the path does not read as the rest of a sentence.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_common = |each: char| each.is_alphanumeric() || "/._-+@:=~%#".contains(each);
    if text.chars().all(is_common) { text.into_owned() } else { format!("{text:?}") }
}

/// A path of a directory or file, with its mount. A path of another process may be one of another
/// mount namespace, in which any directory may have this path: the mount decides.
#[derive(Clone, Debug)]
struct MountedPath {
    path: PathBuf,
    mount: Option<Mount>,
}

impl MountedPath {
    fn of(path: &Path) -> MountedPath {
        MountedPath { path: path.to_owned(), mount: mounts::holding(path) }
    }

    fn inspection(
        &self,
        pid: u32,
    ) -> impl FnOnce(Instant) -> (Option<PathBuf>, bool) + Send + use<> {
        let place = self.clone();
        move |deadline| place.path_in_use(pid, deadline)
    }

    /// Returns the path that a process uses at or below this one, and true if the answer is
    /// certain.
    fn path_in_use(&self, pid: u32, deadline: Instant) -> (Option<PathBuf>, bool) {
        let mut open = links(pid, deadline).and_then(|link| self.path_behind(link));
        if let Some(path) = open.next() {
            return (Some(path), true);
        }
        let mut maps = mapped_files(pid, deadline);
        let has_device = |dev| self.mount.as_ref().is_none_or(|mount| mount.device == dev);
        let mut on_device = maps.by_ref().filter(|file| has_device(file.dev));
        let mapped = on_device.find_map(|file| self.shown_path(Some(file.path)));
        let is_certain = mapped.is_some() || (open.is_complete && maps.is_complete);
        (mapped, is_certain)
    }

    /// Returns the path of a file that a process uses, if it is at or below this path.
    fn path_behind(&self, link: Link) -> Step<PathBuf> {
        // On btrfs the number of stat(2) is not that of the mount. The same mount in another mount
        // namespace has another ID.
        let is_on =
            |mount: &Mount| mount.device == link.file.identity.dev || mount.id == link.file.mount;
        if !self.mount.as_ref().is_none_or(is_on) {
            return Step::Nothing;
        }
        let is_too_long = link.path == LinkPath::TooLong;
        let path = if let LinkPath::Known(path) = link.path { Some(path) } else { None };
        match self.shown_path(path) {
            Some(path) => Step::Item(path),
            None if is_too_long => Step::Unknown,
            None => Step::Nothing,
        }
    }

    /// Returns the path of a file of the mount, if it is at or below this path. All files of the
    /// mount are if this is its mount point.
    fn shown_path(&self, path: Option<PathBuf>) -> Option<PathBuf> {
        let is_mount_point = self.mount.as_ref().is_some_and(|mount| mount.point == self.path);
        let below = path.filter(|path| path.starts_with(&self.path));
        below.or_else(|| is_mount_point.then(|| self.path.clone()))
    }
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
    let (device, file) = (device.display(), quoted(file));
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
    use std::process::{Child, Command, Stdio};

    /// Returns the users without the note on processes that a busy machine inspects too slowly.
    fn users(found: &PathUsers) -> Vec<PathUser> {
        found.first.iter().filter(|user| user.pid.is_some()).cloned().collect()
    }

    /// Starts a process that works in a directory.
    fn work_in(path: &Path) -> Child {
        let mut command = Command::new("cat");
        command.current_dir(path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn end(child: &mut Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn who_works_in_a_directory_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        assert_eq!(users(&holders(&path)), []);
        let mut child = work_in(&path);
        let found = holders(&path);
        end(&mut child);
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
        let mut children = [&path, Path::new("/")].map(work_in);
        let pids = children.each_ref().map(std::process::Child::id);
        let blocked = pids.map(crate::inspect::tests::block);
        let found = holders(&path);
        children.iter_mut().for_each(end);
        drop(blocked);
        // A busy machine inspects further processes too slowly.
        let [PathUser { pid: None, description }] = &found.first[..] else {
            panic!("{found:?}");
        };
        assert!(description.starts_with("Larder cannot completely inspect process"));
        assert!(description.ends_with(" more"), "{description}");
    }

    /// Mounts tmpfs at `sys.argv[1]` in a mount namespace of its own, and opens a file there.
    const DECOY: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None)
path, user, group = sys.argv[1].encode(), os.getuid(), os.getgid()
is_there = libc.unshare(0x10020000) == 0
if is_there:
    users, groups = ('uid_map', f'0 {user} 1'), ('gid_map', f'0 {group} 1')
    for name, text in ('setgroups', 'deny'), users, groups:
        open('/proc/self/' + name, 'w').write(text)
    is_there = libc.mount(b'decoy', path, b'tmpfs', 0, None) == 0
file = open(path + b'/file', 'w')
print('ready' if is_there else 'refused', flush=True)
sys.stdin.readline()
";

    /// Uses a directory below `sys.argv[1]` with a path of 5,000 bytes.
    const DEEP: &str = r"
import os, sys
os.chdir(sys.argv[1])
for _ in range(25):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
print('ready', flush=True)
sys.stdin.readline()
";

    /// Returns the users of a directory while a program of Python runs; `None` if it cannot.
    fn holders_while_running(program: &str, path: &Path) -> Option<(u32, PathUsers)> {
        let started = Command::new("python3")
            .args(["-c", program])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            larder_testing::skip("python3 is needed");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let found = holders(path);
        drop(child.stdin.take());
        child.wait().unwrap();
        if line != "ready\n" {
            larder_testing::skip("this process may not make a mount namespace");
            return None;
        }
        Some((child.id(), found))
    }

    #[test]
    fn a_path_of_another_mount_namespace_is_no_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let Some((_, found)) = holders_while_running(DECOY, &path) else { return };
        assert_eq!(users(&found), []);
    }

    #[test]
    fn a_path_that_is_too_long_hides_no_user() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let Some((pid, found)) = holders_while_running(DEEP, &path) else { return };
        let note = &found.first.last().unwrap().description;
        assert!(note.starts_with("Larder cannot completely inspect"), "{pid}: {note}");
    }

    #[test]
    fn all_files_of_a_mount_are_at_its_mount_point() {
        let mount = mounts::holding(Path::new("/proc/self")).unwrap();
        let path = |path: &str| PathBuf::from(path);
        let root = MountedPath { path: mount.point.clone(), mount: Some(mount) };
        assert_eq!(root.shown_path(Some(path("/proc/1"))), Some(path("/proc/1")));
        assert_eq!(root.shown_path(Some(path("/elsewhere"))), Some(path("/proc")));
        assert_eq!(root.shown_path(None), Some(path("/proc")));
        let below = MountedPath { path: path("/proc/1"), ..root };
        assert_eq!(below.shown_path(Some(path("/proc/1/fd"))), Some(path("/proc/1/fd")));
        assert_eq!(below.shown_path(Some(path("/proc/2"))), None);
    }

    #[test]
    fn an_answer_remains_while_its_users_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let mut children = [&path, Path::new("/")].map(work_in);
        let [user, other] = children.each_ref().map(std::process::Child::id);
        let found = holders(&path);
        let of_user = found.first[0].clone();
        assert_eq!(of_user.pid, Some(user));
        let blocked = [user, other].map(crate::inspect::tests::block);
        let with_note = holders(&path);
        assert_eq!(with_note.first[0], of_user, "it cannot be inspected now");
        assert!(with_note.first.len() == 2);
        drop(blocked);
        assert_eq!(holders(&path), with_note, "the note remains");
        children.iter_mut().for_each(end);
        assert_eq!(users(&holders(&path)), []);
    }

    #[test]
    fn a_list_that_a_limit_cut_is_no_certain_answer() {
        let own_pid = std::process::id();
        let nowhere = Path::new("/no/such/directory");
        let later = Instant::now() + std::time::Duration::from_mins(1);
        let place = MountedPath::of(nowhere);
        assert_eq!(place.path_in_use(own_pid, later), (None, true));
        assert_eq!(place.path_in_use(own_pid, Instant::now()), (None, false));
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
        let hidden = Path::new("/m/x, process 1 (init) uses /m");
        let of_hidden = super::describe(u32::MAX, hidden).description;
        let wanted = "process 4294967295 uses \"/m/x, process 1 (init) uses /m\"";
        assert_eq!(of_hidden, wanted, "it has ended");
        let used = describe(&["/srv".to_owned(), "swap".to_owned()]);
        assert_eq!(used, "/dev/loop0 is on /mnt/disk, used as /srv and swap");
    }
}
