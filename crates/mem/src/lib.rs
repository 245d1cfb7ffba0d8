//! The memory of a cache: one arena of 4 KiB frames, with a latch for each.
//!
//! This is the only crate with `unsafe` code for memory. Its guarantees for the other crates:
//!
//! * A frame is pinned ([`Pin`]) or write-pinned ([`WritePin`]), never both, and taking a pin never
//!   blocks. While a pin exists the bytes do not change; while a write pin exists no other thread
//!   reads them.
//! * A pin of either kind is a token without a lifetime, so that it can accompany an operation of
//!   the kernel. A lost token makes the frame unusable, but does not violate memory safety; a debug
//!   build panics where a token is lost.
//! * The construction of an arena touches none of its frames: a frame takes memory when it is first
//!   written, in steps of 4 KiB, or of 2 MiB where the kernel grants huge pages.
//! * The memory of an arena never exceeds its frames plus [`Arena::metadata_bytes_per_frame`] each.
//!
//! The entry point is [`Arena::new`]; [`Latches`] is the same protocol without memory, separate so
//! that loom can explore it. [`HugeAllocator`] is for the other tables of a program. All sizes are
//! in bytes unless a name says frames.

#![expect(unsafe_code, reason = "the latch protocol guards the memory of frames")]

mod allocator;
mod arena;
mod error;
mod latch;
mod map;
mod pin;
mod prefetch;
mod sync;

pub use allocator::{HugeAllocator, map_large_pieces, populate_large_pieces};
pub use arena::{Arena, ArenaOptions};
pub use error::ArenaError;
pub use latch::Latches;
pub use pin::{Pin, WritePin, lost_write_pin_in_panic};
pub use prefetch::{fetch, fetch_to_change};

/// Bytes in a frame. The design of the cache depends on this number; it is not a setting.
pub const FRAME_BYTES: usize = 4096;

/// The maximum number of frames of an arena: 4 TiB. Far above any target machine, and low enough
/// that a mistyped size is rejected before its latches are allocated.
pub const FRAMES_MAX: u32 = 1 << 30;
