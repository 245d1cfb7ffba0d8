//! The control interface of a server: HTTP and JSON on a unix socket for its owner, and on loopback
//! TCP for clients that present a token; docs/control.md.
//!
//! One dedicated thread runs its async runtime; the threads of the data path do not depend on it.
//! Invariants: the memory that a client can make the server use is bounded (connections, size and
//! duration of a request, bodies of responses); a slow client does not delay others; requests on
//! TCP are answered only with the token.

mod answers;
mod bodies;
mod connections;
mod curves;
pub mod fuzzing;
mod jobs;
mod listen;
mod live_stream;
mod metrics;
mod request;
mod retention;
mod routes;
mod server;
mod token;

pub use listen::known_sockets;
pub use metrics::{MetricFamily, NT_COUNTERS, NtCounter, SESSION_FAMILIES, STATE_FAMILIES};
pub use server::Control;
pub use token::Token;

use crate::service::Service;
use anyhow::Result;
use larder_io::front::listen::Listener;
use std::sync::Arc;

/// Starts the control interface at the addresses of the settings, or on the inherited socket.
///
/// # Errors
/// A socket cannot be opened.
pub fn start(service: &Arc<Service>, inherited: Option<Listener>) -> Result<Control> {
    let listeners = listen::open_listeners(service, inherited)?;
    server::start(listeners, service)
}
