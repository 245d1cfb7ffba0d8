//! `serve --give-back`: returns memory to the system under memory pressure.

use larder_io::engine::{Engine, MemoryReturnOptions, MemoryReturnThread};
use larder_io::pressure::{Pressure, Psi};
use std::sync::Arc;

/// State of `--give-back`.
#[derive(Debug)]
pub(crate) enum MemoryReturn {
    /// A thread returns memory under pressure.
    Active(MemoryReturnThread),
    /// Unsupported here, with the reason, a verb phrase that follows "cannot". The server runs
    /// without it.
    Unavailable(String),
}

impl MemoryReturn {
    /// Starts the thread with this floor; reports a failure on standard error.
    pub(super) fn start(engine: &Arc<Engine>, floor_bytes: u64) -> Self {
        let started = Psi::open().map_err(|error| error.to_string()).and_then(|psi| {
            let psi: Box<dyn Pressure> = Box::new(psi);
            let options = MemoryReturnOptions::new(floor_bytes);
            let started = MemoryReturnThread::start(engine, options, psi);
            started.map_err(|error| format!("start a thread for giving memory back: {error}"))
        });
        match started {
            Ok(handle) => MemoryReturn::Active(handle),
            Err(error) => {
                eprintln!("larder: note: no memory is given back: cannot {error}");
                MemoryReturn::Unavailable(error)
            }
        }
    }
}
