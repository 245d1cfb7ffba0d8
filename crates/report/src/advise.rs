//! Advice from a hit-ratio curve: how much cache, where more is wasted, how to share it.
//!
//! * [`curve`]: hit ratio over size, with bars;
//! * [`regions`]: the steep, the useful and the flat part of a curve;
//! * [`goal`]: the smallest size that reaches a target within a budget;
//! * [`stability`]: whether the parts of a trace need the same size;
//! * [`divide`]: memory among volumes by marginal gain;
//! * [`page_size`]: which page size costs the store least.
//!
//! Pure functions over data. Sizes are bytes; hit ratios are shares from 0 to 1. *Reachable* are
//! the hits of a cache that holds everything: all references but the first ones of each page.

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
