//! Search for other names (hard links) of a claimed file inside a claimed directory.
//!
//! The kernel does not report the names of an inode, so the search reads directory entries, without
//! opening files. A search that takes too long counts as a match. All searches with one snapshot of
//! the machine share their time: other users may publish many claims.

use super::footprint::{FootprintPart, FsPath, Inode, Node};
use super::machine::LocalMachine;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Instant;

/// Deeper directories are not searched, and count as a match.
const DEPTH_MAX: usize = 256;

/// Returns true if a file of `files` may have a name in a directory of `trees`.
pub(super) fn may_hold(
    files: &[FootprintPart],
    trees: &[FootprintPart],
    machine: &LocalMachine,
) -> bool {
    let filesystem = files.iter().find_map(|part| match part.node {
        Node::SomeDirectory(filesystem) => Some(filesystem),
        _ => None,
    });
    let inode = files.iter().find_map(|part| match part.node {
        Node::File(inode) if part.owned => Some(inode),
        _ => None,
    });
    let Some((filesystem, inode)) = filesystem.zip(inode) else { return false };
    let end = machine.search_end();
    trees.iter().filter(|part| part.owned).any(|part| match &part.node {
        Node::Directory { fs_path: Some(fs_path), .. } if fs_path.filesystem == filesystem => {
            path_may_hold(fs_path, inode, machine, end)
        }
        _ => false,
    })
}

fn path_may_hold(fs_path: &FsPath, inode: Inode, machine: &LocalMachine, end: Instant) -> bool {
    // This process cannot see the directory, so it may hold a name.
    let Some(named) = machine.open_fs_path(fs_path) else { return true };
    match open(&named, c".") {
        Ok(directory) => directory_may_hold(&directory, inode, end, 0),
        Err(error) => error != Errno::NOENT,
    }
}

fn open(directory: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn directory_may_hold(directory: &OwnedFd, inode: Inode, end: Instant, depth: usize) -> bool {
    if depth > DEPTH_MAX || Instant::now() > end {
        return true;
    }
    let entries = match Dir::read_from(directory) {
        Ok(entries) => entries,
        // A removed directory is empty.
        Err(error) => return error != Errno::NOENT,
    };
    for entry in entries {
        let Ok(entry) = entry else { return true };
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory {
            let is_self = name == c"." || name == c"..";
            // A removed directory holds no names; another file system has other inodes.
            let below = if is_self { None } else { open(directory, name).ok() };
            let same =
                |below: &OwnedFd| rustix::fs::fstat(below).is_ok_and(|stat| stat.st_dev == inode.0);
            if let Some(below) = below.filter(same)
                && directory_may_hold(&below, inode, end, depth + 1)
            {
                return true;
            }
        } else if entry.ino() == inode.1 {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_directory_that_was_removed_holds_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let parent: OwnedFd = std::fs::File::open(parent.path()).unwrap().into();
        rustix::fs::mkdirat(&parent, c"gone", Mode::RWXU).unwrap();
        let gone = open(&parent, c"gone").unwrap();
        rustix::fs::unlinkat(&parent, c"gone", rustix::fs::AtFlags::REMOVEDIR).unwrap();
        assert!(!directory_may_hold(&gone, (0, 0), Instant::now() + Duration::from_mins(1), 0));
    }
}
