//! The control interface of a server: HTTP and JSON on a unix socket for its owner, and on loopback
//! TCP for whoever shows a token; docs/control.md.
//!
//! One thread of its own with a runtime that knows no other; the threads of the data path know
//! nothing of it. Invariants: what a client can make the server hold is bounded (connections, the
//! size and the time of a request, bodies of responses); a slow client does not delay others;
//! requests on TCP are answered only with the token.

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
pub(crate) use metrics::{MetricFamily, OLD_NAMES, OldName, SESSION_FAMILIES, STATES};
pub(crate) use server::Control;
pub(crate) use token::Token;

use crate::commands::serve::Arguments;
use crate::commands::serve::service::Service;
use anyhow::Result;
use larder_io::front::listen::Listener;
use std::sync::Arc;

/// Starts to answer where the arguments say, or on the socket that was handed over.
pub(crate) fn start(
    arguments: &Arguments,
    handed_over: Option<Listener>,
    service: &Arc<Service>,
) -> Result<Control> {
    let doors = listen::doors(arguments, handed_over)?;
    server::start(doors, service)
}
