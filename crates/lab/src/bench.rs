//! The player: it runs a workload again and again so that its numbers are true.
//!
//! * [`Workload`]: what is measured. It prepares untimed, does one trial per call, and removes what
//!   it made.
//! * [`crew`]: the threads of a trial, in phases with barriers between them.
//! * [`HostEnv`]: what the player must know of the machine; whoever runs it brings that along.
//! * [`play`]: trials from a cold or a warm start that was made and read back, repeated until the
//!   interval of the main series is small enough or the time is spent, with doubts said.
//! * [`Ranks`]: other processes that do the same together, in the same phases.
//! * [`play_parts`]: several workloads as one run, each with starts of its own.
//! * [`play_by_turns`]: several ways of doing the same work, trial by trial beside each other.
//! * [`probe`], [`postmark`], [`fileload`], [`server`]: workloads.
//! * [`held`]: what a run that was killed has left.
//! * [`target`]: what block workloads work on: a path, an export, an engine in process.
//!
//! Invariants: no trial begins from another start than the one that its record states; nothing that
//! the player did not see is reported as seen; whatever way a run ends, the workload is asked to
//! remove what it made. Nothing here reads the machine; threads are started by [`crew`] alone.
//! Times are nanoseconds, sizes are bytes, shares are from 0 to 1.

mod alternating;
mod barrier;
mod doubts;
mod error;
pub mod fileload;
pub mod held;
mod host_env;
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
pub use larder_report::run::Direction;
pub use larder_report::run::trial::{Doubt, DoubtReason, Phase, Start};
pub use pace::SameSpeed;
pub use parts::{InParts, PartsProgress, play_parts};
pub use ranks::{Ranks, total};
pub use repeat::Plan;
pub use trial_runner::{Progress, RunResult, Step, run_trials};
pub use workload::{Outcome, OwnCache, Series, Space, StartState, TrialContext, Workload};
