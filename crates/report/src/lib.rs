//! Reports: statistics, tables, charts and the file format of a recorded run.
//!
//! Invariants: pure functions over data. No function reads the machine, the clock or a file that
//! the caller has not opened; the caller fills in the known facts. Numbers keep the unit that their
//! names, columns or series state; no unit is converted silently.

#![forbid(unsafe_code)]

#[macro_use]
mod macros;

pub mod advise;
pub mod balance;
pub mod bottleneck;
pub mod chart;
pub mod compare;
pub mod control;
mod doubts;
pub mod escape;
pub mod experiment;
pub mod findings;
pub mod fragmentation;
pub mod host_counters;
pub mod lines;
pub mod measured;
pub mod openmetrics;
mod page;
pub mod perfmon;
mod quantity;
pub mod run;
mod setting;
mod share_bars;
pub mod sizing;
pub mod stats;
pub mod storage_advice;
pub mod system_activity;
mod system_errors;
pub mod table;
pub mod try_verdict;
pub mod watch;
