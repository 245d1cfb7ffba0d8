//! Options of a server, and limits on its clients.

use crate::front::observe::Observer;
use crate::nbd_wire as wire;
use crate::tls::{TlsMode, TlsServer};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Limits on clients.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum number of connections; the server closes further ones at once.
    pub connections_max: usize,
    /// Maximum length of one request in bytes; longer ones fail.
    pub request_bytes_max: u32,
    /// Maximum number of concurrent handshakes; a further client ends the oldest of them.
    pub handshakes_max: usize,
    /// Maximum duration of a handshake.
    pub handshake_time_max: Duration,
    /// Time after which the server disconnects a client that receives none of its queued replies;
    /// `None` for no limit.
    pub send_time_max: Option<Duration>,
}

impl Default for ServerLimits {
    /// 64 connections (each has a receive buffer of 24 KiB, or of 96 KiB in part from leased
    /// memory), 32 MiB a request as the protocol's default, 24 handshakes of at most ten seconds, a
    /// minute without progress.
    fn default() -> Self {
        ServerLimits {
            connections_max: 64,
            request_bytes_max: wire::DEFAULT_BLOCK_BYTES_MAX,
            handshakes_max: 24,
            handshake_time_max: Duration::from_secs(10),
            send_time_max: Some(Duration::from_mins(1)),
        }
    }
}

/// TLS options of a server.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    pub(super) mode: TlsMode,
    /// TLS configuration; none if the mode is off.
    pub(super) server: Option<TlsServer>,
}

impl TlsOptions {
    /// Returns options for TLS with `server`, which is optional for clients unless `required`.
    #[must_use]
    pub fn new(server: TlsServer, required: bool) -> Self {
        let mode = if required { TlsMode::Required } else { TlsMode::Allowed };
        TlsOptions { mode, server: Some(server) }
    }
}

/// Options of a server other than its exports.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Limits on clients.
    pub limits: ServerLimits,
    /// Observer of all answered requests.
    pub observer: Option<Arc<dyn Observer>>,
    /// TLS options.
    pub tls: TlsOptions,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("limits", &self.limits)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}
