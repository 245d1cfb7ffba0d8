//! Connections to a block export with several requests in flight, for [`crate::load`] and
//! [`crate::replay`]. The caller implements them, since this crate knows no protocol.

use crate::trace::Op;
use std::time::Duration;

/// A request to an export.
#[derive(Clone, Debug, Default)]
pub struct BlockRequest {
    /// The operation.
    pub op: Op,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// True if a write is to be durable when it is acknowledged.
    pub fua: bool,
    /// The data of a write, or the buffer of a read; `len` bytes.
    pub data: Vec<u8>,
}

/// A request that failed, or a connection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct ConnectionError {
    /// The reason, as a fragment that can follow an operation.
    pub text: String,
    /// True if the server closed the connection or shuts down.
    pub is_closed: bool,
}

/// A reply.
#[derive(Debug)]
pub struct Reply<T> {
    /// The value that was submitted with the request.
    pub context: T,
    /// The failure of the request; the connection is still usable.
    pub error: Option<ConnectionError>,
    /// The buffer of the request: the data of a read.
    pub data: Vec<u8>,
}

/// A connection whose requests each carry a value of the caller.
pub trait Connection<T>: Send {
    /// Sends a request.
    ///
    /// # Errors
    /// The connection failed.
    fn submit(&mut self, request: BlockRequest, context: T) -> Result<(), ConnectionError>;

    /// Returns the values of the requests in flight.
    fn in_flight<'a>(&'a self) -> impl ExactSizeIterator<Item = &'a T>
    where
        T: 'a;

    /// Waits for a reply, no longer than `time`; `None` if none arrived. Replies that arrived
    /// before a failure are still returned after it.
    ///
    /// # Errors
    /// The connection failed, or no request is in flight.
    fn receive(&mut self, time: Option<Duration>) -> Result<Option<Reply<T>>, ConnectionError>;

    /// Waits until one of the connections has a reply, or the time is over.
    ///
    /// # Errors
    /// The wait failed.
    fn wait_any(connections: &[&Self], time: Duration) -> Result<(), ConnectionError>;
}
