//! Limits on the length of requests, which the handshake agrees on with the kernel.

use larder_core::request::READ_PIECE_BYTES;

pub(super) const READ_BYTES_MAX: u32 = READ_PIECE_BYTES;
/// Maximum payload of a write: long enough to keep the cost per byte low, and short enough to be
/// parked while it waits.
pub(super) const WRITE_BYTES_MAX: u32 = 256 << 10;
