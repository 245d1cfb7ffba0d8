//! Files that a process has open, maps, or uses as its directories, up to a limit.
//!
//! Invariant: every list ends by its limit of time and number, whatever the process does, and says
//! if the limit cut it.

use crate::device;
use crate::inspector::Query;
use crate::inspector_client;
use crate::process_links::{Link, Step};
use std::ffi::OsStr;
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

/// A file that a process maps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MappedFile {
    /// Device number of the file system; on btrfs that of stat(2) differs.
    pub(crate) dev: u32,
    pub(crate) ino: u64,
    pub(crate) path: PathBuf,
}

/// Returns the files that a process has open, and its working, root and program directories or
/// files.
pub(crate) fn links(pid: u32, deadline: Instant) -> Bounded<impl Iterator<Item = Step<Link>>> {
    Bounded::new(until_error(inspector_client::links(pid, deadline)), deadline)
}

/// Returns the files that a process maps. A process may have 65,530 mappings with long paths,
/// hundreds of MB of text.
pub(crate) fn mapped_files(
    pid: u32,
    deadline: Instant,
) -> Bounded<impl Iterator<Item = Step<MappedFile>>> {
    let (maps, failure) = match inspector_client::open(Query::Maps, pid, deadline) {
        Ok(maps) => (Some(maps), None),
        Err(error) => (None, Some(Err(error))),
    };
    let lines = maps.into_iter().flat_map(|maps| BufReader::new(maps).split(b'\n'));
    let step = |line: Vec<u8>| mapped_file(&line).map_or(Step::Nothing, Step::Item);
    let steps = lines.map(move |line| line.map(step)).chain(failure);
    Bounded::new(until_error(steps), deadline)
}

/// Returns the steps before the first error. One that does not mean the end of the process is an
/// unknown step.
fn until_error<T>(
    steps: impl Iterator<Item = io::Result<Step<T>>>,
) -> impl Iterator<Item = Step<T>> {
    steps.scan(false, |has_failed, step| match step {
        _ if *has_failed => None,
        Ok(step) => Some(step),
        Err(error) => {
            *has_failed = true;
            (!inspector_client::is_gone(&error)).then_some(Step::Unknown)
        }
    })
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
    use crate::process_links::{self, LinkPath};
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
        let of_file = LinkPath::Known(file.path().to_owned());
        let links_to_file = links(process.id(), later).filter(|link| link.path == of_file).count();
        let thread_count = process_links::threads(process.id()).count();
        process.stdin.take().unwrap().write_all(b"\n").unwrap();
        process.wait().unwrap();
        // The main thread, the second one, and twenty others.
        assert_eq!(thread_count, 22);
        assert_eq!(links_to_file, 2);
    }
}
