//! `serve --give-back`: whether memory goes back to the system while that is short of it, or why it
//! cannot.

use larder_io::engine::{Engine, GiveBackOptions, GivingBack};
use larder_io::pressure::{Pressure, Psi};
use std::sync::Arc;

/// Giving back, where that was asked for.
#[derive(Debug)]
pub(crate) enum Giving {
    /// It is done when it has to be.
    On(GivingBack),
    /// It cannot be; a sentence that can follow "failed to". Everything else goes on.
    Impossible(String),
}

impl Giving {
    /// Begins, down to a floor; if that cannot be, it is said on standard error.
    pub(super) fn start(engine: &Arc<Engine>, floor_bytes: u64) -> Self {
        let started = Psi::open().map_err(|error| error.to_string()).and_then(|psi| {
            let psi: Box<dyn Pressure> = Box::new(psi);
            let options = GiveBackOptions::new(floor_bytes);
            let started = GivingBack::start(engine, options, psi);
            started.map_err(|error| format!("start a thread for giving memory back: {error}"))
        });
        match started {
            Ok(giving) => Giving::On(giving),
            Err(error) => {
                eprintln!("larder: note: no memory is given back: failed to {error}");
                Giving::Impossible(error)
            }
        }
    }
}
