//! What a server is made with, besides its exports.

use super::server::ServerLimits;
use crate::front::observe::Observer;
use crate::tls::{TlsMode, TlsServer};
use std::fmt;
use std::sync::Arc;

/// What a server does about TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Whether it speaks TLS.
    pub(super) mode: TlsMode,
    /// With what; there unless the mode is off.
    pub(super) server: Option<TlsServer>,
}

impl TlsOptions {
    /// TLS with `server` for those who want it, or for all.
    #[must_use]
    pub fn new(server: TlsServer, required: bool) -> Self {
        let mode = if required { TlsMode::Required } else { TlsMode::Allowed };
        TlsOptions { mode, server: Some(server) }
    }
}

/// What besides its exports a server is made with.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// What clients may demand.
    pub limits: ServerLimits,
    /// Who is told of every request that was answered.
    pub observer: Option<Arc<dyn Observer>>,
    /// TLS.
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
