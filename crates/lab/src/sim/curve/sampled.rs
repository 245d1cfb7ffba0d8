//! Curves from samples: the simulator's name for [`larder_core::curve::sampled`].

pub use larder_core::curve::sampled::*;

#[cfg(test)]
mod tests;
