//! File-system change events from fanotify(7): files and directories that other processes changed,
//! through any name or mount.
//!
//! Invariants: changes by this process are not reported; a loss of events is reported as
//! [`Change::Missed`].

use crate::syscall;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Size of the event buffer: room for some hundred events.
const BUFFER_BYTES: usize = 64 << 10;
/// Sizes of `struct fanotify_event_metadata` and of an information record's header, and the offset
/// of a handle's bytes in an information record (linux/fanotify.h).
const EVENT_BYTES: usize = 24;
const INFO_BYTES: usize = 4;
const HANDLE_AT: usize = INFO_BYTES + 8 + 8;

/// An error watching for changes. The message can follow "cannot".
#[derive(Debug, thiserror::Error)]
#[error("watch {} for changes: {reason}", path.display())]
pub struct ChangesError {
    /// The watched directory.
    path: PathBuf,
    /// The reason.
    reason: String,
}

/// A file or directory, identified by its device and inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode {
    /// Device number, as `st_dev` of stat(2).
    pub device: u64,
    /// Inode number, as `st_ino` of stat(2).
    pub number: u64,
}

/// A change of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The contents or size of a file changed.
    Contents(Inode),
    /// The stat(2) attributes or the extended attributes changed.
    Attributes(Inode),
    /// A directory entry was created, removed or replaced.
    Name {
        /// The directory.
        directory: Inode,
        /// The name.
        name: CString,
    },
    /// The kernel dropped events because its queue overflowed.
    Missed,
}

/// A file handle: its type and its bytes.
type FileHandle = (i32, Vec<u8>);

/// A fanotify group that reports the changes of one file system.
#[derive(Debug)]
pub struct Changes {
    group: OwnedFd,
    /// Open directory that file handles are resolved against.
    root: File,
    buffer: Box<[u8]>,
}

