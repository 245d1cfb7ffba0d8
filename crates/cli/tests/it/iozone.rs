//! `larder bench iozone` from the outside: what it says, what it refuses, what it leaves.

mod documents;
mod ends;
mod grid;
mod refusals;
mod rig;
mod throughput;
