//! The simulator: hit ratios of a trace in simulated caches, without its data.
//!
//! * [`references`]: requests split into references, each of one page by one request;
//! * [`sweep`]: many caches in one pass over the trace;
//! * [`auto_cache`]: a cache that chooses its policy;
//! * [`min`]: the minimum number of misses;
//! * [`engine`]: the whole cache on a virtual clock;
//! * [`curve`]: hit ratio of LRU over size;
//! * [`study`]: the simulations of `larder sim`, and their table;
//! * [`sharing`]: memory that two volumes share;
//! * [`sizing`]: the cache size that a trace needs, measured with all of these.
//!
//! Sizes are pages unless a name says bytes; hit ratios have no unit.

pub mod auto_cache;
pub mod curve;
pub mod engine;
pub mod interner;
pub mod min;
pub mod references;
pub mod sharing;
pub mod sizing;
pub mod study;
pub mod sweep;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
