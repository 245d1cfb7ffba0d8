//! Changes of a file system as they happen, as fanotify(7) tells of them: which files and
//! directories are others now than they were, through whatever name or mount they were changed.
//!
//! Invariant: what this process changes itself is not told; whatever could not be told is told to
//! be missing.

use crate::syscall;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Room for events: some hundreds.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of `struct fanotify_event_metadata`, of the header of what follows it, and of that and
/// what stands before the bytes of a handle (linux/fanotify.h).
const EVENT_BYTES: usize = 24;
const INFO_BYTES: usize = 4;
const HANDLE_AT: usize = INFO_BYTES + 8 + 8;

/// Why changes cannot be told. It can follow "failed to".
#[derive(Debug, thiserror::Error)]
#[error("watch {} for changes: {reason}", path.display())]
pub struct ChangesError {
    /// Of which directory.
    path: PathBuf,
    /// Why not.
    reason: String,
}

/// A file or directory: the numbers of its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode {
    /// As stat(2) has it.
    pub device: u64,
    /// As stat(2) has it.
    pub number: u64,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Bytes of a file, or how many there are.
    Contents(Inode),
    /// What stat(2) says of it, or its extended attributes.
    Attributes(Inode),
    /// What a name in a directory leads to.
    Name {
        /// The directory.
        directory: Inode,
        /// The name.
        name: CString,
    },
    /// More than the kernel could keep until it was asked.
    Missed,
}

/// A file handle: its type and its bytes.
type Handle = (i32, Vec<u8>);

/// Tells of changes.
#[derive(Debug)]
pub struct Changes {
    group: OwnedFd,
    /// By which handles are opened.
    root: File,
    buffer: Box<[u8]>,
}

impl Changes {
    /// Of the file system that a directory is of, as a whole. Others that are mounted inside of the
    /// directory are not looked at.
    ///
    /// # Errors
    /// One sentence: it takes root, and a file system that has handles.
    pub fn of(directory: &Path) -> Result<Self, ChangesError> {
        let failed = |error: &dyn ToString| ChangesError {
            path: directory.to_owned(),
            reason: error.to_string(),
        };
        let root = File::open(directory).map_err(|error| failed(&error))?;
        let group = match syscall::watch_file_system(&root) {
            Ok(group) => group,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return Err(failed(&"it takes the right CAP_SYS_ADMIN"));
            }
            Err(error) => return Err(failed(&error)),
        };
        let changes = Changes { group, root, buffer: vec![0; BUFFER_BYTES].into() };
        Ok(changes)
    }

    /// What has changed since it was asked last; waits for that. None if `stop` becomes readable,
    /// or ends, before.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn next(&mut self, stop: BorrowedFd<'_>) -> io::Result<Option<Vec<Change>>> {
        let mut waited =
            [PollFd::new(&self.group, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !waited[1].revents().is_empty() {
            return Ok(None);
        }
        let len = match rustix::io::read(&self.group, &mut self.buffer[..]) {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error.into()),
        };
        let events = parse(&self.buffer[..len], own_process());
        Ok(Some(self.changes(events)))
    }

    /// The same once what handles stand for is known; each change once.
    fn changes(&self, events: Vec<Event>) -> Vec<Change> {
        let mut known: HashMap<Handle, Option<Inode>> = HashMap::new();
        let mut changes = Vec::new();
        for event in events {
            let mut find = |handle: Handle| {
                *known.entry(handle).or_insert_with_key(|handle| self.inode(handle))
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

    /// What a handle stands for; nothing if that is gone.
    fn inode(&self, handle: &Handle) -> Option<Inode> {
        let file = syscall::open_by_handle(&self.root, handle.0, &handle.1).ok()?;
        let stat = rustix::fs::fstat(file.as_fd()).ok()?;
        Some(Inode { device: stat.st_dev, number: stat.st_ino })
    }
}

/// What the kernel tells of, by handles.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Contents(Handle),
    Attributes(Handle),
    Name(Handle, CString),
    Missed,
}

fn own_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The number of `N` bytes at a place, in the machine's own order, as the kernel has it.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

macro_rules! number_at {
    ($kind:ty, $bytes:expr, $at:expr) => {
        bytes_at($bytes, $at).map(<$kind>::from_ne_bytes)
    };
}

/// The events in `bytes` that are not of our own doing.
fn parse(mut bytes: &[u8], own: i32) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(len) = number_at!(u32, bytes, 0) {
        let Some((event, rest)) = usize::try_from(len)
            .ok()
            .filter(|&len| len >= EVENT_BYTES)
            .and_then(|len| bytes.split_at_checked(len))
        else {
            // Whatever it is, nothing behind it can be found.
            events.push(Event::Missed);
            break;
        };
        bytes = rest;
        take(event, own, &mut events);
    }
    events
}

