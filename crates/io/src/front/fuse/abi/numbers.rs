//! Numbers of the protocol: opcodes, capabilities, open flags, attribute masks and notification
//! codes.

/// Opcodes of requests. Other opcodes get the reply `ENOSYS`, after which the kernel does not send
/// most of them again.
pub(in crate::front::fuse) mod opcode {
    pub(in crate::front::fuse) const LOOKUP: u32 = 1;
    pub(in crate::front::fuse) const FORGET: u32 = 2;
    pub(in crate::front::fuse) const GETATTR: u32 = 3;
    pub(in crate::front::fuse) const SETATTR: u32 = 4;
    pub(in crate::front::fuse) const READLINK: u32 = 5;
    /// From `SYMLINK` to `LINK`: requests that create, rename or remove names.
    pub(in crate::front::fuse) const NAMES: std::ops::RangeInclusive<u32> = 6..=13;
    pub(in crate::front::fuse) const SYMLINK: u32 = 6;
    pub(in crate::front::fuse) const MKNOD: u32 = 8;
    pub(in crate::front::fuse) const MKDIR: u32 = 9;
    pub(in crate::front::fuse) const UNLINK: u32 = 10;
    pub(in crate::front::fuse) const RMDIR: u32 = 11;
    pub(in crate::front::fuse) const RENAME: u32 = 12;
    pub(in crate::front::fuse) const LINK: u32 = 13;
    pub(in crate::front::fuse) const OPEN: u32 = 14;
    pub(in crate::front::fuse) const READ: u32 = 15;
    pub(in crate::front::fuse) const WRITE: u32 = 16;
    pub(in crate::front::fuse) const STATFS: u32 = 17;
    pub(in crate::front::fuse) const RELEASE: u32 = 18;
    pub(in crate::front::fuse) const FSYNC: u32 = 20;
    pub(in crate::front::fuse) const SETXATTR: u32 = 21;
    pub(in crate::front::fuse) const GETXATTR: u32 = 22;
    pub(in crate::front::fuse) const LISTXATTR: u32 = 23;
    pub(in crate::front::fuse) const REMOVEXATTR: u32 = 24;
    pub(in crate::front::fuse) const FLUSH: u32 = 25;
    pub(in crate::front::fuse) const INIT: u32 = 26;
    pub(in crate::front::fuse) const OPENDIR: u32 = 27;
    pub(in crate::front::fuse) const READDIR: u32 = 28;
    pub(in crate::front::fuse) const RELEASEDIR: u32 = 29;
    pub(in crate::front::fuse) const FSYNCDIR: u32 = 30;
    pub(in crate::front::fuse) const ACCESS: u32 = 34;
    pub(in crate::front::fuse) const CREATE: u32 = 35;
    pub(in crate::front::fuse) const INTERRUPT: u32 = 36;
    pub(in crate::front::fuse) const DESTROY: u32 = 38;
    pub(in crate::front::fuse) const BATCH_FORGET: u32 = 42;
    pub(in crate::front::fuse) const FALLOCATE: u32 = 43;
    pub(in crate::front::fuse) const READDIRPLUS: u32 = 44;
    pub(in crate::front::fuse) const RENAME2: u32 = 45;
    pub(in crate::front::fuse) const LSEEK: u32 = 46;
    pub(in crate::front::fuse) const SYNCFS: u32 = 50;
    pub(in crate::front::fuse) const TMPFILE: u32 = 51;
    pub(in crate::front::fuse) const STATX: u32 = 52;
}

/// Capabilities of both sides, in [`InitIn`](super::InitIn) and [`InitOut`](super::InitOut).
pub(in crate::front::fuse) mod capability {
    /// The kernel sends reads without waiting for one another.
    pub(in crate::front::fuse) const ASYNC_READ: u64 = 1 << 0;
    /// Writes may be longer than 4 KiB.
    pub(in crate::front::fuse) const BIG_WRITES: u64 = 1 << 5;
    /// The server applies the umask of the process that creates a file, since an ACL of the
    /// directory may replace it.
    pub(in crate::front::fuse) const DONT_MASK: u64 = 1 << 6;
    /// The kernel can request directory entries with their attributes,
    pub(in crate::front::fuse) const DO_READDIRPLUS: u64 = 1 << 13;
    /// and decides itself when it does.
    pub(in crate::front::fuse) const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Asynchronous direct I/O stays asynchronous: a loop device has many requests in flight.
    pub(in crate::front::fuse) const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups in one directory do not wait for one another.
    pub(in crate::front::fuse) const PARALLEL_DIROPS: u64 = 1 << 18;
    /// ACLs are extended attributes, and the kernel enforces them.
    pub(in crate::front::fuse) const POSIX_ACL: u64 = 1 << 20;
    /// Requests may be longer than 128 KiB.
    pub(in crate::front::fuse) const MAX_PAGES: u64 = 1 << 22;
    /// The kernel may cache the targets of symbolic links.
    pub(in crate::front::fuse) const CACHE_SYMLINKS: u64 = 1 << 23;
    /// The second word of capabilities is valid.
    pub(in crate::front::fuse) const INIT_EXT: u64 = 1 << 30;
    /// Files that are opened with `DIRECT_IO` can be mapped.
    pub(in crate::front::fuse) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// The kernel can read and write backing files itself.
    pub(in crate::front::fuse) const PASSTHROUGH: u64 = 1 << 37;
    /// File handles do not resolve; `name_to_handle_at(2)` fails (Linux 6.9).
    pub(in crate::front::fuse) const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// The kernel can send requests through io_uring.
    pub(in crate::front::fuse) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags in the reply to an open, in [`OpenOut`](super::OpenOut).
pub(in crate::front::fuse) mod open_flag {
    /// The kernel does not cache pages of the file.
    pub(in crate::front::fuse) const DIRECT_IO: u32 = 1 << 0;
    /// The kernel's pages of the file stay valid.
    pub(in crate::front::fuse) const KEEP_CACHE: u32 = 1 << 1;
    /// The kernel sends no `FLUSH` when the file is closed: nothing can have been written.
    pub(in crate::front::fuse) const NOFLUSH: u32 = 1 << 5;
    /// Writes do not wait for one another.
    pub(in crate::front::fuse) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel reads and writes the backing file of the reply itself.
    pub(in crate::front::fuse) const PASSTHROUGH: u32 = 1 << 7;
}

/// Attributes to change, in [`SetattrIn`](super::SetattrIn).
pub(in crate::front::fuse) mod attribute {
    pub(in crate::front::fuse) const MODE: u32 = 1 << 0;
    pub(in crate::front::fuse) const UID: u32 = 1 << 1;
    pub(in crate::front::fuse) const GID: u32 = 1 << 2;
    pub(in crate::front::fuse) const SIZE: u32 = 1 << 3;
    pub(in crate::front::fuse) const ATIME: u32 = 1 << 4;
    pub(in crate::front::fuse) const MTIME: u32 = 1 << 5;
    pub(in crate::front::fuse) const ATIME_NOW: u32 = 1 << 7;
    pub(in crate::front::fuse) const MTIME_NOW: u32 = 1 << 8;
}

/// Codes of notifications to the kernel, in [`OutHeader::error`](super::OutHeader).
pub(in crate::front::fuse) mod notice {
    /// Invalidates the attributes and pages of a node.
    pub(in crate::front::fuse) const INODE: i32 = 2;
    /// Invalidates a name in a directory.
    pub(in crate::front::fuse) const ENTRY: i32 = 3;
    /// Prunes the dentries of nodes that no program uses (Linux 6.18).
    pub(in crate::front::fuse) const PRUNE: i32 = 9;
}
