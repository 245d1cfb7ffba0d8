//! Links in procfs to the files and directories that a process uses, and their encoding in a
//! stream.
//!
//! A read of a link may hold the last reference to a file that the process closes, and the kernel
//! then waits for the server of its file system: only the inspector calls [`of`] for processes of
//! others (see [`crate::inspector`]).

use crate::foreign_file::{FileIdentity, ForeignFile};
use crate::{proc, syscall};
use std::cmp::Ordering;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Maximum length of a path of readlink(2): a page.
const PATH_BYTES_MAX: usize = 4096;

/// A step of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<T> {
    Item(T),
    Nothing,
    /// Items that the kernel does not tell.
    Unknown,
}

/// A file or directory that a process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// False for a working, root or program file or directory.
    pub(crate) is_descriptor: bool,
    pub(crate) file: ForeignFile,
    pub(crate) path: LinkPath,
}

/// Path of a used file, in the mount namespace of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkPath {
    Known(PathBuf),
    /// It is too long for readlink(2).
    TooLong,
    Unknown,
}

impl Link {
    fn read(link: &Path) -> Step<Link> {
        let Ok(file) = ForeignFile::behind(link) else { return Step::Nothing };
        let path = match std::fs::read_link(link) {
            Ok(path) => LinkPath::Known(path),
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => LinkPath::TooLong,
            Err(_) => LinkPath::Unknown,
        };
        let is_descriptor = link.parent().is_some_and(|parent| parent.ends_with("fd"));
        Step::Item(Link { is_descriptor, file, path })
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
pub(crate) fn of(pid: u32) -> impl Iterator<Item = Step<Link>> {
    let mut distinct = [syscall::FILES, syscall::DIRECTORIES].map(DistinctThreads::new);
    threads(pid).flat_map(move |directory| {
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
        std::iter::once(first).chain(links.map(|link| Link::read(&link)))
    })
}

/// Returns true if this process may not read the links of a thread.
fn is_denied(thread: &Path) -> bool {
    let link = std::fs::read_link(thread.join("cwd"));
    link.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

impl Step<Link> {
    /// Appends the step to a stream.
    pub(crate) fn encode(&self, stream: &mut Vec<u8>) {
        let link = match self {
            Step::Nothing => return stream.push(0),
            Step::Unknown => return stream.push(1),
            Step::Item(link) => link,
        };
        let ForeignFile { identity, is_regular, links, mount } = link.file;
        stream.extend([2, link.is_descriptor.into(), is_regular.into()]);
        stream.extend(identity.dev.to_le_bytes());
        stream.extend(links.to_le_bytes());
        stream.extend(identity.ino.to_le_bytes());
        stream.extend(mount.to_le_bytes());
        let (kind, path) = match &link.path {
            LinkPath::Known(path) => (0, path.as_os_str().as_bytes()),
            LinkPath::TooLong => (1, &[][..]),
            LinkPath::Unknown => (2, &[][..]),
        };
        stream.push(kind);
        stream.extend(u32::try_from(path.len()).unwrap_or(u32::MAX).to_le_bytes());
        stream.extend(path);
    }

    /// Reads a step from a stream; `None` at its end.
    pub(crate) fn decode(stream: &mut impl Read) -> io::Result<Option<Step<Link>>> {
        let mut kind = [0];
        if stream.read(&mut kind)? == 0 {
            return Ok(None);
        }
        match kind {
            [0] => Ok(Some(Step::Nothing)),
            [1] => Ok(Some(Step::Unknown)),
            [2] => Link::decode(stream).map(|link| Some(Step::Item(link))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Link {
    fn decode(stream: &mut impl Read) -> io::Result<Link> {
        let [is_descriptor, is_regular] = bytes(stream)?.map(|byte| byte != 0);
        let [dev, links] = [bytes(stream)?, bytes(stream)?].map(u32::from_le_bytes);
        let [ino, mount] = [bytes(stream)?, bytes(stream)?].map(u64::from_le_bytes);
        let [kind] = bytes(stream)?;
        let mut path = vec![0; u32::from_le_bytes(bytes(stream)?) as usize];
        if path.len() > PATH_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.read_exact(&mut path)?;
        let path = match kind {
            0 => LinkPath::Known(OsString::from_vec(path).into()),
            1 => LinkPath::TooLong,
            _ => LinkPath::Unknown,
        };
        let file = ForeignFile { identity: FileIdentity { dev, ino }, is_regular, links, mount };
        Ok(Link { is_descriptor, file, path })
    }
}

fn bytes<const COUNT: usize>(stream: &mut impl Read) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    stream.read_exact(&mut bytes).map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ended_is_no_reason_to_doubt_a_list() {
        let mut threads = DistinctThreads::new(syscall::FILES);
        assert!(threads.add(std::process::id()).unwrap());
        assert!(threads.add(u32::MAX >> 1).unwrap());
        assert!(!threads.add(std::process::id()).unwrap());
        threads.kind = -1;
        assert!(threads.add(std::process::id()).is_err(), "no such kind");
    }

    #[test]
    fn a_list_is_the_same_after_it_passed_a_stream() {
        let file = ForeignFile::behind(Path::new("/proc/self/exe")).unwrap();
        let link = |path| Step::Item(Link { is_descriptor: true, file, path });
        let paths = [LinkPath::Known("/a\nb".into()), LinkPath::TooLong, LinkPath::Unknown];
        let steps: Vec<_> = paths.map(link).into_iter().chain([Step::Nothing]).collect();
        let mut stream = Vec::new();
        for step in &steps {
            step.encode(&mut stream);
        }
        for cut in 1..stream.len() - 1 {
            let mut short = &stream[..cut];
            while let Ok(Some(step)) = Step::decode(&mut short) {
                assert!(steps.contains(&step));
            }
        }
        let mut rest = &stream[..];
        let decoded = std::iter::from_fn(|| Step::decode(&mut rest).unwrap());
        assert_eq!(decoded.collect::<Vec<_>>(), steps);
        assert!(Step::decode(&mut &[9][..]).is_err());
    }
}
