//! Requests in flight, and the pieces into which front ends split them.

mod budget;
mod handle;
mod operation;
mod session;
#[cfg(test)]
mod tests;

pub use crate::message::{
    Event, ImmediateReply, Prefetch, Reply, Request, RequestId, RequestOp, Submitted, Then,
};
pub use crate::payload::{Park, Payload, ZeroPayload};
pub use crate::read_write::ReadRequest;
pub use budget::{Budget, BudgetUsage, PoolUsage, SessionLimit};
pub use session::Session;

pub(crate) use crate::read_write::{ReadPurpose, Status, WriteRequest};

use crate::units::BLOCK_BYTES_U64;
use std::ops::Range;

/// Bytes of a piece of a read, which front ends pin at a time for one request: 1 MiB.
pub const READ_PIECE_BYTES: u32 = 1 << 20;
/// Bytes of a piece of a write, which front ends receive at a time: 64 KiB. All pieces except the
/// last end at a block boundary, so only the ends of the write itself are unaligned.
pub const WRITE_PIECE_BYTES: u32 = 64 << 10;
/// Bytes of a piece of a write in a session without a lease for more: 16 KiB.
pub const SMALL_WRITE_PIECE_BYTES: u32 = 16 << 10;

/// Returns the first piece of a write. It has at most `bytes_max` bytes, which must be a multiple
/// of the block size. All pieces except the last end at a block boundary.
#[must_use]
pub fn next_write_piece(bytes: &Range<u64>, bytes_max: u32) -> Range<u64> {
    let ragged = bytes.start % BLOCK_BYTES_U64;
    bytes.start..bytes.end.min(bytes.start + u64::from(bytes_max) - ragged)
}
