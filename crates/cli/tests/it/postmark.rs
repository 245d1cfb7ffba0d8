//! `larder bench postmark` from the outside: what it says, what it refuses, what it leaves.

mod documents;
mod ends;
mod refusals;
mod rig;
