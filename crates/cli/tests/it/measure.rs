//! Tests of `larder size --measure`: its results, its refusals, and its cleanup.

mod ends;
mod refusals;
mod results;
mod rig;
