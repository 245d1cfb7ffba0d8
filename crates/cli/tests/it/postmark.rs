//! Tests of the command `larder bench postmark`: its output, what it refuses, and its cleanup.

mod documents;
mod ends;
mod refusals;
mod rig;
