//! The client against nbdkit, and against servers that do what they must not.

mod interop;
mod nbdkit;
mod scripted;
