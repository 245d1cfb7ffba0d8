//! Renderings of the responses of a running server as text, and conclusions from its measurements.

mod curves;
mod findings;
mod path_users;
mod stats;
mod tables;
mod unwritten;
mod volumes;

pub use curves::{
    MemoryAdvice, REFERENCES_MIN, advise, advising_curve, advising_policy, curves_table,
    curves_to_text, decide, needed_memory,
};
pub use findings::{AutomaticAction, FINDINGS, VolumeFinding, describe};
pub use path_users::in_use;
pub use stats::{
    WATCH_COLUMNS_MAX, everything_table, failures_and_findings, heading, requests_table,
    stores_table,
};
pub use tables::{changes_table, dropped_table, files_table, pinned_table};
pub use unwritten::{unwritten_table, warnings};
pub use volumes::{notes, places_table, volumes_table};
