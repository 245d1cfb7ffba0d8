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

impl Channel {
    pub(crate) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_whole(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn shrink(&mut self) {
        match self.0 {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn handshake(&mut self, _socket: &impl RawSocket) -> Result<bool, Failure> {
        match self.0 {}
    }

    pub(crate) fn has_input(&mut self) -> bool {
        match self.0 {}
    }

    pub(crate) fn receive(
        &mut self,
        _socket: &impl RawSocket,
        _to: &mut [u8],
    ) -> Result<usize, Failure> {
        match self.0 {}
    }

    pub(crate) fn send(
        &mut self,
        _socket: &impl RawSocket,
        _slices: &[IoSlice<'_>],
    ) -> Result<usize, Failure> {
        match self.0 {}
    }

    pub(crate) fn flush(&mut self, _socket: &impl RawSocket) -> Result<(), Failure> {
        match self.0 {}
    }

    pub(crate) fn close(&mut self, _socket: &impl RawSocket) {
        match self.0 {}
    }
}
