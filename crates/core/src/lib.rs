//! The cache itself.
//!
//! No system calls, no threads of its own, no clock: core takes events (a request, an operation
//! that a store has done, the time) and returns actions (operations for a store, completions for a
//! front end). So the production cache and the simulator are the same code, and a crash can be
//! replayed from a seed.

#![forbid(unsafe_code)]

pub mod cache;
pub mod clock;
pub mod completion;
pub mod counters;
pub mod curve;
pub mod frames;
pub mod hint;
pub mod input;
pub mod mapping;
pub mod mode;
mod page;
pub mod pinned;
pub mod policy;
mod pool;
pub mod pressure;
mod queue;
mod readahead;
pub mod replace;
pub mod request;
pub mod settings;
mod shard;
pub mod share;
pub mod store;
mod sync;
pub mod tunables;
pub mod units;
pub mod volume;
pub mod write_order;
mod writeback;

#[cfg(larder_shuttle)]
pub use page::table_schedules;

pub use page::mix;
pub use sync::damage_seen;
