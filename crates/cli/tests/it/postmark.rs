//! Tests of the command `larder bench postmark`: its output, its refusals, and its cleanup.

mod ends;
mod refusals;
mod rig;