fn take(event: &[u8], own: i32, events: &mut Vec<Event>) {
    let mask = number_at!(u64, event, 8).unwrap_or(0);
    let process = number_at!(i32, event, 20).unwrap_or(0);
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        events.push(Event::Missed);
        return;
    }
    if process == own {
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
        let Some((handle, behind)) = handle_in(info) else { continue };
        match kind {
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME if mask & names != 0 => {
                let name = behind.split(|&byte| byte == 0).next().unwrap_or_default();
                if let Ok(name) = CString::new(name) {
                    events.push(Event::Name(handle.clone(), name));
                }
                // The directory has other times now.
                events.push(Event::Attributes(handle));
            }
            libc::FAN_EVENT_INFO_TYPE_FID if mask & libc::FAN_MODIFY != 0 => {
                events.push(Event::Contents(handle));
            }
            // How many names it has is an attribute, too.
            libc::FAN_EVENT_INFO_TYPE_FID | libc::FAN_EVENT_INFO_TYPE_DFID => {
                events.push(Event::Attributes(handle));
            }
            // A directory's own attributes come with itself as the place of the name ".".
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME
                if mask & libc::FAN_ATTRIB != 0 && behind.starts_with(b".\0") =>
            {
                events.push(Event::Attributes(handle));
            }
            _ => {}
        }
    }
}

/// The handle in a piece of information, and what follows it.
fn handle_in(info: &[u8]) -> Option<(Handle, &[u8])> {
    let len = usize::try_from(number_at!(u32, info, INFO_BYTES + 8)?).ok()?;
    let kind = number_at!(i32, info, INFO_BYTES + 12)?;
    let (handle, behind) = info.get(HANDLE_AT..)?.split_at_checked(len)?;
    Some(((kind, handle.to_vec()), behind))
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
        let own = info(libc::FAN_EVENT_INFO_TYPE_FID, &[2; 8], b"");
        let both = [named.clone(), own];
        let bytes = [
            event(libc::FAN_MODIFY, 77, &both),
            event(libc::FAN_ATTRIB, 77, &both),
            event(libc::FAN_MODIFY, 99, &both),
            event(libc::FAN_DELETE, 77, &[named]),
            event(libc::FAN_Q_OVERFLOW, 0, &[]),
        ];
        let wanted = [
            Event::Contents(handle(2)),
            Event::Attributes(handle(2)),
            Event::Name(handle(1), c"a".to_owned()),
            Event::Attributes(handle(1)),
            Event::Missed,
        ];
        assert_eq!(parse(&bytes.concat(), 99), wanted);
    }

    #[test]
    fn what_cannot_be_read_counts_as_missed_and_is_no_harm() {
        let whole =
            event(libc::FAN_MODIFY, 77, &[info(libc::FAN_EVENT_INFO_TYPE_FID, &[2; 8], b"")]);
        assert_eq!(parse(&whole[..whole.len() - 1], 1), [Event::Missed]);
        let mut short = whole.clone();
        short[0] = 3;
        assert_eq!(parse(&short, 1), [Event::Missed]);
        for place in 0..whole.len() {
            for value in [0, 1, 255] {
                let mut changed = whole.clone();
                changed[place] = value;
                // Whatever comes of it: nothing is read outside, and it ends.
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
        let mut told = Vec::new();
        let name =
            |name: &std::ffi::CStr| Change::Name { directory: parent, name: name.to_owned() };
        while !told.contains(&name(c"done")) {
            told.extend(changes.next(stop.as_fd()).unwrap().unwrap());
        }
        for wanted in [
            Change::Contents(file),
            Change::Attributes(file),
            Change::Attributes(parent),
            name(c"file"),
            name(c"other"),
        ] {
            assert!(told.contains(&wanted), "{wanted:?} is missing: {told:?}");
        }
        fs::write(&path, "ours").unwrap();
        let ran = Command::new("touch").arg(directory.path().join("end")).status();
        assert!(ran.unwrap().success());
        let mut told = Vec::new();
        while !told.contains(&name(c"end")) {
            told.extend(changes.next(stop.as_fd()).unwrap().unwrap());
        }
        assert!(!told.contains(&name(c"file")), "what we do is not told: {told:?}");
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
