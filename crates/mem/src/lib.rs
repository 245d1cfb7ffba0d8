//! The memory of a cache: one arena of 4 KiB frames, with a latch for each.
//!
//! This is the only crate with `unsafe` about memory. What it promises to the rest:
//!
//! * A frame is held shared ([`Pin`]) or exclusively ([`WritePin`]), never both, and taking a hold never
//!   waits. While a pin lives nobody changes the bytes; while an own lives nobody else sees them.
//! * A hold is a token without a lifetime, so that it can travel with an operation that the kernel
//!   is doing. Losing one loses the frame, not memory safety; a debug build panics where it is
//!   lost.
//! * Making an arena touches none of its frames: memory is taken when a frame is first written. It
//!   is taken in 4 KiB steps, or in 2 MiB steps where the kernel grants huge pages.
//! * The memory of an arena never exceeds its frames plus [`Arena::metadata_bytes_per_frame`] each.
//!
//! The way in is [`Arena::new`]; [`Latches`] is the same protocol without memory behind it, apart
//! so that loom can explore it. [`HugeAllocator`] is for the tables beside it. All sizes are in
//! bytes unless a name says frames.

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

/// Bytes in a frame. The cache is built on this number; it is not a setting.
pub const FRAME_BYTES: usize = 4096;

/// The most frames that one arena has: 4 TiB. Far above any machine that this is for, and low
/// enough that a mistyped size is refused before the latches for it are allocated.
pub const FRAMES_MAX: u32 = 1 << 30;
