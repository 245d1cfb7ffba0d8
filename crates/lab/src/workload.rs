//! Workloads: who asks for what, and how answer times are judged. No I/O here, but for
//! [`postmark`], [`iozone`] and [`fragments`], which need real files.
//!
//! Sizes are bytes, times are nanoseconds.

pub mod fileload;
pub mod fragments;
pub mod iozone;
pub mod postmark;
pub mod probe;
pub mod server;
pub mod trial;
