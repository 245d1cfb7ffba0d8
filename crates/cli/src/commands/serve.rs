//! `larder serve`: volumes with a cache, over NBD, until the server is stopped.

use crate::args::{ServeSettings, VolumeSource};
use crate::progress::WritebackProgress;
use crate::signals::channel_of_signals;
use anyhow::{Result, bail};
use clap::Args;
use larder_io::reclaim;
use larder_server::plan::{Configuration, Plan};
use larder_server::reload::Reloader;
use larder_server::run::{Callbacks, run as run_server};
use larder_server::service::Service;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// [NAME=]PATH of a file, a block device, or an NBD address.
    ///
    /// A file, a block device, or an export of another NBD server by its address (schemes nbd,
    /// nbds, nbd+unix, nbds+unix), as [NAME=]PATH. The export name is NAME, else the file name
    /// without its extension.
    #[arg(required_unless_present = "config", value_name = "VOLUME",
          value_parser = VolumeSource::parse)]
    volumes: Vec<VolumeSource>,

    /// Read flags and volumes from this file as well.
    ///
    /// Flags and volumes of the command line override those of the file (docs/config.md). SIGHUP
    /// reads it again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: ServeSettings,
}

pub(crate) fn run(arguments: &ServeArgs) -> Result<()> {
    let mut reloader = Reloader::new(Configuration {
        volumes: arguments.volumes.clone(),
        assignments: arguments.settings.0.clone(),
        file: arguments.config.clone(),
        mount: None,
    })?;
    let (configuration, mut plan) = (reloader.configuration().clone(), reloader.plan().clone());
    reclaim::limit_heaps();
    // Threads started from here on inherit the memory reclaim settings of this thread.
    plan.server.lock |= larder_server::prepare(&plan.server)?;
    serve(&configuration, &plan, &mut |service| reloader.reload(service))
}

/// Mounts the directory of a configuration, and serves it.
pub(crate) fn run_mount(configuration: &Configuration) -> Result<()> {
    reclaim::limit_heaps();
    serve(configuration, &configuration.plan()?, &mut |_| {})
}

fn serve(
    configuration: &Configuration,
    plan: &Plan,
    reload: &mut dyn FnMut(&Service),
) -> Result<()> {
    let signals = channel_of_signals()?;
    let display = Mutex::new(None);
    let callbacks = Callbacks {
        reload,
        progress: &|state| {
            let mut display = display.lock().unwrap_or_else(PoisonError::into_inner);
            match state {
                Some(state) => {
                    display.get_or_insert_with(|| WritebackProgress::new("writing")).show(state);
                }
                None => display.take().into_iter().for_each(|mut display| display.finish()),
            }
        },
    };
    run_server(configuration, plan, (signals.sender(), signals.receiver()), callbacks)?;
    if let Some(error) = signals.error() {
        bail!("receive signals: {error}; the server was stopped as after SIGTERM");
    }
    Ok(())
}
