//! The server of `larder serve` and `larder mount`: settings, service, control interface, metrics
//! and warm restart. It runs in the process of its caller, without a command line.
//!
//! * [`settings`], [`config`], [`plan`]: the table of settings, the configuration file, and the
//!   checked settings of a server and its volumes;
//! * [`service`], [`run`]: a running server, and its life from the start to the stop;
//! * [`control`]: HTTP and JSON for `larder ctl`, and the metrics;
//! * [`output`]: messages, and files that are written completely or not at all.
//!
//! The text of an error is a verb phrase that follows "cannot".

#[macro_use]
mod messages;

mod changes;
pub mod client;
pub mod config;
pub mod control;
mod counters;
#[doc(hidden)]
pub mod fuzzing;
mod memory_return;
pub mod output;
pub mod plan;
mod record;
mod recording;
pub mod reload;
pub mod requests;
pub mod run;
pub mod runtime_directory;
pub mod service;
pub mod settings;
mod shared;
mod stores;
mod systemd;
pub mod value;
pub mod volume_plan;
pub mod volume_source;
mod warm;

pub use counters::value as counter_value;
pub use service::prepare;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also a poisoned one: each change behind a lock of this crate is one step, and a
/// request of the control interface that panics must not prevent a stop from writing all data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
