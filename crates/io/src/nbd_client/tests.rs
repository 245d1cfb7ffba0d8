//! The client against nbdkit, and against servers that violate the protocol.

mod hostile;
mod interop;
mod nbdkit;
mod scripted;
