//! Workloads: the requests of clients, and the evaluation of response times. No I/O here, except in
//! [`postmark`], whose original needs real files.
//!
//! Sizes are bytes, times are nanoseconds.

pub mod fileload;
pub mod postmark;
pub mod probe;
pub mod server;
pub mod trial;
