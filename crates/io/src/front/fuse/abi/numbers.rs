//! Numbers of the protocol: opcodes, capabilities, open flags, attribute masks and notification
//! codes.

/// Opcodes of requests. Other opcodes get the reply `ENOSYS`, after which the kernel does not send
/// most of them again.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    /// From `SYMLINK` to `LINK`: requests that create, rename or remove names.
    pub(crate) const NAMES: std::ops::RangeInclusive<u32> = 6..=13;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// Capabilities of both sides, in [`InitIn`](super::InitIn) and [`InitOut`](super::InitOut).
pub(crate) mod capability {
    /// The kernel sends reads without waiting for one another.
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    /// Writes may be longer than 4 KiB.
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    /// The server applies the umask of the process that creates a file, since an ACL of the
    /// directory may replace it.
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    /// The kernel can request directory entries with their attributes,
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    /// and decides itself when it does.
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Asynchronous direct I/O stays asynchronous: a loop device has many requests in flight.
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups in one directory do not wait for one another.
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    /// ACLs are extended attributes, and the kernel enforces them.
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    /// Requests may be longer than 128 KiB.
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// The kernel may cache the targets of symbolic links.
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    /// The second word of capabilities is valid.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// Files that are opened with `DIRECT_IO` can be mapped.
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// The kernel can read and write backing files itself.
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
    /// File handles do not resolve; `name_to_handle_at(2)` fails (Linux 6.9).
    pub(crate) const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// The kernel can send requests through io_uring.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags in the reply to an open, in [`OpenOut`](super::OpenOut).
pub(crate) mod open_flag {
    /// The kernel does not cache pages of the file.
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    /// The kernel's pages of the file stay valid.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// The kernel sends no `FLUSH` when the file is closed: nothing can have been written.
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    /// Writes do not wait for one another.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel reads and writes the backing file of the reply itself.
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// Attributes to change, in [`SetattrIn`](super::SetattrIn).
pub(crate) mod attribute {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// Codes of notifications to the kernel, in [`OutHeader::error`](super::OutHeader).
pub(crate) mod notice {
    /// Invalidates the attributes and pages of a node.
    pub(crate) const INODE: i32 = 2;
    /// Invalidates a name in a directory.
    pub(crate) const ENTRY: i32 = 3;
    /// Prunes the dentries of nodes that no program uses (Linux 6.18).
    pub(crate) const PRUNE: i32 = 9;
}
