//! `larder try` from the outside: what it shows, what it refuses, what it leaves.

mod ends;
mod refusals;
mod results;
mod rig;
