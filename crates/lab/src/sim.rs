//! The simulator: what a cache would have done with a trace, without its data.
//!
//! * [`references`]: requests taken apart into references, one page touched by one request;
//! * [`replace`]: replacement only, the policies of the engine over those references;
//! * [`sweep`]: many of them in one pass over the trace;
//! * [`min`]: the least misses that are possible;
//! * [`whole`]: the whole cache on a virtual clock;
//! * [`curve`]: hit ratio over size, exact or sampled;
//! * [`sizing`]: how much cache a trace needs, out of all of these.
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
