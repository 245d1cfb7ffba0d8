//! Renderings of a `larder watch` result, and the observation that it provides.

mod disks;
mod observation;
mod text;

pub use text::{interval_to_text, to_line, to_text};

#[cfg(test)]
mod tests;
