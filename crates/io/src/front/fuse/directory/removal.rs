//! Hidden names: those that the kernel gives to files on a server that are removed while they are
//! open there. Until they are gone, the server does not remove their directory.

use super::Node;
use crate::store::files::SourceFile;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time without progress after which the removal of a directory fails, if a program holds a file
/// that was removed in it, or larder does not know the file.
const HELD_WAIT_MAX: Duration = Duration::from_secs(1);

/// The same if only the kernel has to forget the files, which it does as fast as the machine
/// permits.
const FORGET_WAIT_MAX: Duration = Duration::from_secs(10);

/// Starts of hidden names. The NFS client of the kernel hides a file of which any process, such as
/// this one, has a descriptor (`nfs_sillyrename` in fs/nfs/unlink.c); the SMB client, since Linux
/// 6.18, one that is open for its data (`cifs_silly_fullpath` in fs/smb/client/dir.c). They remove
/// these names when the descriptors are closed.
const HIDDEN_NAME_PREFIXES: [&[u8]; 2] = [b".nfs", b".__smbfile_silly"];

fn is_hidden_name(name: &[u8]) -> bool {
    HIDDEN_NAME_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns true if a file on a server was removed and has a hidden name.
pub(super) fn is_hidden(file: &SourceFile) -> bool {
    let path = file.name();
    Path::new(&path).file_name().is_some_and(|name| is_hidden_name(name.as_bytes()))
}

pub(super) fn remove_directory(parent: &Node, name: &CStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(parent.file.path(), name, AtFlags::REMOVEDIR)
}

/// Returns the inode numbers of the hidden names in a directory; none if it has other names too.
pub(super) fn hidden_files_in(parent: &Node, name: &CStr) -> Result<Option<Vec<u64>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent.file.path(), name, flags, Mode::empty())?;
    let mut inodes = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name if is_hidden_name(name) => inodes.push(entry.ino()),
            _ => return Ok(None),
        }
    }
    Ok(Some(inodes))
}

/// The wait of a request for the end of the hidden names in the directory that it removes.
#[derive(Debug, Default)]
pub(super) struct HiddenNamesWait {
    /// The least `count` so far, and when it was reached.
    least: Option<(usize, Instant)>,
}

impl HiddenNamesWait {
    /// Returns true if the request has to wait on, since `count` has fallen lately: the number of
    /// hidden names and of their files that the kernel has not forgotten. `is_held`: the end of the
    /// wait is not in the hands of larder and the kernel.
    pub(super) fn continues(&mut self, now: Instant, count: usize, is_held: bool) -> bool {
        let reached = match self.least {
            Some((least, reached)) if least <= count => reached,
            _ => now,
        };
        self.least = Some((self.least.map_or(count, |(least, _)| least.min(count)), reached));
        let wait_max = if is_held { HELD_WAIT_MAX } else { FORGET_WAIT_MAX };
        now.saturating_duration_since(reached) < wait_max
    }
}

#[cfg(test)]
mod tests {
    use super::super::nodes::Nodes;
    use super::super::rules::Rules;
    use super::super::{Directory, DirectoryOptions};
    use super::*;
    use crate::clock::MonotonicClock;
    use crate::front::fuse::abi::{self, InHeader};
    use larder_core::clock::Clock;
    use std::sync::Arc;

    #[test]
    fn a_directory_with_other_names_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        let nodes = Nodes::new(root, Rules::new(&[], String::new()), true).unwrap();
        let parent = nodes.by_id(abi::ROOT).unwrap();
        let count = || hidden_files_in(&parent, c"inner").unwrap().map(|inodes| inodes.len());
        assert_eq!(count(), Some(0));
        std::fs::write(inner.join(".nfs0001"), "").unwrap();
        std::fs::write(inner.join(".__smbfile_silly0001"), "").unwrap();
        assert_eq!(count(), Some(2));
        std::fs::write(inner.join("other"), "").unwrap();
        assert_eq!(count(), None);
    }

    #[test]
    fn a_file_on_a_server_is_closed_before_it_is_removed() {
        if !larder_testing::is_root() {
            return larder_testing::skip("other users keep files open for unwritten data");
        }
        let source = tempfile::tempdir().unwrap();
        let path = source.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, "text").unwrap();
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let opened = Directory::open(source.path(), DirectoryOptions::default(), &clock).unwrap();
        let mut directory = opened.directory;
        directory.is_remote = true;
        let parent = directory.node(abi::ROOT).unwrap();
        let (node, _) = directory.look_up(&parent, c"file").unwrap();
        node.file.buffered(false).unwrap();
        let descriptors = || {
            let open = std::fs::read_dir("/proc/self/fd").unwrap();
            let files = open.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
            let is_of_file = |file: &std::path::PathBuf| {
                file.as_os_str().as_bytes().starts_with(path.as_os_str().as_bytes())
            };
            files.filter(is_of_file).count()
        };
        assert_eq!(descriptors(), 2, "one identifies the file, the other is for its data");
        let header = InHeader { nodeid: abi::ROOT, ..InHeader::default() };
        directory.unlink(&header, b"file\0", false).unwrap();
        assert_eq!((path.exists(), descriptors()), (false, 1));
    }

    #[test]
    fn a_removal_waits_as_long_as_hidden_names_disappear() {
        let (mut wait, begun) = (HiddenNamesWait::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(wait.continues(at(0), 3, false));
        assert!(wait.continues(at(9), 3, false), "the kernel may be slow");
        assert!(wait.continues(at(11), 2, true), "one of them is gone");
        assert!(wait.continues(at(20), 2, false));
        assert!(!wait.continues(at(20), 2, true), "a program has one of them open");
        assert!(!wait.continues(at(21), 2, false), "none has gone for ten seconds");
        assert!(!wait.continues(at(22), 3, false), "more is no progress");
        assert!(wait.continues(at(22), 1, true));
    }

    #[test]
    fn names_of_both_clients_are_hidden() {
        for name in [&b".nfs000000000000004200000001"[..], b".__smbfile_silly00000001"] {
            assert!(is_hidden_name(name));
        }
        assert!(!is_hidden_name(b"nfs") && !is_hidden_name(b".__smbfile_tmp00000001"));
    }
}
