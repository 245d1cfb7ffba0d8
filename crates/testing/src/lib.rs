//! Helpers that tests of several crates share: reports of skipped tests, claims, test budgets,
//! locks between test processes, and cleanup of changes to the machine.
//!
//! A dev-dependency only: the product never contains it.

mod budget;
mod claim;
mod cleanup;
mod lock;
mod require;
mod resident;
mod skip;
mod trace;

pub use budget::{budget, is_long};
pub use claim::claim;
pub use cleanup::Cleanup;
pub use lock::MachineLock;
pub use require::{can_mount, find_tool, has_tool, is_root};
pub use resident::stays_resident;
pub use skip::skip;
pub use trace::shared_trace;
