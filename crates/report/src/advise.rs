//! Recommendations from a hit-ratio curve: cache size, wasted memory, division among volumes.
//!
//! * [`regions`]: the steep, the useful and the flat part of a curve;
//! * [`scatter`]: the same parts by the differences between repeated runs;
//! * [`goal`]: the smallest size that reaches a target within a budget;
//! * [`stability`]: required sizes of the parts of a trace;
//! * [`divide`]: division of memory among volumes by marginal gain;
//! * [`page_size`]: the page size with the least cost for the store.
//!
//! Pure functions over data. Sizes are bytes; hit ratios are from 0 to 1. *Reachable* hits are
//! those of an infinite cache: all references except the first one of each page.

pub mod divide;
pub mod goal;
pub mod page_size;
pub mod regions;
pub mod scatter;
pub mod stability;
