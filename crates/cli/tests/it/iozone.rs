//! `larder bench iozone` from outside the program: output, refusals, and cleanup.

mod ends;
mod grid;
mod refusals;
mod rig;
mod tables;
mod throughput;
