//! Tests of the command `larder bench matrix`: its output, its refusals, and its cleanup.

mod ends;
mod results;
mod rig;
