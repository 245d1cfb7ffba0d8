//! Tests of the command `larder try`: its output, its refusals, and its cleanup.

mod ends;
mod refusals;
mod results;
pub(crate) mod rig;
