//! `larder model serve`: a file as an NBD export that answers in the times of a model.
//!
//! A thread for each connection receives requests and submits them to the model, which shares one
//! clock for all connections; a second thread sends the replies. A write is in the file before its
//! time in the model is over, and a read is done afterwards, both through the page cache, so the
//! file must be in memory for exact times. At most [`CONNECTIONS_MAX`] connections with
//! [`REQUESTS_MAX`] requests each; a client with more of them waits.

mod connection;
mod device;

use crate::commands::store_model;
use crate::signals::Stop;
use anyhow::{Context, Result};
use clap::Args;
use connection::serve_client;
use device::ModeledDevice;
use larder_io::front::listen::Listener;
use larder_io::front::nbd::ListenAddress;
use larder_io::store::open_file;
use larder_lab::model::StoreSpec;
use larder_report::escape;
use larder_schema::format;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of requests in flight on a connection.
const REQUESTS_MAX: usize = 64;
/// Time between two looks at the signals, nanoseconds.
const POLL_NS: i64 = 100_000_000;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Model of the device, as for --store of larder sim.
    #[arg(value_name = "MODEL", value_parser = store_model::parse)]
    model: StoreSpec,

    /// File with the data of the device.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Unix socket to listen on: unix:PATH.
    #[arg(long, value_name = "ADDRESS", value_parser = socket)]
    listen: PathBuf,
}

/// Parses the address of a unix socket.
fn socket(text: &str) -> Result<PathBuf, String> {
    match larder_server::value::listen(text)? {
        ListenAddress::Unix(path) => Ok(path),
        ListenAddress::Tcp(_) => {
            Err("a modeled device has only unix sockets; write unix:PATH".into())
        }
    }
}

pub(super) fn run(arguments: &ServeArgs) -> Result<()> {
    let model = store_model::of(&arguments.model)?;
    let name = escape::path(&arguments.file);
    let opened = open_file(&arguments.file, false)?;
    // A second open could open another file that has replaced it.
    let file = opened.buffered().with_context(|| format!("open {name}"))?;
    let device = Arc::new(ModeledDevice::new(&model, opened.geometry, file));
    let listener = Listener::bind(&ListenAddress::Unix(arguments.listen.clone()))?;
    let stop = Stop::listen()?;
    let timer = Arc::clone(&device);
    std::thread::spawn(move || timer.run());
    let (bytes, socket) = (format::bytes(opened.geometry.length), escape::path(&arguments.listen));
    let mut out = crate::output::stdout();
    writeln!(out, "serving {} ({bytes}) at nbd+unix:///?socket={socket}", model.name())?;
    out.flush()?;
    drop(out);
    accept_until_stopped(&listener, &device, &stop).context("accept connections")?;
    device.sync().with_context(|| format!("sync {name}"))
}

/// Accepts connections until a signal arrives.
fn accept_until_stopped(
    listener: &Listener,
    device: &Arc<ModeledDevice>,
    stop: &Stop,
) -> io::Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    while !stop.flag().load(Ordering::Acquire) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_NS };
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let Ok(socket) = rustix::net::accept(listener) else { continue };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (device, open) = (Arc::clone(device), Arc::clone(&open));
        std::thread::spawn(move || {
            // The client sees the end of its connection.
            if let Err(error) = serve_client(&UnixStream::from(socket), &device) {
                tracing::debug!(%error, "a connection has ended");
            }
            open.fetch_sub(1, Ordering::AcqRel);
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
