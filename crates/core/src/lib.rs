//! The cache engine.
//!
//! The crate makes no system call, starts no thread and reads no clock: its inputs are client
//! requests, store completions and the current time. Its outputs are store operations and
//! completions for front ends. So the production cache and the simulator are the same code, and a
//! run can be replayed from a seed up to a crash.

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
mod message;
pub mod mode;
mod named;
mod page;
pub mod page_index;
mod payload;
pub mod pinned;
pub mod policy;
mod pool;
pub mod pressure;
mod queue;
mod read_write;
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
mod volume_options;
pub mod write_order;

#[cfg(larder_shuttle)]
pub use page::table_schedules;

pub use page::mix;
pub use sync::damage_seen;
