//! The hit-ratio curve: hit ratio as a function of cache size, estimated from a sample of the
//! pages.
//!
//! * [`stack`]: LRU stack distances, what all curves of LRU come from;
//! * [`sampled`]: every size of LRU from a sample of fixed size, with error bars;
//! * [`miniature`]: other policies from small caches over samples, with error bars;
//! * [`estimate`], [`index`]: what they have in common.
//!
//! Of a running volume:
//!
//! * [`tracker`]: what is kept, and how much of it;
//! * `online`, `tally`: the curve of LRU, aged, with error bars;
//! * [`candidates`]: policies side by side, in miniature;
//! * [`auto`]: which policy the volume should have;
//! * [`report`]: all of it as plain data, with what the volume suffers from;
//! * `traffic`: what it wrote lately;
//! * `gate`: which pages belong to the sample, and what shards note of them.

pub mod auto;
mod bins;
pub mod candidates;
pub mod estimate;
mod hit_weights;
pub mod index;
pub(crate) mod locked_tracker;
pub mod miniature;
mod online;
pub mod report;
mod sample_set;
pub mod sampled;
pub(crate) mod sampler;
pub mod stack;
pub mod tracker;
mod write_traffic;

#[cfg(test)]
pub(crate) mod testing;
