//! The live view of `larder top`: data collection, sorting and filtering, and drawing.
//!
//! Invariants: the [`Collector`] returns a [`TopSnapshot`] with units on every value; the view
//! depends neither on the machine nor on a server, and drawing changes nothing. Data that requires
//! tracing is traced from the first time that its view is shown.

mod collector;
mod draw;
mod recording;
mod snapshot;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod uses;

pub(crate) use collector::Collector;
pub(crate) use draw::draw;
pub(crate) use recording::Recording;
pub(crate) use snapshot::{TopSnapshot, View};
pub(crate) use state::{State, ViewAction};
pub(crate) use terminal::{Input, LiveTerminal, wait_for_keys};
