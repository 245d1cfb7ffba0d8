//! Accepting connections, and the limits on them.

use super::handshake::{BlockSizes, ExportInfo};
use super::session::{Connection, serve_connection};
use super::socket::Socket;
use super::wire;
use crate::engine::{ArenaVolume, Engine};
use crate::front::listen::{ListenAddress, ListenError, Listener};
use crate::front::observe::Observer;
use crate::store::AllocationMap;
use crate::tls::{TlsMode, TlsServer};
use crate::wake::Waker;
use larder_core::lane::Notify;
use larder_core::mode::WriteMode;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

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
    listener: Arc<Listener>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", self.address()).finish_non_exhaustive()
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
        Server::start_on(engine, Listener::bind(address)?, exports, options)
    }

    /// As [`Server::start_with`], on a socket that is there already.
    ///
    /// # Errors
    /// If the kernel has no thread or file descriptor left.
    pub fn start_on(
        engine: Arc<Engine>,
        listener: Listener,
        exports: Vec<Export>,
        options: ServerOptions,
    ) -> Result<Self, ListenError> {
        let ServerOptions { limits, observer, tls } = options;
        let listener = Arc::new(listener);
        let refused = |source| ListenError::Refused { address: listener.address().clone(), source };
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
            let listener = Arc::clone(&listener);
            std::thread::Builder::new()
                .name("accept".into())
                .spawn(move || accept(&shared, &listener, &waker))
                .map_err(refused)?
        };
        Ok(Server { shared, waker, acceptor: Some(acceptor), listener })
    }

    /// Where it listens; the port is the real one.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        self.listener.address()
    }

    /// The address of an export in the form that clients take.
    #[must_use]
    pub fn uri(&self, export: &str) -> String {
        use crate::nbd_client::{NbdAddress, NbdUri, UriTls};
        let address = match self.address() {
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
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.shut_down();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &Listener, waker: &Waker) {
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
