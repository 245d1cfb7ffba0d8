//! The cache itself.
//!
//! No system calls, no threads of its own, no clock: core takes events (a request, an operation
//! that a store has done, the time) and returns actions (operations for a store, completions for a
//! front end). So the production cache and the simulator are the same code, and a crash can be
//! replayed from a seed.

#![forbid(unsafe_code)]

pub mod cache;
pub mod clock;
pub mod counters;
pub mod frames;
pub mod hint;
pub mod lane;
pub mod mode;
mod page;
pub mod policy;
mod pool;
mod queue;
mod readahead;
pub mod request;
pub mod settings;
mod shard;
pub mod store;
mod sync;
pub mod tunables;
pub mod units;
pub mod volume;
mod writeback;

pub use page::mix;
