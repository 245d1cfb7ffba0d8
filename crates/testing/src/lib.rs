//! Helpers that tests of several crates share: reports of skipped tests, claims, test budgets,
//! locks between test processes, cleanup of changes to the machine, and hostile clients.
//!
//! The product never contains it: a dev-dependency of the crates, and a dependency of xtask.

mod budget;
mod claim;
mod cleanup;
pub mod hostile;
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
