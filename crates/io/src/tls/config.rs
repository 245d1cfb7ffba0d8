//! Certificates and trusted authorities of servers and clients, with rustls.

use super::{Channel, TlsError};
use crate::owned_file::{self, FileReaders};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// TLS settings of a server: its certificate and key, and the authorities that it trusts.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

/// TLS settings of a client: the authorities that it trusts and, if the server asks for it, its
/// certificate and key.
#[derive(Clone)]
pub struct TlsClient(Arc<ClientConfig>);

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn content(path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError::Content { path: path.to_owned(), reason: reason.to_string() }
}

/// Maximum size of a file; certificates and keys have a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read(path: &Path, secrecy: FileReaders) -> Result<Vec<u8>, TlsError> {
    let bytes = owned_file::read(path, secrecy, FILE_BYTES_MAX);
    bytes.map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path, FileReaders::Public)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| content(path, error))?;
    if found.is_empty() { Err(content(path, "it contains no certificate")) } else { Ok(found) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(path, FileReaders::Secret)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => content(path, "it contains no private key"),
        error => content(path, error),
    })
}

/// Reads the certificates of the trusted authorities.
fn authorities(directory: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let path = directory.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        roots.add(certificate).map_err(|error| content(&path, error))?;
    }
    Ok(Arc::new(roots))
}

impl TlsServer {
    /// Reads `server-cert.pem` and `server-key.pem` of `directory`; with `verify_peer` also
    /// `ca-cert.pem`, and clients without a certificate of that authority are refused.
    ///
    /// # Errors
    /// The error names the file that is missing or invalid.
    pub fn from_directory(directory: &Path, verify_peer: bool) -> Result<Self, TlsError> {
        let certificate_path = directory.join("server-cert.pem");
        let chain = certificates(&certificate_path)?;
        let key = key(&directory.join("server-key.pem"))?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| content(directory, error))?;
        let builder = if verify_peer {
            let roots = authorities(directory)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|error| content(&directory.join("ca-cert.pem"), error))?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| content(&certificate_path, error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsServer(Arc::new(config)))
    }

    /// Starts the server side of a connection. `received` are its bytes that were read before.
    pub(crate) fn accept(&self, received: &[u8]) -> Result<Channel, String> {
        let connection = ServerConnection::new(Arc::clone(&self.0));
        let connection = connection.map_err(|error| error.to_string())?;
        Ok(Channel::new(connection.into(), received))
    }
}

impl TlsClient {
    /// Reads `ca-cert.pem` of `directory`, and `client-cert.pem` with `client-key.pem` if they
    /// exist.
    ///
    /// # Errors
    /// The error names the file that is missing or invalid.
    pub fn from_directory(directory: &Path) -> Result<Self, TlsError> {
        let authority_path = directory.join("ca-cert.pem");
        let roots = authorities(directory)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| content(&authority_path, error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| content(directory, error))?
            .with_webpki_verifier(verifier);
        let certificate_path = directory.join("client-cert.pem");
        let mut config = if certificate_path.exists() {
            let chain = certificates(&certificate_path)?;
            let key = key(&directory.join("client-key.pem"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| content(&certificate_path, error))?
        } else {
            builder.with_no_client_auth()
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(TlsClient(Arc::new(config)))
    }

    /// Starts the client side of a connection to the server called `name`.
    pub(crate) fn connect(&self, name: &str) -> Result<Channel, TlsError> {
        let invalid = || TlsError::Name(name.to_owned());
        let server = ServerName::try_from(name.to_owned()).or(Err(invalid()))?;
        let connection = ClientConnection::new(Arc::clone(&self.0), server).or(Err(invalid()))?;
        Ok(Channel::new(connection.into(), &[]))
    }
}
