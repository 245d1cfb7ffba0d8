//! Files that a process has open, maps, or uses as its directories, up to a limit.
//!
//! Invariants: every list ends by its limit of time and number, whatever the process does, and says
//! if the limit cut it. The kernel may block every call for as long as the process wants, also
//! readlink(2) of a link (see [`crate::inspect`]).

use crate::{device, proc, syscall};
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of links or mappings of a process that are read, and of its threads.
const ITEMS_MAX: usize = 1 << 18;

/// A step of a list.
pub(crate) enum Step<T> {
    Item(T),
    Nothing,
    /// Items that the kernel does not tell.
    Unknown,
}

/// A list with limits of number and time.
pub(crate) struct Bounded<I> {
    steps: I,
    left: usize,
    deadline: Instant,
    /// False if a limit cut the list, or the kernel does not tell all items.
    pub(crate) is_complete: bool,
}

impl<I> Bounded<I> {
    fn new(steps: I, deadline: Instant) -> Self {
        Bounded { steps, left: ITEMS_MAX, deadline, is_complete: true }
    }
}

impl<T, I: Iterator<Item = Step<T>>> Bounded<I> {
    /// Replaces each item by a step.
    pub(crate) fn and_then<U>(
        self,
        mut next: impl FnMut(T) -> Step<U>,
    ) -> Bounded<impl Iterator<Item = Step<U>>> {
        let Bounded { steps, left, deadline, is_complete } = self;
        let steps = steps.map(move |step| match step {
            Step::Item(item) => next(item),
            Step::Nothing => Step::Nothing,
            Step::Unknown => Step::Unknown,
        });
        Bounded { steps, left, deadline, is_complete }
    }
}

