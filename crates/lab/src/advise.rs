//! Advice on the storage below a cache: the RAID level, the chunk and the allocation unit, chosen
//! by running the traffic on the model of each.
//!
//! The traffic is a trace, or the rest of it behind a simulated cache, or it has the rates of
//! counters. A candidate is judged by its
//! requests per second with a constant number of requests in flight. Of the candidates that have
//! enough space and survive enough failures, the advised one is the fastest; of those within
//! [`larder_schema::storage_advice::TIE`] of it, the one with the most usable space.

mod allocation;
mod arrays;
mod load;
mod log;
mod order;
mod rules;
mod split;
mod traffic;
mod volumes;

pub use allocation::{UNITS, advise_unit};
pub use arrays::{ArrayNeeds, advise_array};
pub use load::MeanLoad;
pub use log::{LogVolume, advise_log, find_log};
pub use rules::{level_rule, log_rule, unit_rule};
pub use traffic::{DeviceRequest, Traffic, TrafficError};

/// Maximum requests of the traffic that are run on each candidate.
pub const SAMPLE: usize = 20_000;
