//! Lists of what was resident, kept in files over a restart of the process; docs/FORMATS.md has the
//! bytes.
//!
//! A list says which blocks of a store were in the cache, the hottest part first, and which store
//! that was. Contents always come from the store, so a list that is wrong costs reads and nothing
//! else. Invariants: a list is replaced as a whole or not at all, whenever the process or the
//! machine ends; what is cut short or changed in any bit is refused; reading one takes memory that
//! the caller bounds.

mod file;
mod identity;

#[cfg(test)]
mod tests;

pub use file::{ListError, load, parse, save};
pub use identity::{Stale, StoreIdentity, StoreKind};
