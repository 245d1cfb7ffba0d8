//! Inode generations: they tell inodes apart that had the same number at different times.
//!
//! A local file system does not reuse an inode number while a descriptor of the inode is open. A
//! server does: a descriptor opened with `O_PATH` is not known to it.

use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Maximum length of a file handle (include/linux/exportfs.h, `MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// The birth time of an inode, where SMB servers have it, and its file handle, which NFS servers
/// make unique (RFC 8881, 4.2.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Generation {
    birth: Option<(i64, u32)>,
    handle: Option<Box<[u8]>>,
}

impl Generation {
    /// Returns the generation of the inode of a descriptor, without a request to the server.
    pub(super) fn of(path: &OwnedFd) -> Self {
        let found = statx_with(path, AtFlags::STATX_DONT_SYNC, StatxFlags::BTIME);
        let birth = found.map(|found| (found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
        Generation { birth, handle: handle(path) }
    }
}

/// Returns statx(2) data with the field `wanted`, if the file system has it.
pub(super) fn statx_with(path: impl AsFd, flags: AtFlags, wanted: StatxFlags) -> Option<Statx> {
    let found = rustix::fs::statx(path, "", flags | AtFlags::EMPTY_PATH, wanted).ok()?;
    (found.stx_mask & wanted.bits() != 0).then_some(found)
}

/// `struct file_handle` with space for the longest handle.
#[repr(C)]
struct FileHandle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

/// Returns the file handle of an inode, if its file system has handles.
fn handle(path: &OwnedFd) -> Option<Box<[u8]>> {
    let bytes = [0; HANDLE_BYTES_MAX];
    let length = u32::try_from(HANDLE_BYTES_MAX).expect("a small number");
    let mut handle = FileHandle { length, kind: 0, bytes };
    let (fd, mut mount) = (path.as_raw_fd(), 0_i32);
    let handle_at = (&raw mut handle).cast::<libc::file_handle>();
    // SAFETY: the handle states how many bytes follow it, the empty name ends with a zero, and the
    // kernel keeps no pointer. rustix does not wrap this call.
    let result = unsafe {
        libc::name_to_handle_at(fd, c"".as_ptr(), handle_at, &raw mut mount, libc::AT_EMPTY_PATH)
    };
    let length = usize::try_from(handle.length).ok()?;
    (result == 0).then(|| handle.bytes.get(..length).map(Box::from)).flatten()
}

const _: () = assert!(offset_of!(FileHandle, bytes) == 8, "as in the kernel");

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn it_is_that_of_the_inode_and_differs_between_inodes() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name| OwnedFd::from(File::create(directory.path().join(name)).unwrap());
        let (one, other) = (Generation::of(&file("one")), Generation::of(&file("other")));
        assert_eq!(one, Generation::of(&file("one")));
        assert_ne!(one, other);
        assert!(one.handle.is_some_and(|handle| !handle.is_empty()));
    }
}
