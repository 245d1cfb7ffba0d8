//! Options of a server.

use super::limits::ServerLimits;
use crate::front::observe::Observer;
use crate::tls::{TlsMode, TlsServer};
use std::fmt;
use std::sync::Arc;

/// TLS options of a server.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// TLS mode.
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
