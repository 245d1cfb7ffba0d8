//! Listening, accepting, and the limits on both.

use super::exports::{Export, Exports, NameTaken};
use super::session::{Connection, serve_connection};
use super::socket::Socket;
use super::wire;
use crate::engine::Engine;
use crate::front::observe::Observer;
use crate::wake::Waker;
use larder_core::lane::Notify;
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
use std::time::{Duration, Instant};

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

/// What all connections share.
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) exports: Exports,
    pub(super) limits: ServerLimits,
    pub(super) observer: Option<Arc<dyn Observer>>,
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
        Server::start_observed(engine, address, exports, limits, None)
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
        let (listener, lock, address) = listen(address)?;
        let refused = |source| ListenError::Refused { address: address.clone(), source };
        let waker = Waker::new().map_err(refused)?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = Arc::new(Shared {
            engine,
            exports: Exports::new(exports),
            limits,
            observer,
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
        use crate::nbd_client::{NbdAddress, NbdUri};
        let address = match &self.address {
            ListenAddress::Unix(path) => NbdAddress::Unix(path.clone()),
            ListenAddress::Tcp(socket) => {
                NbdAddress::Tcp { host: socket.ip().to_string(), port: socket.port() }
            }
        };
        NbdUri { address, export: export.to_owned() }.to_string()
    }

    /// Offers one more export from now on.
    ///
    /// # Errors
    /// If there is one of the same name.
    pub fn add_export(&self, export: Export) -> Result<(), NameTaken> {
        self.shared.exports.add(export)
    }

    /// Offers the export of this name no more, and lets its clients go: what they have asked is
    /// answered. Those whose requests, or who themselves, take longer than `patience` are cut off.
    /// When this returns nobody uses the export's volume by this server; false if there was none.
    pub fn remove_export(&self, name: &str, patience: Duration) -> bool {
        let Some(export) = self.shared.exports.remove(name) else { return false };
        let serving = || {
            let connections = self.shared.connections.lock().expect("no holder panics");
            let serves = |one: &&Arc<Connection>| !one.is_done() && one.serves(&export);
            connections.iter().filter(serves).cloned().collect::<Vec<_>>()
        };
        let begin = Instant::now();
        for connection in serving() {
            connection.wake();
        }
        while begin.elapsed() < patience && !serving().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for connection in serving() {
            tracing::info!(export = name, "a client of a removed export was cut off");
            connection.close();
            connection.join();
        }
        true
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
