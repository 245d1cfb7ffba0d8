//! The hit-ratio curve: hit ratio as a function of cache size, estimated from a sample of the
//! pages.
//!
//! * [`stack`]: LRU stack distances, the basis of every LRU curve;
//! * [`sampled`]: every size of LRU from a sample of fixed size, with error bars;
//! * [`miniature`]: other policies, from small caches over samples, with error bars;
//! * [`estimate`]: the points and error bars that the estimators share;
//! * `control`: the correction of samples by what is known of all pages, and its error.
//!
//! For a running volume:
//!
//! * [`tracker`]: the data kept per volume, and its size;
//! * `online`, `hit_weights`: the decayed LRU curve, with error bars;
//! * [`candidates`]: policies compared by miniature simulation;
//! * `policy_curve`: the curve of the current policy, by miniature simulation;
//! * [`choice`]: the policy that the user selects, which may be `auto`;
//! * [`auto`]: the decision which policy the volume is to have;
//! * [`report`]: the results as plain data, and the findings for the volume;
//! * `write_traffic`: recent write traffic of the volume;
//! * `sampler`: the choice of the sampled pages, and the references that shards collect of them.

pub mod auto;
mod bins;
pub mod candidates;
pub mod choice;
mod control;
pub mod estimate;
mod hit_weights;
pub(crate) mod locked_tracker;
pub mod miniature;
mod online;
mod policy_curve;
pub mod report;
mod sample_set;
pub mod sampled;
pub(crate) mod sampler;
pub mod stack;
pub mod tracker;
mod write_traffic;

#[cfg(test)]
pub(crate) mod testing;
