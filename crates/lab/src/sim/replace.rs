//! Replacement only: the simulator's name for [`larder_core::replace`].

pub use larder_core::replace::*;

#[cfg(test)]
mod tests;
