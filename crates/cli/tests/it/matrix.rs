//! Tests of the command `larder bench matrix`: its output, what it refuses, and its cleanup.

mod ends;
mod results;
mod rig;
