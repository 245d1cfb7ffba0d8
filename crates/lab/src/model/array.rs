//! Arrays of modeled devices: linear, and RAID levels 0, 1, 5, 6 and 10.

mod layout;
mod level;
mod parity;
mod store;
#[cfg(test)]
mod tests;

pub use layout::ArrayLayout;
pub use level::ArrayLevel;
pub use store::ArrayStore;
