//! Arrays of modeled devices: linear, and RAID levels 0, 1, 5, 6 and 10.

mod layout;
mod store;
#[cfg(test)]
mod tests;

pub use layout::{ArrayLayout, ArrayLevel};
pub use store::ArrayStore;
