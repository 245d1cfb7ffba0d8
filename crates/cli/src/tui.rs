//! The live view of `larder top`: what is looked at, how it is sorted and filtered, and how it is
//! drawn.
//!
//! Invariants: whoever looks ([`Collector`]) hands out a [`TopSnapshot`] with units on every value; the view
//! knows neither the machine nor a server, and drawing changes nothing. What is only to be had by
//! tracing is traced from the moment on when its view is first shown.

mod collector;
mod draw;
mod recording;
mod snapshot;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod uses;

pub(crate) use collector::Procfs;
pub(crate) use draw::draw;
pub(crate) use recording::Recording;
pub(crate) use snapshot::{Collector, TopSnapshot, View};
pub(crate) use state::{State, ViewAction};
pub(crate) use terminal::{Input, LiveTerminal, wait_for_keys};
