//! Arrays of modeled devices: linear, and RAID levels 0, 1, 5, 6 and 10.

mod layout;
mod level;
mod members;
mod parity;
mod rebuild;
mod store;
#[cfg(test)]
mod tests;

pub use layout::ArrayLayout;
pub use level::ArrayLevel;
pub use members::MemberSet;
pub use store::ArrayStore;
