//! Tests of the command `larder try`: its output, what it refuses, and its cleanup.

mod ends;
mod refusals;
mod results;
mod rig;