/// A step without an item counts as well.
impl<T, I: Iterator<Item = Step<T>>> Iterator for Bounded<I> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.left > 0 && Instant::now() < self.deadline {
            self.left -= 1;
            match self.steps.next()? {
                Step::Item(item) => return Some(item),
                Step::Nothing => {}
                Step::Unknown => self.is_complete = false,
            }
        }
        self.is_complete = false;
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
    /// has ended, or is compared with one, counts as different.
    ///
    /// # Errors
    /// The kernel does not compare threads.
    fn add(&mut self, thread: u32) -> io::Result<bool> {
        let mut failure = None;
        let order = |other: &u32| {
            syscall::compare(*other, thread, self.kind).unwrap_or_else(|error| {
                failure = Some(error);
                Ordering::Less
            })
        };
        match (self.threads.binary_search_by(order), failure) {
            (_, Some(error)) if error.raw_os_error() == Some(libc::ESRCH) => Ok(true),
            (_, Some(error)) => Err(error),
            (Ok(_), None) => Ok(false),
            (Err(at), None) => {
                self.threads.insert(at, thread);
                Ok(true)
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
/// thread may have ended; threads that share those of another one are left out, and so are those
/// that the kernel does not compare.
pub(crate) fn links(pid: u32, deadline: Instant) -> Bounded<impl Iterator<Item = Step<PathBuf>>> {
    let mut distinct = [syscall::FILES, syscall::DIRECTORIES].map(DistinctThreads::new);
    let steps = threads(pid).flat_map(move |directory| {
        let thread = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
        let [files, directories] =
            distinct.each_mut().map(|kind| thread.map_or(Ok(true), |thread| kind.add(thread)));
        // A thread without links is a step, too.
        let is_known = files.is_ok() && directories.is_ok();
        let first = if is_known || is_denied(&directory) { Step::Nothing } else { Step::Unknown };
        let names: &[&str] =
            if directories.unwrap_or(false) { &["cwd", "root", "exe"] } else { &[] };
        let descriptors = files.unwrap_or(false).then(|| proc::entries(directory.join("fd")));
        let places = names.iter().map(move |name| directory.join(name));
        let links = places.chain(descriptors.into_iter().flatten());
        std::iter::once(first).chain(links.map(Step::Item))
    });
    Bounded::new(steps, deadline)
}

/// Returns true if the path of a file is too long for readlink(2).
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENAMETOOLONG)
}

/// Returns true if this process may not read the links of a thread.
fn is_denied(thread: &Path) -> bool {
    let link = std::fs::read_link(thread.join("cwd"));
    link.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A file that a process maps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MappedFile {
    /// Device number of the file system; on btrfs that of stat(2) differs.
    pub(crate) dev: u32,
    pub(crate) ino: u64,
    pub(crate) path: PathBuf,
}

/// Returns the files that a process maps. A process may have 65,530 mappings with long paths,
/// hundreds of MB of text.
pub(crate) fn mapped_files(
    pid: u32,
    deadline: Instant,
) -> Bounded<impl Iterator<Item = Step<MappedFile>>> {
    let maps = File::open(format!("/proc/{pid}/maps")).ok();
    let lines = maps.into_iter().flat_map(|maps| BufReader::new(maps).split(b'\n'));
    let steps = lines.map_while(io::Result::ok);
    Bounded::new(steps.map(|line| mapped_file(&line).map_or(Step::Nothing, Step::Item)), deadline)
}

/// Parses a line with the columns address, perms, offset, dev, inode and path. The text of a
/// mapping without a file, such as `[anon:/path]`, does not begin with a slash.
fn mapped_file(line: &[u8]) -> Option<MappedFile> {
    let mut columns = line.splitn(6, |byte| *byte == b' ');
    let [dev, inode] = [columns.nth(3)?, columns.next()?].map(str::from_utf8);
    let path = columns.next()?.trim_ascii_start();
    let (major, minor) = dev.ok()?.split_once(':')?;
    let [major, minor] = [major, minor].map(|number| u32::from_str_radix(number, 16));
    path.starts_with(b"/").then_some(MappedFile {
        dev: device::encode(major.ok()?, minor.ok()?),
        ino: inode.ok()?.parse().ok()?,
        path: PathBuf::from(OsStr::from_bytes(path)),
    })
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
        let steps = [Step::Nothing, Step::Item(1), Step::Nothing, Step::Item(2)];
        let mut all = Bounded::new(steps.into_iter(), later);
        assert_eq!(all.by_ref().collect::<Vec<_>>(), [1, 2]);
        assert!(all.is_complete);
        let mut some = Bounded::new([Step::Unknown, Step::Item(1)].into_iter(), later);
        assert_eq!(some.by_ref().collect::<Vec<_>>(), [1]);
        assert!(!some.is_complete);
        let mut many = Bounded::new(std::iter::repeat_with(|| Step::<u32>::Nothing), later);
        assert_eq!(many.next(), None);
        assert!(!many.is_complete);
        let mut late = Bounded::new(std::iter::repeat_with(|| Step::Item(1)), Instant::now());
        assert_eq!(late.next(), None);
        assert!(!late.is_complete);
    }

    #[test]
    fn a_mapping_has_an_inode_and_a_path() {
        let line = b"7f00-7f01 r--p 00000000 08:1f 42                 /a b/c";
        let file = MappedFile { dev: device::encode(8, 31), ino: 42, path: "/a b/c".into() };
        assert_eq!(mapped_file(line), Some(file));
        assert_eq!(mapped_file(b"7f00-7f01 rw-p 00000000 00:00 0   [heap]"), None);
        assert_eq!(mapped_file(b"7f00-7f01 rw-p 00000000 00:00 0   [anon:/a b/c]"), None);
        assert_eq!(mapped_file(b"7f00-7f01 rw-p 00000000 00:00 0 "), None);
    }

    #[test]
    fn a_thread_that_ended_is_no_reason_to_doubt_a_list() {
        let mut threads = DistinctThreads::new(syscall::FILES);
        assert!(threads.add(std::process::id()).unwrap());
        assert!(threads.add(u32::MAX >> 1).unwrap());
        assert!(!threads.add(std::process::id()).unwrap());
        threads.kind = -1;
        assert!(threads.add(std::process::id()).is_err(), "no such kind");
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
