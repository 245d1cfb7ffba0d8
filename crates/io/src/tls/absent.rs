//! The types of TLS in a build without it; they have no values.

use super::{Failure, RawSocket, TlsError};
use std::convert::Infallible;
use std::io::IoSlice;
use std::path::Path;

/// The certificate and key of a server: none in this build.
#[derive(Clone, Debug)]
pub struct TlsServer(Infallible);

/// The authorities that a client trusts: none in this build.
#[derive(Clone, Debug)]
pub struct TlsClient(Infallible);

/// One side of a TLS connection: none in this build.
#[derive(Debug)]
pub(crate) struct Channel(Infallible);

impl TlsServer {
    /// Always fails.
    ///
    /// # Errors
    /// [`TlsError::NotBuilt`].
    pub fn from_directory(_directory: &Path, _verify_peer: bool) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    pub(crate) fn accept(&self, _received: &[u8]) -> Result<Channel, String> {
        match self.0 {}
    }
}

impl TlsClient {
    /// Always fails.
    ///
    /// # Errors
    /// [`TlsError::NotBuilt`].
    pub fn from_directory(_directory: &Path) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    pub(crate) fn connect(&self, _name: &str) -> Result<Channel, TlsError> {
        match self.0 {}
    }
}

/// Methods that no call reaches.
macro_rules! never {
    ($(fn $name:ident($this:ident: $receiver:ty $(, $argument:ty)*) $(-> $result:ty)?;)*) => {
        impl Channel {
            $(pub(crate) fn $name($this: $receiver $(, _: $argument)*) $(-> $result)? {
                match $this.0 {}
            })*
        }
    };
}

never! {
    fn is_handshaking(self: &Self) -> bool;
    fn is_whole(self: &Self) -> bool;
    fn has_unsent(self: &Self) -> bool;
    fn has_input(self: &mut Self) -> bool;
    fn shrink(self: &mut Self);
    fn handshake(self: &mut Self, &impl RawSocket) -> Result<bool, Failure>;
    fn receive(self: &mut Self, &impl RawSocket, &mut [u8]) -> Result<usize, Failure>;
    fn send(self: &mut Self, &impl RawSocket, &[IoSlice<'_>]) -> Result<usize, Failure>;
    fn flush(self: &mut Self, &impl RawSocket) -> Result<(), Failure>;
    fn close(self: &mut Self, &impl RawSocket);
}
