//! Bytes of the FUSE protocol, version 7: headers of requests and replies, and their payloads.
//!
//! Layouts are those of `linux/fuse.h`. All numbers are in native byte order; offsets and lengths
//! are in bytes. Shorter structures of older kernels are read as if zeros followed; unknown fields
//! at the end of longer structures of newer kernels are ignored.

mod numbers;

pub(super) use numbers::{attribute, capability, notice, opcode, open_flag};

use larder_core::request::READ_PIECE_BYTES;
use rustix::io::Errno;
use std::ffi::CStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version of this server; a kernel with a larger minor number falls back to this one.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 40;
/// The node of the root directory.
pub(super) const ROOT: u64 = 1;

/// Maximum length of a read in bytes.
pub(super) const READ_BYTES_MAX: u32 = READ_PIECE_BYTES;
/// Maximum payload of a write: long enough to keep the cost per byte low, and short enough to be
/// parked while it waits.
pub(super) const WRITE_BYTES_MAX: u32 = 256 << 10;

/// In [`TransferIn::transfer_flags`] of a write: the data comes from the kernel's page cache; the
/// process that changed it is unknown.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// In [`TransferIn::transfer_flags`] of a read or write: the request of a program is passed
/// through. Without it, the request fills or writes back a page of the kernel's page cache.
pub(super) const LOCKOWNER: u32 = 1 << 1;
/// In [`TransferIn::transfer_flags`] of a write: the writer must not keep the setuid and setgid
/// bits of the file.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// In [`TransferIn::flags`], flags of open(2) with which a write must be on stable storage when it
/// returns.
pub(super) const SYNCHRONOUS: u32 = (libc::O_DSYNC | libc::O_SYNC).cast_unsigned();
/// In [`FsyncIn::flags`]: sync only the data, as fdatasync(2).
pub(super) const FSYNC_DATA: u32 = 1 << 0;

/// Defines structures of the protocol: their fields, in the order of the kernel's.
macro_rules! wire_structs {
    ($(
        $(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)? }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: $type),+ }
    )+};
}

wire_structs! {
    InHeader {
        /// Bytes of the request, including this header.
        len: u32,
        opcode: u32,
        /// Repeated in the reply.
        unique: u64,
        nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }

    /// Header of a reply or a notification.
    OutHeader {
        /// Bytes of the reply, including this header.
        len: u32,
        /// 0, or a negative errno.
        error: i32,
        unique: u64,
    }

    InitIn {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }

    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        /// Maximum number of background requests.
        max_background: u16,
        /// Number of background requests at which the kernel throttles their processes.
        congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32,
        /// Maximum depth of stacked file systems below the backing files of passthrough.
        max_stack_depth: u32,
        unused: [u32; 6],
    }

    /// Attributes of a node, in replies for attributes and entries.
    Attr {
        ino: u64, size: u64,
        /// In units of 512 bytes.
        blocks: u64,
        atime: u64, mtime: u64, ctime: u64, atime_ns: u32, mtime_ns: u32, ctime_ns: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }

    /// Reply to a lookup. The times are the periods for which the kernel may cache the entry and
    /// the attributes.
    EntryOut {
        nodeid: u64, generation: u64,
        entry_valid: u64, attr_valid: u64, entry_valid_ns: u32, attr_valid_ns: u32,
        attr: Attr,
    }

    AttrOut { valid: u64, valid_ns: u32, dummy: u32, attr: Attr }

    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        times: [u64; 3], times_ns: [u32; 3],
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }

    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }

    MkdirIn { mode: u32, umask: u32 }

    CreateIn {
        /// Flags of open(2).
        flags: u32,
        mode: u32, umask: u32, open_flags: u32,
    }

    /// Arguments of a rename; those of the older opcode end after the directory. Both names
    /// follow.
    RenameIn {
        newdir: u64,
        /// Flags of renameat2(2).
        flags: u32,
        padding: u32,
    }

    LinkIn { oldnodeid: u64 }

    /// Arguments of a request that sets an extended attribute; name and value follow.
    SetxattrIn {
        size: u32,
        /// Flags of setxattr(2).
        flags: u32,
    }

    /// Arguments of a request for one or all extended attributes, and the reply if `size` is 0.
    GetxattrIn { size: u32, padding: u32 }

    FsyncIn { fh: u64, flags: u32, padding: u32 }

    /// Arguments of the last close of a file or directory; further fields are not used here.
    ReleaseIn { fh: u64 }

    AccessIn { mask: u32, unused: u32 }

    /// Arguments of a request that forgets a node: the number of lookups to forget.
    ForgetIn { nlookup: u64 }

    /// Header of several such requests, each of which is a [`ForgetOne`].
    BatchForgetIn { count: u32, dummy: u32 }

    ForgetOne { nodeid: u64, nlookup: u64 }

    OpenIn {
        /// Flags of open(2).
        flags: u32,
        open_flags: u32,
    }

    OpenOut { fh: u64, open_flags: u32, backing_id: u32 }

    /// Arguments of a read of a file or directory, and of a write, whose data follows.
    TransferIn {
        fh: u64, offset: u64, size: u32, transfer_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }

    WriteOut { size: u32, padding: u32 }

    FallocateIn {
        fh: u64, offset: u64, length: u64,
        /// Mode of fallocate(2).
        mode: u32,
        padding: u32,
    }

    LseekIn {
        fh: u64, offset: u64,
        /// As in lseek(2): the kernel sends only `SEEK_DATA` and `SEEK_HOLE`.
        whence: u32,
        padding: u32,
    }

    LseekOut { offset: u64 }

    StatfsOut {
        /// Blocks, free, available; files, free.
        counts: [u64; 5],
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }

    /// Seconds since 1970, and nanoseconds.
    StatxTime { seconds: i64, nanos: u32, reserved: i32 }

    /// Reply to statx(2): as [`AttrOut`], with the creation time.
    StatxOut {
        valid: u64, valid_ns: u32, flags: u32, spare: [u64; 2],
        /// Mask of the valid fields, as in statx(2).
        mask: u32,
        blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64,
        /// In units of 512 bytes.
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev: [u32; 2], dev: [u32; 2], spare2: [u64; 14],
    }

    /// Payload of a notification that invalidates a node: its attributes, and its pages from
    /// `offset` on, or no pages if that is negative.
    NotifyInodeOut { node: u64, offset: i64, length: i64 }

    /// Payload header of a notification that invalidates a name in a directory; the name follows,
    /// with a zero byte.
    NotifyEntryOut { directory: u64, namelen: u32, flags: u32 }

    /// Payload header of a prune notification; the node numbers follow.
    NotifyPruneOut { count: u32, padding: u32, spare: u64 }

    /// Header of a directory entry; the name follows, and zeros up to a multiple of eight.
    Dirent {
        ino: u64,
        /// Offset of the next entry.
        off: u64,
        namelen: u32,
        /// File type, as in the upper bits of a mode.
        kind: u32,
    }

    /// Arguments of each command of a ring, in a 128-byte submission.
    RingCommand { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6] }
}

