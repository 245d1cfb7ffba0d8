//! The client against nbdkit, and against servers that do what they must not.

mod hostile;
mod interop;
mod nbdkit;
mod scripted;