impl Changes {
    /// Watches the whole file system that contains a directory. File systems mounted below the
    /// directory are not watched.
    ///
    /// # Errors
    /// The process lacks `CAP_SYS_ADMIN`, or the file system has no file handles.
    pub fn of(directory: &Path) -> Result<Self, ChangesError> {
        let failed = |error: &dyn ToString| ChangesError {
            path: directory.to_owned(),
            reason: error.to_string(),
        };
        let root = File::open(directory).map_err(|error| failed(&error))?;
        let group =
            syscall::watch_file_system(&root).map_err(|error| match error.raw_os_error() {
                Some(libc::EPERM) => failed(&"it needs the capability CAP_SYS_ADMIN"),
                _ => failed(&error),
            })?;
        Ok(Changes { group, root, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Waits for changes and returns those since the last call. Returns `None` if `stop` becomes
    /// readable or reaches end of file first.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn next(&mut self, stop: BorrowedFd<'_>) -> io::Result<Option<Vec<Change>>> {
        let mut poll_fds =
            [PollFd::new(&self.group, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        match poll(&mut poll_fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !poll_fds[1].revents().is_empty() {
            return Ok(None);
        }
        let len = match rustix::io::read(&self.group, &mut self.buffer[..]) {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error.into()),
        };
        let events = parse(&self.buffer[..len], current_pid());
        Ok(Some(self.changes(events)))
    }

    /// Resolves the handles of events to inodes and removes duplicates.
    fn changes(&self, events: Vec<Event>) -> Vec<Change> {
        let mut resolved: HashMap<FileHandle, Option<Inode>> = HashMap::new();
        let mut changes = Vec::new();
        for event in events {
            let mut find = |handle: FileHandle| {
                *resolved.entry(handle).or_insert_with_key(|handle| self.inode(handle))
            };
            let change = match event {
                Event::Contents(handle) => find(handle).map(Change::Contents),
                Event::Attributes(handle) => find(handle).map(Change::Attributes),
                Event::Name(handle, name) => {
                    find(handle).map(|directory| Change::Name { directory, name })
                }
                Event::Missed => Some(Change::Missed),
            };
            if let Some(change) = change.filter(|change| !changes.contains(change)) {
                changes.push(change);
            }
        }
        changes
    }

    /// Resolves a file handle; returns `None` if the file no longer exists.
    fn inode(&self, handle: &FileHandle) -> Option<Inode> {
        let file = syscall::open_by_handle(&self.root, handle.0, &handle.1).ok()?;
        let stat = rustix::fs::fstat(file.as_fd()).ok()?;
        Some(Inode { device: stat.st_dev, number: stat.st_ino })
    }
}

/// A fanotify event, with unresolved file handles.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Contents(FileHandle),
    Attributes(FileHandle),
    Name(FileHandle, CString),
    Missed,
}

fn current_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Returns `N` bytes at an offset; the kernel uses the machine's byte order.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

macro_rules! number_at {
    ($kind:ty, $bytes:expr, $at:expr) => {
        bytes_at($bytes, $at).map(<$kind>::from_ne_bytes)
    };
}

/// Decodes the events in `bytes`, except those that this process caused.
fn parse(mut bytes: &[u8], own_pid: i32) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(len) = number_at!(u32, bytes, 0) {
        let Some((event, rest)) = usize::try_from(len)
            .ok()
            .filter(|&len| len >= EVENT_BYTES)
            .and_then(|len| bytes.split_at_checked(len))
        else {
            // The length is invalid, so the start of the next event is unknown.
            events.push(Event::Missed);
            break;
        };
        bytes = rest;
        decode_event(event, own_pid, &mut events);
    }
    events
}

fn decode_event(event: &[u8], own_pid: i32, events: &mut Vec<Event>) {
    let mask = number_at!(u64, event, 8).unwrap_or(0);
    let process = number_at!(i32, event, 20).unwrap_or(0);
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        events.push(Event::Missed);
        return;
    }
    if process == own_pid {
        return;
    }
    let names = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
    let head = number_at!(u16, event, 6).map_or(EVENT_BYTES, usize::from);
    let mut infos = event.get(head..).unwrap_or_default();
    while let (Some(&kind), Some(len)) = (infos.first(), number_at!(u16, infos, 2)) {
        let len = usize::from(len);
        let Some((info, rest)) = infos.split_at_checked(len).filter(|_| len >= INFO_BYTES) else {
            break;
        };
        infos = rest;
        let Some((handle, name_bytes)) = parse_handle(info) else { continue };
        match kind {
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME if mask & names != 0 => {
                let name = name_bytes.split(|&byte| byte == 0).next().unwrap_or_default();
                if let Ok(name) = CString::new(name) {
                    events.push(Event::Name(handle.clone(), name));
                }
                // The event also changes the times of the directory.
                events.push(Event::Attributes(handle));
            }
            libc::FAN_EVENT_INFO_TYPE_FID if mask & libc::FAN_MODIFY != 0 => {
                events.push(Event::Contents(handle));
            }
            // The link count is an attribute, too.
            libc::FAN_EVENT_INFO_TYPE_FID | libc::FAN_EVENT_INFO_TYPE_DFID => {
                events.push(Event::Attributes(handle));
            }
            // The kernel reports a directory's own attributes under the name ".".
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME
                if mask & libc::FAN_ATTRIB != 0 && name_bytes.starts_with(b".\0") =>
            {
                events.push(Event::Attributes(handle));
            }
            _ => {}
        }
    }
}

/// Returns the file handle in an information record, and the bytes after it.
fn parse_handle(info: &[u8]) -> Option<(FileHandle, &[u8])> {
    let len = usize::try_from(number_at!(u32, info, INFO_BYTES + 8)?).ok()?;
    let kind = number_at!(i32, info, INFO_BYTES + 12)?;
    let (handle, name_bytes) = info.get(HANDLE_AT..)?.split_at_checked(len)?;
    Some(((kind, handle.to_vec()), name_bytes))
}

#[cfg(test)]
#[expect(clippy::host_endian_bytes, reason = "what the kernel of this machine would send")]
mod tests {
    use super::*;
    use larder_testing::skip;
    use std::fs;
    use std::process::Command;

    fn info(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let len = u16::try_from(HANDLE_AT + handle.len() + name.len()).unwrap();
        let mut bytes = vec![kind, 0];
        bytes.extend(len.to_ne_bytes());
        bytes.extend([7; 8]);
        bytes.extend(u32::try_from(handle.len()).unwrap().to_ne_bytes());
        bytes.extend(5_i32.to_ne_bytes());
        bytes.extend(handle);
        bytes.extend(name);
        bytes
    }

