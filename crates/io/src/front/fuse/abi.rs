//! Bytes of the FUSE protocol, version 7: headers of requests and replies, and what follows them.
//!
//! Layouts are those of `linux/fuse.h`. All numbers are in the machine's own byte order; offsets
//! and lengths are in bytes. What an older kernel sends shorter is read as if zeros followed; what
//! a newer one sends longer is read as far as it is known here.

mod numbers;

pub(super) use numbers::{attribute, capability, notice, opcode, open_flag};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version that is spoken; a kernel with a larger minor number falls back to this one.
pub(super) const MAJOR: u32 = 7;
/// See [`MAJOR`].
pub(super) const MINOR: u32 = 40;
/// The node of the root directory.
pub(super) const ROOT: u64 = 1;

/// In [`TransferIn::transfer_flags`] of a write: the data comes from the kernel's page cache; the
/// process that changed it is unknown.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// In [`TransferIn::transfer_flags`] of a read or write: the request of a program is passed
/// through. Without it, the request fills or writes back a page of the kernel's page cache.
pub(super) const LOCKOWNER: u32 = 1 << 1;
/// In [`TransferIn::transfer_flags`] of a write: who writes may not keep the right of the file to
/// run as somebody else.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// In [`FsyncIn::flags`]: data alone.
pub(super) const FSYNC_DATA: u32 = 1 << 0;

/// The head of a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    /// Bytes of the request, this head included.
    pub(super) len: u32,
    pub(super) opcode: u32,
    /// Comes back in the reply.
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) total_extlen: u16,
    pub(super) padding: u16,
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    /// Bytes of the reply, this head included.
    pub(super) len: u32,
    /// 0, or an errno below it.
    pub(super) error: i32,
    pub(super) unique: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    pub(super) flags2: u32,
    pub(super) unused: [u32; 11],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitOut {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    /// Requests that nobody waits for, at a time.
    pub(super) max_background: u16,
    /// Of them, when the kernel holds back who makes more.
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_gran: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) flags2: u32,
    /// How many file systems may lie on one another below files that the kernel uses by itself.
    pub(super) max_stack_depth: u32,
    pub(super) unused: [u32; 6],
}

/// Of a node, in attributes and entries.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    /// Of 512 bytes.
    pub(super) blocks: u64,
    pub(super) atime: u64,
    pub(super) mtime: u64,
    pub(super) ctime: u64,
    pub(super) atime_ns: u32,
    pub(super) mtime_ns: u32,
    pub(super) ctime_ns: u32,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) blksize: u32,
    pub(super) flags: u32,
}

/// Answers a lookup. The times say for how long the kernel may believe it: not at all.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) nodeid: u64,
    pub(super) generation: u64,
    pub(super) entry_valid: u64,
    pub(super) attr_valid: u64,
    pub(super) entry_valid_ns: u32,
    pub(super) attr_valid_ns: u32,
    pub(super) attr: Attr,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AttrOut {
    pub(super) valid: u64,
    pub(super) valid_ns: u32,
    pub(super) dummy: u32,
    pub(super) attr: Attr,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetattrIn {
    pub(super) valid: u32,
    pub(super) padding: u32,
    pub(super) fh: u64,
    pub(super) size: u64,
    pub(super) lock_owner: u64,
    pub(super) times: [u64; 3],
    pub(super) times_ns: [u32; 3],
    pub(super) mode: u32,
    pub(super) unused4: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) unused5: u32,
}

/// Of what is made under a name: a file, a directory (without a device), or one that is opened too.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MknodIn {
    pub(super) mode: u32,
    pub(super) rdev: u32,
    pub(super) umask: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MkdirIn {
    pub(super) mode: u32,
    pub(super) umask: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CreateIn {
    /// As open(2) has them.
    pub(super) flags: u32,
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) open_flags: u32,
}

/// Of a rename, of which the older form ends after the directory; both names follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RenameIn {
    pub(super) newdir: u64,
    /// As renameat2(2) has them.
    pub(super) flags: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LinkIn {
    pub(super) oldnodeid: u64,
}

/// Of an extended attribute that is set; name and value follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetxattrIn {
    pub(super) size: u32,
    /// As setxattr(2) has them.
    pub(super) flags: u32,
}

/// Of one or all extended attributes that are looked at, and the answer if `size` was 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct GetxattrIn {
    pub(super) size: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FsyncIn {
    pub(super) fh: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

/// Of a file or directory that is closed for good; what follows is of no interest here.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ReleaseIn {
    pub(super) fh: u64,
}

/// What access(2) asks about, as that has it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AccessIn {
    pub(super) mask: u32,
    pub(super) unused: u32,
}

/// How often a node that the kernel forgets was looked up.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ForgetIn {
    pub(super) nlookup: u64,
}

/// The head of several of these, each of which is a [`ForgetOne`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BatchForgetIn {
    pub(super) count: u32,
    pub(super) dummy: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ForgetOne {
    pub(super) nodeid: u64,
    pub(super) nlookup: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenIn {
    /// As open(2) has them.
    pub(super) flags: u32,
    pub(super) open_flags: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) fh: u64,
    pub(super) open_flags: u32,
    pub(super) backing_id: u32,
}

