//! Connections of hostile clients: unix sockets and TCP, optionally with TLS.

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time limit of a call on a socket during an attack.
const CALL_MAX: Duration = Duration::from_millis(20);
/// The time limit of the handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The size of the kernel's receive buffer.
const RECEIVE_BUFFER_BYTES: usize = 16 << 10;

/// The address of a server.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// A server under attack.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address.
    pub endpoint: Endpoint,
    /// The name of an export.
    pub export: String,
    /// The TLS configuration of all clients; `None` for connections without TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// Returns a target for attacks without TLS.
    #[must_use]
    pub fn in_clear(endpoint: Endpoint, export: &str) -> Self {
        Target { endpoint, export: export.to_owned(), tls: None }
    }

    /// Returns a target for attacks over TLS; `authority` is the PEM file of its certificate
    /// authority.
    ///
    /// # Panics
    /// The file is not a certificate.
    #[must_use]
    pub fn with_tls(endpoint: Endpoint, export: &str, authority: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(authority).expect("a certificate");
        roots.add(certificate).expect("the certificate of an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Target { endpoint, export: export.to_owned(), tls: Some(Arc::new(config)) }
    }

    pub(super) fn connect(&self) -> io::Result<Stream> {
        let socket = match &self.endpoint {
            Endpoint::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Endpoint::Tcp(address) => Socket::Tcp(TcpStream::connect(address)?),
        };
        socket.prepare()?;
        Ok(Stream(Channel::Clear(socket)))
    }
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn prepare(&self) -> io::Result<()> {
        if let Socket::Tcp(socket) = self {
            sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES)?;
        }
        self.set_timeouts(HANDSHAKE_MAX)
    }

    fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => {
                socket.set_read_timeout(Some(time))?;
                socket.set_write_timeout(Some(time))
            }
            Socket::Tcp(socket) => {
                socket.set_read_timeout(Some(time))?;
                socket.set_write_timeout(Some(time))
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.read(into),
            Socket::Tcp(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tcp(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
enum Channel {
    Clear(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
    /// The state during the switch to TLS.
    Closed,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Stream(Channel);

impl Stream {
    /// Switches the connection to TLS.
    pub(super) fn start_tls(&mut self, config: &Arc<ClientConfig>) -> io::Result<()> {
        let Channel::Clear(socket) = std::mem::replace(&mut self.0, Channel::Closed) else {
            return Err(io::Error::other("TLS has begun"));
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        self.0 = Channel::Tls(Box::new(StreamOwned::new(client, socket)));
        Ok(())
    }

    /// Sets a short time limit for calls, because the server may accept or send nothing.
    pub(super) fn set_short_timeouts(&self) -> io::Result<()> {
        match &self.0 {
            Channel::Clear(socket) => socket.set_timeouts(CALL_MAX),
            Channel::Tls(stream) => stream.sock.set_timeouts(CALL_MAX),
            Channel::Closed => Ok(()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Channel::Clear(socket) => socket.read(into),
            Channel::Tls(stream) => stream.read(into),
            Channel::Closed => Ok(0),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Channel::Clear(socket) => socket.write(bytes),
            Channel::Tls(stream) => stream.write(bytes),
            Channel::Closed => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Channel::Clear(socket) => socket.flush(),
            Channel::Tls(stream) => stream.flush(),
            Channel::Closed => Ok(()),
        }
    }
}
