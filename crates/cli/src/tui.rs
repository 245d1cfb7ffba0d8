//! The live view of `larder top`: what is looked at, how it is sorted and filtered, and how it is
//! drawn.
//!
//! Invariants: whoever looks ([`Eye`]) hands out a [`Picture`] with units on every value; the view
//! knows neither the machine nor a server, and drawing changes nothing. So another eye, such as one
//! that traces, needs no change here: it says which columns it has.

mod draw;
mod eye;
mod picture;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use draw::draw;
pub(crate) use eye::Procfs;
pub(crate) use picture::{Eye, Picture, View};
pub(crate) use state::{Act, State};
