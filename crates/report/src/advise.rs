//! Recommendations from a hit-ratio curve: cache size, wasted memory, division among volumes.
//!
//! * [`curve`]: hit ratio by size, with confidence intervals;
//! * [`regions`]: the steep, the useful and the flat part of a curve;
//! * [`goal`]: the smallest size that reaches a target within a budget;
//! * [`stability`]: required sizes of the parts of a trace;
//! * [`divide`]: division of memory among volumes by marginal gain;
//! * [`page_size`]: the page size with the least cost for the store.
//!
//! Pure functions over data. Sizes are bytes; hit ratios are from 0 to 1. *Reachable* hits are
//! those of an infinite cache: all references except the first one of each page.

pub mod curve;
pub mod divide;
pub mod goal;
pub mod page_size;
pub mod regions;
pub mod stability;

#[expect(clippy::cast_precision_loss, reason = "sizes and counts stay below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(crate) fn as_u64(value: f64) -> u64 {
    value.round() as u64
}
