//! Limits on the clients of an NBD server.

use crate::nbd_wire as wire;
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
