//! Miniature caches: the simulator's name for [`larder_core::curve::miniature`].

pub use larder_core::curve::miniature::*;

#[cfg(test)]
mod tests;
