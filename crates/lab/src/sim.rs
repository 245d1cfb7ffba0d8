//! The simulator: hit ratios of a trace in simulated caches, without its data.
//!
//! * [`references`]: requests split into references, each of one page by one request;
//! * [`replace`]: replacement only, the policies of the engine over those references;
//! * [`auto`]: replacement only, under the policy that the engine's tracker selects;
//! * [`sweep`]: many caches in one pass over the trace;
//! * [`min`]: the minimum number of misses;
//! * [`engine`]: the whole cache on a virtual clock;
//! * [`curve`]: hit ratio over size, exact or sampled;
//! * [`sizing`]: the cache size that a trace needs, measured with all of these.
//!
//! Sizes are pages unless a name says bytes; hit ratios have no unit.

pub mod auto;
pub mod curve;
pub mod engine;
pub mod interner;
pub mod min;
pub mod references;
pub mod replace;
pub mod sizing;
pub mod sweep;

#[cfg(test)]
mod testing;
