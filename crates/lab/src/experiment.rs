//! Published experiments, repeated in virtual time on modeled machines.

pub mod fileload_1999;
pub mod probe;
mod published;
pub mod raid_1999;
pub mod swap;
mod users;