/// Headers of a request or reply in a ring entry (version 7.42, Linux 6.14).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RingHeader {
    /// An `InHeader`, or an `OutHeader`.
    pub(super) head: [u8; 128],
    /// Arguments of a request: as many bytes as its length says.
    pub(super) operation: [u8; 128],
    pub(super) flags: u64,
    /// Identifies the request in the commit.
    pub(super) commit_id: u64,
    /// Bytes of the payload, which is in the payload buffer of the entry.
    pub(super) payload_bytes: u32,
    pub(super) padding: u32,
    pub(super) reserved: u64,
}

impl Dirent {
    /// Returns the bytes that an entry of this name takes in a listing.
    pub(super) fn len(name: &[u8]) -> usize {
        (size_of::<Dirent>() + name.len()).next_multiple_of(8)
    }

    /// Appends an entry to a listing; see the fields for `off` and `kind`.
    pub(super) fn push(listing: &mut Vec<u8>, ino: u64, off: u64, kind: u32, name: &[u8]) {
        let end = listing.len() + Dirent::len(name);
        let namelen = u32::try_from(name.len()).expect("at most 255");
        listing.extend_from_slice(Dirent { ino, off, namelen, kind }.as_bytes());
        listing.extend_from_slice(name);
        listing.resize(end, 0);
    }
}

impl OutHeader {
    /// Returns the header of a message with a body of `body_len` bytes. `error`: 0, a negative
    /// errno, or the code of a notification.
    pub(super) fn new(unique: u64, error: i32, body_len: usize) -> Self {
        let len = u32::try_from(size_of::<OutHeader>() + body_len).expect("at most 1 MiB");
        OutHeader { len, error, unique }
    }
}

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
pub(super) fn parse_name(bytes: &[u8]) -> Result<&CStr, Errno> {
    CStr::from_bytes_until_nul(bytes).map_err(|_unterminated| Errno::INVAL)
}

/// Returns two consecutive names.
pub(super) fn parse_two_names(bytes: &[u8]) -> Result<(&CStr, &CStr), Errno> {
    let first = parse_name(bytes)?;
    let second = parse_name(bytes.get(first.count_bytes() + 1..).unwrap_or_default())?;
    Ok((first, second))
}

/// Returns the bytes after the arguments of a request, which are a `T`.
pub(super) fn bytes_after<T>(body: &[u8]) -> &[u8] {
    body.get(size_of::<T>()..).unwrap_or_default()
}

/// Returns the arguments of a request, and the name that follows them.
pub(super) fn parse_with_name<T: FromBytes + IntoBytes>(body: &[u8]) -> Result<(T, &CStr), Errno> {
    Ok((head_of(body), parse_name(bytes_after::<T>(body))?))
}

/// Returns true if the kernel expects no reply to a request.
pub(super) fn is_unanswered(code: u32) -> bool {
    matches!(code, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT)
}

/// Returns true if a process waits for the reply to a request.
pub(super) fn is_awaited(code: u32) -> bool {
    !is_unanswered(code) && !matches!(code, opcode::RELEASE | opcode::RELEASEDIR)
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
        assert_eq!([size_of::<RingHeader>(), size_of::<RingCommand>()], [288, 24]);
        assert_eq!(std::mem::offset_of!(RingHeader, operation), 128);
        assert_eq!(std::mem::offset_of!(RingHeader, payload_bytes), 272);
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
        assert_eq!(parse_name(b"disk\0rest"), Ok(c"disk"));
        assert_eq!([parse_name(b"disk"), parse_name(b"")], [Err(Errno::INVAL); 2]);
    }
}
