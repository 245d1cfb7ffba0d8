//! Repeated trials of a workload, with verified starts and stated doubts.
//!
//! * [`Workload`]: the measured work. It prepares untimed, does one trial per call, and removes
//!   what it made.
//! * [`worker_pool`]: the threads of a trial, in phases with barriers between them.
//! * [`HostEnv`]: the operations on the machine that a run needs; the caller implements them.
//! * [`run_trials`]: trials from a cold or a warm start that is prepared and verified, repeated
//!   until the interval of the main series is small enough or the time is spent; with doubts.
//! * [`alternate`]: the same with several variants of the work, with alternating trials.
//! * [`Ranks`]: other processes that do the same work at the same time, in the same phases.
//! * [`probe`], [`postmark`], [`fileload`], [`server`], [`iozone`]: workloads.
//! * [`fragments`]: files for [`fileload`]; [`age`]: an aged file system.
//! * [`target`]: targets of block workloads: a path, an export, an engine in process.
//!
//! Invariants: no trial begins from another start than the one that its record states; nothing is
//! reported as verified that was not verified; however a run ends, the workload is called to remove
//! what it made. Nothing here reads the machine; only [`worker_pool`] starts threads. Times are
//! nanoseconds, sizes are bytes, shares are from 0 to 1.

pub mod age;
mod doubts;
mod error;
pub mod fileload;
pub mod fragments;
mod host_env;
pub mod iozone;
mod pace;
pub mod postmark;
pub mod probe;
mod ranks;
mod repeat;
mod run;
pub mod server;
pub mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod trial_runner;
pub mod worker_pool;
mod workload;

pub use error::BenchError;
pub use host_env::{CounterReadings, HostEnv, WorkloadResidency};
pub use larder_schema::run::Direction;
pub use larder_schema::run::trial::{Doubt, DoubtReason, Phase, Start};
pub use pace::SpeedRequirement;
pub use ranks::{Ranks, total};
pub use repeat::Plan;
pub use run::{AlternatingTrials, RunResult, Variant, alternate, run_trials};
pub use trial_runner::{Progress, Step};
pub use workload::{
    Outcome, OwnCache, Series, Space, StartState, TrialContext, WorkPart, Workload,
};
