//! Lists of resident blocks, kept in files across a restart of the process; docs/FORMATS.md
//! describes the format.
//!
//! A list names the blocks of a store that were in the cache, the hottest part first, and
//! identifies the store. Contents always come from the store, so a wrong list costs reads and
//! nothing else. Invariants: a list is replaced as a whole or not at all, whenever the process or
//! the machine ends; a list that is truncated, or changed in any bit, is refused; reading one takes
//! memory that the caller bounds.

mod file;
mod identity;

#[cfg(test)]
mod tests;

pub use file::{ListError, UnusableList, load, parse, save};
pub use identity::{StaleReason, StoreIdentity, StoreKind};
