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
pub(crate) mod fuzzing;
mod jobs;
mod listen;
mod live_stream;
mod metrics;
mod request;
mod retention;
mod routes;
mod server;
mod strict_json;
mod token;

pub(crate) use listen::known_sockets;
pub(crate) use metrics::{MetricFamily, NT_COUNTERS, NtCounter, SESSION_FAMILIES, STATE_FAMILIES};
pub(crate) use server::Control;
pub(crate) use token::Token;

use crate::commands::serve::ServeArgs;
use crate::commands::serve::service::Service;
use anyhow::Result;
use larder_io::front::listen::Listener;
use std::sync::Arc;

/// Starts the control interface at the addresses of the arguments, or on the inherited socket.
pub(crate) fn start(
    arguments: &ServeArgs,
    inherited: Option<Listener>,
    service: &Arc<Service>,
) -> Result<Control> {
    let listeners = listen::open_listeners(arguments, inherited)?;
    server::start(listeners, service)
}
