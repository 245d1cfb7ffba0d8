//! Bytes of FUSE over io_uring: the headers of a ring entry, and the commands.
//!
//! Layouts and numbers are those of `linux/fuse.h` (7.42, Linux 6.14) and `linux/io_uring.h`; byte
//! order, offsets and lengths as in [`super::super::abi`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Registers a ring entry, into which the kernel can put a request.
pub(super) const REGISTER: u32 = 1;
/// Commits the reply of a ring entry, and returns the entry to the kernel.
pub(super) const COMMIT_AND_FETCH: u32 = 2;

/// Bytes for the header of a request or reply, and for the arguments of a request.
pub(super) const HEAD_BYTES: usize = 128;
/// Bytes of a command in a 128-byte submission.
pub(super) const COMMAND_BYTES: usize = 80;
/// Offset of the length in a submission.
pub(super) const SUBMISSION_LEN_AT: usize = 24;

/// Headers of a request or reply in a ring entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RequestHeader {
    /// An `InHeader`, or an `OutHeader`.
    pub(super) head: [u8; HEAD_BYTES],
    /// Arguments of a request: as many bytes as its length says.
    pub(super) operation: [u8; HEAD_BYTES],
    pub(super) flags: u64,
    /// Identifies the request in the commit.
    pub(super) commit_id: u64,
    /// Bytes of the payload, which is in the payload buffer of the entry.
    pub(super) payload_bytes: u32,
    pub(super) padding: u32,
    pub(super) reserved: u64,
}

/// Arguments of each command.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Command {
    pub(super) flags: u64,
    pub(super) commit_id: u64,
    pub(super) queue: u16,
    pub(super) padding: [u8; 6],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_reads_is_where_it_looks() {
        assert_eq!((size_of::<RequestHeader>(), size_of::<Command>()), (288, 24));
        assert_eq!(std::mem::offset_of!(RequestHeader, operation), 128);
        assert_eq!(std::mem::offset_of!(RequestHeader, payload_bytes), 272);
    }
}
