//! The cache itself.
//!
//! No system calls, no threads of its own, no clock: core takes events (a request, an operation
//! that a store has done, the time) and returns actions (operations for a store, completions for a
//! front end). So the production cache and the simulator are the same code, and a crash can be
//! replayed from a seed.

#![forbid(unsafe_code)]

pub mod clock;
pub mod frames;
pub mod store;
pub mod units;
