//! Search for other names (hard links) of a claimed file inside a claimed directory.
//!
//! The kernel does not report the names of an inode, so the search reads directory entries, without
//! opening files. A search that takes too long counts as a match. All searches with one snapshot of
//! the machine share their time: other users may publish many claims.

use super::footprint::{Inode, Node, Part, Place};
use super::machine::ThisMachine;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Instant;

/// Deeper directories are not searched, and count as a match.
const DEPTH_MAX: usize = 256;

/// Returns whether a file of `files` may have a name in a directory of `trees`.
pub(super) fn may_hold(files: &[Part], trees: &[Part], machine: &ThisMachine) -> bool {
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
        Node::Directory { place: Some(place), .. } if place.filesystem == filesystem => {
            in_place(place, inode, machine, end)
        }
        _ => false,
    })
}

fn in_place(place: &Place, inode: Inode, machine: &ThisMachine, end: Instant) -> bool {
    // A directory that this process cannot see may hold it.
    let Some(named) = machine.open_place(place) else { return true };
    match open(&named, c".") {
        Ok(directory) => in_directory(&directory, inode, end, 0),
        Err(error) => error != Errno::NOENT,
    }
}

fn open(directory: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn in_directory(directory: &OwnedFd, inode: Inode, end: Instant, depth: usize) -> bool {
    if depth > DEPTH_MAX || Instant::now() > end {
        return true;
    }
    let entries = match Dir::read_from(directory) {
        Ok(entries) => entries,
        // A directory that was removed is empty.
        Err(error) => return error != Errno::NOENT,
    };
    for entry in entries {
        let Ok(entry) = entry else { return true };
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory {
            let is_self = name == c"." || name == c"..";
            // A directory that is gone holds nothing; another file system has other inodes.
            let below = if is_self { None } else { open(directory, name).ok() };
            let same =
                |below: &OwnedFd| rustix::fs::fstat(below).is_ok_and(|stat| stat.st_dev == inode.0);
            if let Some(below) = below.filter(same)
                && in_directory(&below, inode, end, depth + 1)
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
        assert!(!in_directory(&gone, (0, 0), Instant::now() + Duration::from_mins(1), 0));
    }
}
