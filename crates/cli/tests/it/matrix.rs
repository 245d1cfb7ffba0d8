//! `larder bench matrix` from the outside: what it shows, what it refuses, what it leaves.

mod ends;
mod results;
mod rig;
