//! Listening, accepting, and the limits on both.

use super::handshake::{BlockSizes, ExportInfo};
use super::session::{Connection, serve_connection};
use super::socket::Socket;
use super::wire;
use crate::engine::{ArenaVolume, Engine};
use crate::front::observe::Observer;
use crate::store::AllocationMap;
use crate::tls::{TlsMode, TlsServer};
use crate::wake::Waker;
use larder_core::lane::Notify;
use larder_core::mode::WriteMode;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A server listens there.
    #[error("listen on {0}: another server is listening there")]
    Busy(ListenAddress),
    /// Something that is not a socket is there.
    #[error("listen on {0}: the path exists and is not a socket")]
    NotASocket(ListenAddress),
    /// The kernel refused.
    #[error("listen on {address}: {source}")]
    Refused {
        /// Where.
        address: ListenAddress,
        /// Why.
        source: io::Error,
    },
}

/// What clients may demand.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at a time; more are closed as they come.
    pub connections_max: usize,
    /// Bytes of one request; larger ones fail.
    pub request_bytes_max: u32,
    /// How long a handshake may take.
    pub handshake_time_max: Duration,
}

impl Default for ServerLimits {
    /// 64 connections (each has a buffer of 256 KiB: 16 MiB in all), 32 MiB a request as the
    /// protocol's default says, ten seconds for a handshake.
    fn default() -> Self {
        ServerLimits {
            connections_max: 64,
            request_bytes_max: wire::DEFAULT_BLOCK_BYTES_MAX,
            handshake_time_max: Duration::from_secs(10),
        }
    }
}

/// A volume under a name.
#[derive(Clone)]
pub struct Export {
    /// What clients are told.
    pub(super) info: ExportInfo,
    pub(super) volume: Arc<ArenaVolume>,
    pub(super) map: Arc<dyn AllocationMap>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Export {
    /// Offers `volume` under its name; `default` also under the empty name.
    ///
    /// Several connections are allowed because a flush on one covers what was acknowledged on all.
    #[must_use]
    pub fn new(
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
        default: bool,
        limits: &ServerLimits,
    ) -> Self {
        let page = u32::try_from(volume.page_bytes()).expect("at most 1 MiB");
        let info = ExportInfo {
            name: volume.name().to_owned(),
            description: String::new(),
            length: volume.geometry().length,
            read_only: volume.write_mode() == WriteMode::ReadOnly,
            block_sizes: BlockSizes { min: 1, preferred: page, max: limits.request_bytes_max },
            features: wire::FLAG_SEND_FLUSH
                | wire::FLAG_SEND_FUA
                | wire::FLAG_SEND_TRIM
                | wire::FLAG_SEND_WRITE_ZEROES
                | wire::FLAG_SEND_CACHE
                | wire::FLAG_CAN_MULTI_CONN,
            default,
        };
        Export { info, volume, map }
    }
}

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

/// What all connections share.
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) exports: Vec<Export>,
    pub(super) limits: ServerLimits,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) tls: TlsOptions,
    /// Connections that spin for their next request instead of sleeping.
    pub(super) spinners: AtomicUsize,
    pub(super) spinners_max: usize,
    pub(super) closing: AtomicBool,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    waker: Waker,
    acceptor: Option<JoinHandle<()>>,
    address: ListenAddress,
    /// Held as long as the socket's path is ours.
    _lock: Option<OwnedFd>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Listens on a unix socket. Who may take over a stale path is decided by a lock beside it, so that
/// two servers that start together cannot both win.
fn listen_unix(path: &Path) -> Result<(OwnedFd, OwnedFd), Option<Errno>> {
    let lock = rustix::fs::open(
        lock_path(path),
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| if error == Errno::AGAIN { None } else { Some(error) })?;
    match bind_unix(path) {
        Ok(listener) => Ok((listener, lock)),
        Err(error) => {
            // The lock is ours, so the file is too.
            if let Err(error) = std::fs::remove_file(lock_path(path)) {
                tracing::debug!(%error, "the lock file was not there any more");
            }
            Err(error)
        }
    }
}

fn bind_unix(path: &Path) -> Result<OwnedFd, Option<Errno>> {
    let address = SocketAddrUnix::new(path)?;
    let socket = || {
        rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
    };
    if rustix::fs::lstat(path).is_ok() {
        match rustix::net::connect(&socket()?, &address) {
            Ok(()) | Err(Errno::AGAIN) => return Err(None),
            Err(_) => rustix::fs::unlink(path)?,
        }
    }
    let listener = socket()?;
    rustix::net::bind(&listener, &address)?;
    // Whoever may open the socket may write the volume: only the owner. Nobody can connect before
    // the next call.
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&listener, 128)?;
    Ok(listener)
}

