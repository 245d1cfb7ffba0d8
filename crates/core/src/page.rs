//! Pages: the table that maps blocks to frames, the state of frames, and containers of pages.

mod buckets;
mod chunked;
mod paging;
mod slab;
mod state;
mod table;
#[cfg(larder_shuttle)]
pub use table::schedules as table_schedules;

pub(crate) use chunked::ChunkedArray;
pub(crate) use paging::Paging;
pub(crate) use slab::Slab;
pub(crate) use state::FrameState;
pub(crate) use table::{BlockKey, BlockLookup, Table};

/// Scatters a number over 64 bits (the finalizer of `MurmurHash3`, Appleby 2011).
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// The identifier of a resident page within one policy; small, dense, reused.
pub type Slot = u32;
