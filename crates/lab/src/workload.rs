//! Workloads: who asks for what, and how answer times are judged.
//!
//! Sizes are bytes, times are nanoseconds.

pub mod fileload;
pub mod iozone;
pub mod postmark;
pub mod probe;
pub mod trial;
