//! Files that a process has open, maps, or uses as its directories, up to a limit.
//!
//! Invariants: every list ends by its limit of time and number, whatever the process does, and says
//! if the limit cut it. The kernel may block every call for as long as the process wants, also
//! readlink(2) of a link (see [`crate::inspect`]).

use crate::{proc, syscall};
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

/// Maximum number of links or mappings of a process that are read, and of its threads.
const ITEMS_MAX: usize = 1 << 18;

/// A list with limits of number and time.
pub(crate) struct Bounded<I> {
    steps: I,
    left: usize,
    deadline: Instant,
    /// False if a limit cut the list.
    pub(crate) is_complete: bool,
}

impl<I> Bounded<I> {
    fn new(steps: I, deadline: Instant) -> Self {
        Bounded { steps, left: ITEMS_MAX, deadline, is_complete: true }
    }
}

/// A step without an item counts as well.
impl<T, I: Iterator<Item = Option<T>>> Iterator for Bounded<I> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.is_complete {
            if self.left == 0 || Instant::now() >= self.deadline {
                self.is_complete = false;
                break;
            }
            self.left -= 1;
            if let Some(item) = self.steps.next()? {
                return Some(item);
            }
        }
        None
    }
}

/// Threads with different resources of one kind, in the order of kcmp(2).
struct DistinctThreads {
    kind: libc::c_int,
    threads: Vec<u32>,
}

impl DistinctThreads {
    fn new(kind: libc::c_int) -> Self {
        DistinctThreads { kind, threads: Vec::new() }
    }

    /// Adds a thread; returns false if it shares the resource of one of the others. A thread that
    /// the kernel does not compare counts as different.
    fn add(&mut self, thread: u32) -> bool {
        let mut is_known = true;
        let order = |other: &u32| {
            let order = syscall::compare(*other, thread, self.kind);
            is_known &= order.is_some();
            order.unwrap_or(Ordering::Less)
        };
        match self.threads.binary_search_by(order) {
            Ok(_) => false,
            Err(at) => {
                if is_known {
                    self.threads.insert(at, thread);
                }
                true
            }
        }
    }
}

/// Returns the directories of the threads of a process.
pub(crate) fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    proc::entries(format!("/proc/{pid}/task"))
}

/// Returns the links in procfs to the files that a process has open, its working, root and program
/// directories or files. A thread may have descriptors and directories of its own, and the first
/// thread may have ended; threads that share those of another one are left out.
pub(crate) fn links(pid: u32, deadline: Instant) -> Bounded<impl Iterator<Item = Option<PathBuf>>> {
    let mut distinct = [syscall::FILES, syscall::DIRECTORIES].map(DistinctThreads::new);
    let steps = threads(pid).flat_map(move |directory| {
        let thread = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
        let [files, directories] =
            distinct.each_mut().map(|kind| thread.is_none_or(|thread| kind.add(thread)));
        let names: &[&str] = if directories { &["cwd", "root", "exe"] } else { &[] };
        let descriptors = files.then(|| proc::entries(directory.join("fd")));
        let places = names.iter().map(move |name| directory.join(name));
        // A thread without links is a step, too.
        [None].into_iter().chain(places.chain(descriptors.into_iter().flatten()).map(Some))
    });
    Bounded::new(steps, deadline)
}

/// Returns the paths of the files that a process maps, each with its inode number; on btrfs their
/// device numbers differ from those of stat(2). A process may have 65,530 mappings with long paths,
/// hundreds of MB of text.
pub(crate) fn mapped_files(
    pid: u32,
    deadline: Instant,
) -> Bounded<impl Iterator<Item = Option<(u64, PathBuf)>>> {
    let maps = File::open(format!("/proc/{pid}/maps")).ok();
    let lines = maps.into_iter().flat_map(|maps| BufReader::new(maps).split(b'\n'));
    Bounded::new(lines.map_while(io::Result::ok).map(|line| mapped_file(&line)), deadline)
}

/// Parses a line with the columns address, perms, offset, dev, inode and path.
fn mapped_file(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut columns = line.split(|byte| *byte == b' ').filter(|column| !column.is_empty());
    let inode = str::from_utf8(columns.nth(4)?).ok()?.parse().ok()?;
    let at = line.iter().position(|byte| *byte == b'/')?;
    Some((inode, PathBuf::from(OsStr::from_bytes(&line[at..]))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn a_list_ends_by_its_limits_and_says_so() {
        let later = Instant::now() + Duration::from_mins(1);
        let mut all = Bounded::new([None, Some(1), None, Some(2)].into_iter(), later);
        assert_eq!(all.by_ref().collect::<Vec<_>>(), [1, 2]);
        assert!(all.is_complete);
        let mut many = Bounded::new(std::iter::repeat(None::<u32>), later);
        assert_eq!(many.next(), None);
        assert!(!many.is_complete);
        let mut late = Bounded::new(std::iter::repeat(Some(1)), Instant::now());
        assert_eq!(late.next(), None);
        assert!(!late.is_complete);
    }

    #[test]
    fn a_mapping_has_an_inode_and_a_path() {
        let line = b"7f00-7f01 r--p 00000000 08:01 42                 /a b/c";
        assert_eq!(mapped_file(line), Some((42, PathBuf::from("/a b/c"))));
        assert_eq!(mapped_file(b"7f00-7f01 rw-p 00000000 00:00 0   [heap]"), None);
    }

    /// Threads that use one of two tables of descriptors by turns, each with the file open.
    const ALTERNATING: &str = r"
import ctypes, os, sys, threading
os.open(sys.argv[1], os.O_RDONLY)
turns = [threading.Event() for _ in range(21)]
def start(parity):
    if parity == 1 and ctypes.CDLL(None).unshare(0x400) != 0:
        os._exit(1)
    for number in range(parity, 20, 2):
        turns[number].wait()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        turns[number + 1].set()
    if parity == 1:
        threading.Event().wait()
threading.Thread(target=start, args=[1], daemon=True).start()
turns[0].set()
start(0)
turns[20].wait()
print('ready', flush=True)
sys.stdin.readline()
os._exit(0)
";

    #[test]
    fn each_table_of_descriptors_is_listed_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let started = Command::new("python3")
            .args(["-c", ALTERNATING])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut process) = started else {
            larder_testing::skip("python3 is needed");
            return;
        };
        let mut ready = [0; 6];
        process.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        let later = Instant::now() + Duration::from_mins(1);
        let paths = links(process.id(), later).filter_map(|link| link.read_link().ok());
        let links_to_file = paths.filter(|path| path == file.path()).count();
        let thread_count = threads(process.id()).count();
        process.stdin.take().unwrap().write_all(b"\n").unwrap();
        process.wait().unwrap();
        // The main thread, the second one, and twenty others.
        assert_eq!(thread_count, 22);
        assert_eq!(links_to_file, 2);
    }
}
