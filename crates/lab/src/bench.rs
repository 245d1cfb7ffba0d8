//! Repeated trials of a workload, with verified starts and stated doubts.
//!
//! * [`Workload`]: the measured work. It prepares untimed, does one trial per call, and removes
//!   what it made.
//! * [`worker_pool`]: the threads of a trial, in phases with barriers between them.
//! * [`HostEnv`]: the operations on the machine that a run needs; the caller implements them.
//! * [`run_trials`]: trials from a cold or a warm start that is prepared and verified, repeated
//!   until the interval of the main series is small enough or the time is spent; with doubts.
//! * [`Ranks`]: other processes that do the same work at the same time, in the same phases.
//! * [`play_parts`]: several workloads as one run, each with its own starts.
//! * [`play_by_turns`]: several variants of the same work, with alternating trials.
//! * [`probe`], [`postmark`], [`fileload`], [`server`]: workloads.
//! * [`held`]: locked files and directories of a run, and the removal of those of killed runs.
//! * [`target`]: targets of block workloads: a path, an export, an engine in process.
//!
//! Invariants: no trial begins from another start than the one that its record states; nothing is
//! reported as verified that was not verified; however a run ends, the workload is called to remove
//! what it made. Nothing here reads the machine; only [`worker_pool`] starts threads. Times are
//! nanoseconds, sizes are bytes, shares are from 0 to 1.

mod alternating;
mod barrier;
mod doubts;
mod error;
pub mod fileload;
pub mod held;
mod host_env;
pub mod iozone;
mod pace;
mod parts;
pub mod postmark;
pub mod probe;
mod ranks;
mod repeat;
pub mod server;
pub mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod trial_runner;
pub mod worker_pool;
mod workload;

pub use alternating::{AlternatingTrials, TrialVariant, TurnsProgress, play_by_turns};
pub use error::{BenchError, HostError};
pub use host_env::{Counted, Found, HostEnv};
pub use larder_schema::run::Direction;
pub use larder_schema::run::trial::{Doubt, DoubtReason, Phase, Start};
pub use pace::SameSpeed;
pub use parts::{InParts, PartsProgress, play_parts};
pub use ranks::{Ranks, total};
pub use repeat::Plan;
pub use trial_runner::{Progress, RunResult, Step, run_trials};
pub use workload::{Outcome, OwnCache, Series, Space, StartState, TrialContext, Workload};
