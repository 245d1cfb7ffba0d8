//! TLS for NBD: the local certificate, the trusted authorities, and the channel that encrypts a
//! connection.
//!
//! The directory of certificates has the layout of nbdkit(1), qemu-nbd(8) and libnbd(3):
//! `ca-cert.pem`, and `server-cert.pem` with `server-key.pem`, or `client-cert.pem` with
//! `client-key.pem`. TLS 1.2 and 1.3, without session resumption and tickets: a connection lives as
//! long as its client, so a shorter handshake is not worth state that lives longer.
//!
//! A build without the feature `tls` has the same types, whose constructors return
//! [`TlsError::NotBuilt`]; the callers are the same in both builds.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod channel;
#[cfg(feature = "tls")]
mod config;
mod transport;

#[cfg(not(feature = "tls"))]
pub(crate) use absent::Channel;
#[cfg(not(feature = "tls"))]
pub use absent::{TlsClient, TlsServer};
#[cfg(feature = "tls")]
pub(crate) use channel::Channel;
#[cfg(feature = "tls")]
pub use config::{TlsClient, TlsServer};
pub(crate) use transport::Transport;

use crate::owned_file::FileError;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::path::PathBuf;

/// Use of TLS by a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    #[default]
    Off,
    /// Clients that request TLS get it; the server serves the others without it.
    Allowed,
    /// Before TLS, the server tells a client only that TLS is required.
    Required,
}

/// A reason why the files of a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {path} for TLS: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: FileError,
    },
    /// The content of a file does not match its name.
    #[error("use {path} for TLS: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The name of a server is not valid in a certificate.
    #[error("ask for the certificate of {0:?}: it is neither a host name nor an address")]
    Name(String),
    /// This build does not support TLS.
    #[error(
        "use TLS: this build of larder does not support it; install a package of larder, or build \
         it with `cargo build --release --features full`"
    )]
    NotBuilt,
}

/// The non-blocking socket under a channel; a call that would wait returns `Errno::AGAIN`.
pub(crate) trait RawSocket {
    /// Receives the available bytes; returns 0 at the end of the stream.
    fn receive(&self, to: &mut [u8]) -> Result<usize, Errno>;
    /// Sends as much as the socket accepts.
    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno>;
}

/// The reason why a channel stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The socket would have to wait, or failed.
    Socket(Errno),
    /// The peer violates the protocol, or its certificate is not trusted.
    Tls(String),
}

impl Failure {
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, Failure::Socket(Errno::AGAIN))
    }
}

impl From<Failure> for io::Error {
    /// An error of TLS is invalid data.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Socket(error) => error.into(),
            Failure::Tls(error) => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}
