//! Bytes of FUSE over io_uring: what lies where a request is handed over, and the commands.
//!
//! Layouts and numbers are those of `linux/fuse.h` (7.42, Linux 6.14) and `linux/io_uring.h`; byte
//! order, offsets and lengths as in [`super::super::abi`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Hands over a place where a request can be put.
pub(super) const REGISTER: u32 = 1;
/// Answers the request of a place, and hands the place over again.
pub(super) const COMMIT_AND_FETCH: u32 = 2;

/// Bytes for the head of a request or answer, and for what is behind the head of a request in a
/// form of its own.
pub(super) const HEAD_BYTES: usize = 128;
/// Bytes of a command of the larger kind.
pub(super) const COMMAND_BYTES: usize = 80;
/// Where the length is in a submission.
pub(super) const SUBMISSION_LEN_AT: usize = 24;

/// The heads of a request or answer, at a place.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RequestHeader {
    /// An `InHeader`, or an `OutHeader`.
    pub(super) head: [u8; HEAD_BYTES],
    /// What comes next in a request: as many bytes as its length says.
    pub(super) operation: [u8; HEAD_BYTES],
    pub(super) flags: u64,
    /// By which the answer is known.
    pub(super) commit_id: u64,
    /// Bytes of the rest, which are in the other part of the place.
    pub(super) payload_bytes: u32,
    pub(super) padding: u32,
    pub(super) reserved: u64,
}

/// What goes with each command.
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