    fn event(mask: u64, process: i32, infos: &[Vec<u8>]) -> Vec<u8> {
        let infos = infos.concat();
        let mut bytes = u32::try_from(EVENT_BYTES + infos.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend([3, 0]);
        bytes.extend(24_u16.to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(process.to_ne_bytes());
        bytes.extend(infos);
        bytes
    }

    #[test]
    fn events_are_read_as_the_kernel_writes_them() {
        let handle = |byte: u8| (5, vec![byte; 8]);
        let named = info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, &[1; 8], b"a\0\0\0");
        let file_info = info(libc::FAN_EVENT_INFO_TYPE_FID, &[2; 8], b"");
        let both = [named.clone(), file_info];
        let bytes = [
            event(libc::FAN_MODIFY, 77, &both),
            event(libc::FAN_ATTRIB, 77, &both),
            event(libc::FAN_MODIFY, 99, &both),
            event(libc::FAN_DELETE, 77, &[named]),
            event(libc::FAN_Q_OVERFLOW, 0, &[]),
        ];
        let expected = [
            Event::Contents(handle(2)),
            Event::Attributes(handle(2)),
            Event::Name(handle(1), c"a".to_owned()),
            Event::Attributes(handle(1)),
            Event::Missed,
        ];
        assert_eq!(parse(&bytes.concat(), 99), expected);
    }

    #[test]
    fn what_cannot_be_read_counts_as_missed_and_is_no_harm() {
        let whole =
            event(libc::FAN_MODIFY, 77, &[info(libc::FAN_EVENT_INFO_TYPE_FID, &[2; 8], b"")]);
        assert_eq!(parse(&whole[..whole.len() - 1], 1), [Event::Missed]);
        let mut short = whole.clone();
        short[0] = 3;
        assert_eq!(parse(&short, 1), [Event::Missed]);
        for index in 0..whole.len() {
            for value in [0, 1, 255] {
                let mut changed = whole.clone();
                changed[index] = value;
                // The parser must stay within the buffer and terminate.
                let events = parse(&changed, 1);
                assert!(events.len() <= 2, "{events:?}");
            }
        }
    }

    /// Returns `None` and reports a skip if the kernel does not report changes.
    fn changes_of(directory: &Path) -> Option<Changes> {
        match Changes::of(directory) {
            Ok(changes) => Some(changes),
            Err(error) => {
                assert!(error.to_string().starts_with("watch /"), "{error}");
                skip(format_args!("cannot {error}"));
                None
            }
        }
    }

    #[test]
    fn what_others_do_is_told_and_what_we_do_is_not() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let Some(mut changes) = changes_of(directory.path()) else { return };
        let inode = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            Inode { device: found.dev(), number: found.ino() }
        };
        let path = directory.path().join("file");
        fs::write(&path, "ours").unwrap();
        let (file, parent) = (inode(&path), inode(directory.path()));
        let script = "echo theirs >> file; chmod 600 file; mv file other; touch done";
        let ran = Command::new("sh").args(["-c", script]).current_dir(directory.path()).status();
        assert!(ran.unwrap().success());
        let (stop, _wakes) = rustix::pipe::pipe().unwrap();
        let mut reported = Vec::new();
        let name =
            |name: &std::ffi::CStr| Change::Name { directory: parent, name: name.to_owned() };
        while !reported.contains(&name(c"done")) {
            reported.extend(changes.next(stop.as_fd()).unwrap().unwrap());
        }
        for expected in [
            Change::Contents(file),
            Change::Attributes(file),
            Change::Attributes(parent),
            name(c"file"),
            name(c"other"),
        ] {
            assert!(reported.contains(&expected), "{expected:?} is missing: {reported:?}");
        }
        fs::write(&path, "ours").unwrap();
        let ran = Command::new("touch").arg(directory.path().join("end")).status();
        assert!(ran.unwrap().success());
        let mut reported = Vec::new();
        while !reported.contains(&name(c"end")) {
            reported.extend(changes.next(stop.as_fd()).unwrap().unwrap());
        }
        assert!(!reported.contains(&name(c"file")), "what we do is not told: {reported:?}");
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut changes) = changes_of(directory.path()) else { return };
        let (stop, wakes) = rustix::pipe::pipe().unwrap();
        drop(wakes);
        assert_eq!(changes.next(stop.as_fd()).unwrap(), None);
    }
}
