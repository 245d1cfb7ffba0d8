//! Bytes of the FUSE protocol, version 7: headers of requests and replies, and their payloads.
//!
//! Layouts are those of `linux/fuse.h`. All numbers are in native byte order; offsets and lengths
//! are in bytes. Shorter structures of older kernels are read as if zeros followed; unknown fields
//! at the end of longer structures of newer kernels are ignored.

mod numbers;

pub(super) use numbers::{attribute, capability, notice, opcode, open_flag};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version of this server; a kernel with a larger minor number falls back to this one.
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
/// In [`TransferIn::transfer_flags`] of a write: the writer must not keep the setuid and setgid
/// bits of the file.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// In [`FsyncIn::flags`]: sync only the data, as fdatasync(2).
pub(super) const FSYNC_DATA: u32 = 1 << 0;

/// Header of a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    /// Bytes of the request, including this header.
    pub(super) len: u32,
    pub(super) opcode: u32,
    /// Repeated in the reply.
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) total_extlen: u16,
    pub(super) padding: u16,
}

/// Header of a reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    /// Bytes of the reply, including this header.
    pub(super) len: u32,
    /// 0, or a negative errno.
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
    /// Maximum number of background requests.
    pub(super) max_background: u16,
    /// Number of background requests at which the kernel throttles the processes that cause more.
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_gran: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) flags2: u32,
    /// Maximum depth of stacked file systems below the backing files of passthrough.
    pub(super) max_stack_depth: u32,
    pub(super) unused: [u32; 6],
}

/// Attributes of a node, in replies for attributes and entries.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    /// In units of 512 bytes.
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

/// Reply to a lookup. The times are the periods for which the kernel may cache the entry and the
/// attributes.
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

/// Arguments of a request that creates a node: `mknod`. For `mkdir` and `create` see [`MkdirIn`]
/// and [`CreateIn`].
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
    /// Flags of open(2).
    pub(super) flags: u32,
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) open_flags: u32,
}

/// Arguments of a rename; those of the older opcode end after the directory. Both names follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RenameIn {
    pub(super) newdir: u64,
    /// Flags of renameat2(2).
    pub(super) flags: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LinkIn {
    pub(super) oldnodeid: u64,
}

/// Arguments of a request that sets an extended attribute; name and value follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetxattrIn {
    pub(super) size: u32,
    /// Flags of setxattr(2).
    pub(super) flags: u32,
}

/// Arguments of a request for one or all extended attributes, and the reply if `size` is 0.
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

/// Arguments of the last close of a file or directory; the fields that follow are not used here.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ReleaseIn {
    pub(super) fh: u64,
}

/// Arguments of access(2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AccessIn {
    pub(super) mask: u32,
    pub(super) unused: u32,
}

/// Arguments of a request that forgets a node: the number of lookups to forget.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ForgetIn {
    pub(super) nlookup: u64,
}

/// Header of several such requests, each of which is a [`ForgetOne`].
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
    /// Flags of open(2).
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

/// Arguments of a read of a file or directory, and of a write, whose data follows.
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
    /// Mode of fallocate(2).
    pub(super) mode: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LseekIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    /// As in lseek(2): the kernel sends only `SEEK_DATA` and `SEEK_HOLE`.
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

/// Reply to statx(2): as [`AttrOut`], with the creation time.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatxOut {
    pub(super) valid: u64,
    pub(super) valid_ns: u32,
    pub(super) flags: u32,
    pub(super) spare: [u64; 2],
    /// Mask of the valid fields, as in statx(2).
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
    /// In units of 512 bytes.
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

/// Payload of a notification that invalidates a node: its attributes, and its pages from `offset`
/// on, or no pages if that is negative.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NotifyInodeOut {
    pub(super) node: u64,
    pub(super) offset: i64,
    pub(super) length: i64,
}

/// Payload header of a notification that invalidates a name in a directory; the name follows, with
/// a zero byte.
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

/// Header of a directory entry; the name follows, and zeros up to a multiple of eight.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    /// Offset of the next entry.
    pub(super) off: u64,
    pub(super) namelen: u32,
    /// File type, as in the upper bits of a mode.
    pub(super) kind: u32,
}

/// Bytes of the header of a request.
pub(super) const IN_HEADER_BYTES: usize = size_of::<InHeader>();
/// Bytes before the payload of a write.
pub(super) const WRITE_HEAD_BYTES: usize = IN_HEADER_BYTES + size_of::<TransferIn>();

/// Returns the start of `bytes` as a `T`, with zeros for missing bytes.
pub(super) fn head_of<T: FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let len = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    value
}

/// Returns the name at the start of `bytes`, which ends at a zero byte.
pub(super) fn name_of(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Returns true if the kernel expects no reply to a request.
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
