//! Errors of a client: of the server, of the connection, and of one request.
//!
//! NBD's proto.md, "Error values" and "Option reply types". An error of a request leaves the
//! connection usable; an error of the connection or of the protocol does not.

use crate::nbd_wire::{self as wire, BadMagic, Errno};
use crate::tls::{Failure, TlsError};
use std::io;

/// An error reply of the server to one request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno}{separator}{message}", separator = if message.is_empty() { "" } else { ": " })]
pub struct RequestError {
    /// The error value.
    pub errno: Errno,
    /// The server's text; often empty.
    pub message: String,
    /// Offset of the error in the export, if the server sent it.
    pub offset: Option<u64>,
}

impl RequestError {
    pub(super) fn of_code(code: u32) -> Self {
        Self { errno: Errno::from_code(code), message: String::new(), offset: None }
    }
}

/// A failed operation of a client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The client could not connect.
    #[error("connect to the NBD server at {address}: {error}")]
    Connect {
        /// Address of the server.
        address: String,
        /// The reason.
        error: io::Error,
    },
    /// The server closed the connection, or ended.
    #[error("the NBD server closed the connection")]
    Closed,
    /// The server did not reply in the time that the options allow.
    #[error("the NBD server did not answer in time")]
    TimedOut,
    /// Another failure of the connection.
    #[error("exchange data with the NBD server: {0}")]
    Io(io::Error),
    /// TLS failed; the text names the cause.
    #[error("speak TLS with the NBD server: {0}")]
    Tls(String),
    /// The server violated the protocol, or sent a message that this client does not know.
    #[error("the NBD server broke the protocol: {0}")]
    Protocol(String),
    /// The server refused an option of the handshake.
    #[error("the NBD server refused {}: {} {message}", option_name(*option), reply_name(*reply))]
    Refused {
        /// One of `OPT_*`.
        option: u32,
        /// One of `REP_ERR_*`.
        reply: u32,
        /// The server's text; often empty.
        message: String,
    },
    /// The server failed a request; the connection is usable.
    #[error("the NBD server failed the request: {0}")]
    Request(RequestError),
    /// The server does not offer this feature, so the request was not sent.
    #[error("the NBD server does not offer {0}")]
    NotOffered(&'static str),
    /// No request is in flight.
    #[error("no NBD request is in flight")]
    NothingInFlight,
    /// An earlier error has ended the connection.
    #[error("the NBD connection has failed before")]
    Failed,
}

impl ClientError {
    /// Returns the error value, if the server failed a request.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Request(error) => Some(error.errno),
            _ => None,
        }
    }

    pub(super) fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Closed | Self::TimedOut | Self::Io(_) | Self::Tls(_) | Self::Protocol(_)
        )
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Closed,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            // TLS is the only source of this kind in this crate.
            io::ErrorKind::InvalidData => Self::Tls(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> Self {
        io::Error::from(failure).into()
    }
}

impl From<TlsError> for ClientError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error.to_string())
    }
}

impl From<rustix::io::Errno> for ClientError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::from(io::Error::from(error))
    }
}

impl From<BadMagic> for ClientError {
    fn from(error: BadMagic) -> Self {
        Self::Protocol(error.to_string())
    }
}

fn option_name(option: u32) -> &'static str {
    match option {
        wire::OPT_EXPORT_NAME => "EXPORT_NAME",
        wire::OPT_LIST => "LIST",
        wire::OPT_GO => "GO",
        wire::OPT_STARTTLS => "STARTTLS",
        wire::OPT_STRUCTURED_REPLY => "STRUCTURED_REPLY",
        wire::OPT_SET_META_CONTEXT => "SET_META_CONTEXT",
        _ => "an option",
    }
}

fn reply_name(reply: u32) -> &'static str {
    match reply {
        wire::REP_ERR_UNSUP => "(UNSUP)",
        wire::REP_ERR_POLICY => "(POLICY)",
        wire::REP_ERR_INVALID => "(INVALID)",
        wire::REP_ERR_PLATFORM => "(PLATFORM)",
        wire::REP_ERR_TLS_REQD => "(TLS_REQD)",
        wire::REP_ERR_UNKNOWN => "(UNKNOWN)",
        wire::REP_ERR_SHUTDOWN => "(SHUTDOWN)",
        wire::REP_ERR_BLOCK_SIZE_REQD => "(BLOCK_SIZE_REQD)",
        wire::REP_ERR_TOO_BIG => "(TOO_BIG)",
        _ => "(unknown error)",
    }
}
