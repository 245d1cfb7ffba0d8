//! Helpers that tests of several crates share: reports of skipped tests, claims, test budgets, and
//! locks between test processes.
//!
//! A dev-dependency only: the product never contains it.

mod budget;
mod claim;
mod lock;
mod require;
mod resident;
mod skip;
mod trace;

pub use budget::{budget, is_long};
pub use claim::claim;
pub use lock::MachineLock;
pub use require::{can_mount, find_tool, has_tool, is_root};
pub use resident::stays_resident;
pub use skip::skip;
pub use trace::shared_trace;