fn listen(
    address: &ListenAddress,
) -> Result<(OwnedFd, Option<OwnedFd>, ListenAddress), ListenError> {
    let refused = |source: io::Error| ListenError::Refused { address: address.clone(), source };
    match address {
        ListenAddress::Unix(path) => {
            if let Ok(stat) = rustix::fs::lstat(path)
                && rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Socket
            {
                return Err(ListenError::NotASocket(address.clone()));
            }
            match listen_unix(path) {
                Ok((listener, lock)) => Ok((listener, Some(lock), address.clone())),
                Err(None) => Err(ListenError::Busy(address.clone())),
                Err(Some(error)) => Err(refused(error.into())),
            }
        }
        ListenAddress::Tcp(socket) => {
            let listener = TcpListener::bind(socket).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => ListenError::Busy(address.clone()),
                _ => refused(error),
            })?;
            listener.set_nonblocking(true).map_err(refused)?;
            let bound = listener.local_addr().map_err(refused)?;
            Ok((listener.into(), None, ListenAddress::Tcp(bound)))
        }
    }
}

impl Server {
    /// Listens and serves `exports` until [`Server::close`].
    ///
    /// # Errors
    /// If the address is in use or cannot be listened on.
    pub fn start(
        engine: Arc<Engine>,
        address: &ListenAddress,
        exports: Vec<Export>,
        limits: ServerLimits,
    ) -> Result<Self, ListenError> {
        let options = ServerOptions { limits, ..ServerOptions::default() };
        Server::start_with(engine, address, exports, options)
    }

    /// As [`Server::start`]; `observer` is told of every request that was answered.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_observed(
        engine: Arc<Engine>,
        address: &ListenAddress,
        exports: Vec<Export>,
        limits: ServerLimits,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, ListenError> {
        let options = ServerOptions { limits, observer, ..ServerOptions::default() };
        Server::start_with(engine, address, exports, options)
    }

    /// As [`Server::start`], with an observer or TLS.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        engine: Arc<Engine>,
        address: &ListenAddress,
        exports: Vec<Export>,
        options: ServerOptions,
    ) -> Result<Self, ListenError> {
        let ServerOptions { limits, observer, tls } = options;
        let (listener, lock, address) = listen(address)?;
        let refused = |source| ListenError::Refused { address: address.clone(), source };
        let waker = Waker::new().map_err(refused)?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = Arc::new(Shared {
            engine,
            exports,
            limits,
            observer,
            tls,
            spinners: AtomicUsize::new(0),
            spinners_max: cpus - 1,
            closing: AtomicBool::new(false),
            connections: Mutex::new(Vec::new()),
        });
        let acceptor = {
            let (shared, waker) = (Arc::clone(&shared), waker.clone());
            std::thread::Builder::new()
                .name("accept".into())
                .spawn(move || accept(&shared, &listener, &waker))
                .map_err(refused)?
        };
        Ok(Server { shared, waker, acceptor: Some(acceptor), address, _lock: lock })
    }

    /// Where it listens; the port is the real one.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// The address of an export in the form that clients take.
    #[must_use]
    pub fn uri(&self, export: &str) -> String {
        use crate::nbd_client::{NbdAddress, NbdUri, UriTls};
        let address = match &self.address {
            ListenAddress::Unix(path) => NbdAddress::Unix(path.clone()),
            ListenAddress::Tcp(socket) => {
                NbdAddress::Tcp { host: socket.ip().to_string(), port: socket.port() }
            }
        };
        let required = self.shared.tls.mode == TlsMode::Required;
        let tls = required.then(UriTls::default);
        NbdUri { address, export: export.to_owned(), tls }.to_string()
    }

    /// Closes all connections and stops listening. Requests under way are given up.
    pub fn close(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.closing.store(true, Ordering::Release);
        self.waker.notify();
        acceptor.join().expect("accepting does not panic");
        let connections =
            std::mem::take(&mut *self.shared.connections.lock().expect("no holder panics"));
        for connection in &connections {
            connection.close();
        }
        for connection in connections {
            connection.join();
        }
        if let ListenAddress::Unix(path) = &self.address {
            for path in [path.clone(), lock_path(path)] {
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::debug!(path = %path.display(), %error, "was not there any more");
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.shut_down();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &OwnedFd, waker: &Waker) {
    while !shared.closing.load(Ordering::Acquire) {
        if let Err(error) = waker.sleep(Some((listener.as_fd(), PollFlags::IN)), None) {
            tracing::error!(%error, "waiting for connections failed");
            std::thread::sleep(Duration::from_millis(100));
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => admit(shared, socket),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                // Out of descriptors or memory: others may end soon.
                tracing::warn!(%error, "a connection could not be accepted");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, socket: OwnedFd) {
    let mut connections = shared.connections.lock().expect("no holder panics");
    connections.retain(|connection| !connection.is_done());
    if connections.len() >= shared.limits.connections_max {
        tracing::warn!(limit = shared.limits.connections_max, "too many connections");
        return;
    }
    match serve_connection(Arc::clone(shared), Socket::new(socket)) {
        Ok(connection) => connections.push(connection),
        Err(error) => tracing::warn!(%error, "no thread for a connection"),
    }
}