/// Of a read, of a file or directory, and the head of a write.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TransferIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) transfer_flags: u32,
    pub(super) lock_owner: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WriteOut {
    pub(super) size: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FallocateIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// As fallocate(2) has it.
    pub(super) mode: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LseekIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    /// As lseek(2) has it: only those for data and holes get here.
    pub(super) whence: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LseekOut {
    pub(super) offset: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatfsOut {
    /// Blocks, free, available; files, free.
    pub(super) counts: [u64; 5],
    pub(super) bsize: u32,
    pub(super) namelen: u32,
    pub(super) frsize: u32,
    pub(super) padding: u32,
    pub(super) spare: [u32; 6],
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatxTime {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    pub(super) reserved: i32,
}

/// Answers statx(2): as [`AttrOut`], with when the node was made.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatxOut {
    pub(super) valid: u64,
    pub(super) valid_ns: u32,
    pub(super) flags: u32,
    pub(super) spare: [u64; 2],
    /// What of the following is said, as statx(2) has it.
    pub(super) mask: u32,
    pub(super) blksize: u32,
    pub(super) attributes: u64,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
    pub(super) spare0: u16,
    pub(super) ino: u64,
    pub(super) size: u64,
    /// Of 512 bytes.
    pub(super) blocks: u64,
    pub(super) attributes_mask: u64,
    pub(super) atime: StatxTime,
    pub(super) btime: StatxTime,
    pub(super) ctime: StatxTime,
    pub(super) mtime: StatxTime,
    pub(super) rdev: [u32; 2],
    pub(super) dev: [u32; 2],
    pub(super) spare2: [u64; 14],
}

/// Of a node that has changed; bytes from `offset` on, or none if that is negative.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NotifyInodeOut {
    pub(super) node: u64,
    pub(super) offset: i64,
    pub(super) length: i64,
}

/// Of a name in a directory that leads elsewhere; the name follows, with a zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NotifyEntryOut {
    pub(super) directory: u64,
    pub(super) namelen: u32,
    pub(super) flags: u32,
}

/// Payload header of a prune notification; the node numbers follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NotifyPruneOut {
    pub(super) count: u32,
    pub(super) padding: u32,
    pub(super) spare: u64,
}

/// The head of an entry of a directory; the name follows, and zeros up to a multiple of eight.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    /// Where the next entry is.
    pub(super) off: u64,
    pub(super) namelen: u32,
    /// As the upper bits of a mode have it.
    pub(super) kind: u32,
}

/// Bytes of the head of a request.
pub(super) const IN_HEADER_BYTES: usize = size_of::<InHeader>();
/// Bytes before the payload of a write.
pub(super) const WRITE_HEAD_BYTES: usize = IN_HEADER_BYTES + size_of::<TransferIn>();

/// The start of `bytes` as a `T`, with zeros for what is missing.
pub(super) fn head_of<T: FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let len = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    value
}

/// The name at the start of `bytes`, which ends in a zero.
pub(super) fn name_of(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Returns whether the kernel expects no answer to a request.
pub(super) fn is_unanswered(code: u32) -> bool {
    matches!(code, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that `linux/fuse.h` of version 7.40 gives.
    #[test]
    fn layouts_are_as_long_as_the_kernels() {
        assert_eq!([IN_HEADER_BYTES, size_of::<OutHeader>()], [40, 16]);
        assert_eq!([size_of::<InitIn>(), size_of::<InitOut>()], [64, 64]);
        assert_eq!(
            [size_of::<Attr>(), size_of::<EntryOut>(), size_of::<AttrOut>()],
            [88, 128, 104]
        );
        assert_eq!(
            [size_of::<SetattrIn>(), size_of::<OpenIn>(), size_of::<OpenOut>()],
            [88, 8, 16]
        );
        assert_eq!([size_of::<TransferIn>(), WRITE_HEAD_BYTES, size_of::<WriteOut>()], [40, 80, 8]);
        assert_eq!(
            [size_of::<FallocateIn>(), size_of::<LseekIn>(), size_of::<LseekOut>()],
            [32, 24, 8]
        );
        assert_eq!([size_of::<StatfsOut>(), size_of::<Dirent>()], [80, 24]);
        assert_eq!(
            [size_of::<MknodIn>(), size_of::<MkdirIn>(), size_of::<CreateIn>()],
            [16, 8, 16]
        );
        assert_eq!([size_of::<RenameIn>(), size_of::<LinkIn>(), size_of::<FsyncIn>()], [16, 8, 16]);
        assert_eq!([size_of::<SetxattrIn>(), size_of::<GetxattrIn>()], [8, 8]);
        assert_eq!([size_of::<StatxTime>(), size_of::<StatxOut>()], [16, 288]);
        assert_eq!(
            [size_of::<NotifyInodeOut>(), size_of::<NotifyEntryOut>(), size_of::<NotifyPruneOut>()],
            [24, 16, 16]
        );
        assert_eq!([size_of::<BatchForgetIn>(), size_of::<ForgetOne>()], [8, 16]);
    }

    #[test]
    fn what_is_missing_is_zero_and_what_is_too_much_is_ignored() {
        let whole = OpenIn { flags: 0x0101_0101, open_flags: 0x0202_0202 };
        let short: OpenIn = head_of(&whole.as_bytes()[..6]);
        assert_eq!((short.flags, short.open_flags.count_ones()), (0x0101_0101, 2));
        let mut long = whole.as_bytes().to_vec();
        long.extend([7; 9]);
        let long: OpenIn = head_of(&long);
        assert_eq!((long.flags, long.open_flags), (0x0101_0101, 0x0202_0202));
        assert_eq!(head_of::<OpenIn>(&[]).flags, 0);
    }

    #[test]
    fn names_end_at_their_zero() {
        assert_eq!(name_of(b"disk\0rest"), b"disk");
        assert_eq!(name_of(b"disk"), b"disk");
        assert_eq!(name_of(b""), b"");
    }
}
