//! Accepting connections, and the limits on them.

use super::exports::{Export, Exports, NameTaken};
use super::options::{ServerOptions, TlsOptions};
use super::session::{Connection, serve_connection};
use super::socket::Socket;
use super::wire;
use crate::engine::Engine;
use crate::fault::{self, confine};
use crate::front::listen::{ListenAddress, ListenError, Listener};
use crate::front::observe::Observer;
use crate::front::spin::Spinners;
use crate::tls::TlsMode;
use crate::wake::Waker;
use larder_core::lane::Notify;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    pub(super) tls: TlsOptions,
    /// Connections that spin for their next request instead of sleeping.
    pub(super) spinners: Spinners,
    pub(super) closing: AtomicBool,
    connections: Mutex<Vec<Arc<Connection>>>,
}

impl Shared {
    /// The connections. The list changes in one step, so a panic leaves it consistent.
    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let shared = Arc::new(Shared {
            engine,
            exports: Exports::new(exports),
            limits,
            observer,
            tls,
            spinners: Spinners::new(),
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

    /// Offers one more export from now on.
    ///
    /// # Errors
    /// If there is one of the same name.
    pub fn add_export(&self, export: Export) -> Result<(), NameTaken> {
        self.shared.exports.add(export)
    }

    /// How many clients use the export of this name now.
    #[must_use]
    pub fn clients(&self, name: &str) -> usize {
        let exports = self.shared.exports.list();
        let Some(export) = exports.iter().find(|export| export.info.name == name) else { return 0 };
        let connections = self.shared.connections();
        connections.iter().filter(|one| !one.is_done() && one.serves(export)).count()
    }

    /// Offers the export of this name no more, and lets its clients go: what they have asked is
    /// answered. Those whose requests, or who themselves, take longer than `patience` are cut off.
    /// When this returns nobody uses the export's volume by this server; false if there was none.
    pub fn remove_export(&self, name: &str, patience: Duration) -> bool {
        let Some(export) = self.shared.exports.remove(name) else { return false };
        let serving = || {
            let connections = self.shared.connections();
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
        let connections = std::mem::take(&mut *self.shared.connections());
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
    // Whether connections have been refused since one was accepted last: said once, not each time.
    let mut is_short = false;
    while !shared.closing.load(Ordering::Acquire) {
        if let Err(error) = waker.sleep(Some((listener.as_fd(), PollFlags::IN)), None) {
            tracing::error!(%error, "waiting for connections failed");
            std::thread::sleep(Duration::from_millis(100));
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let admitted = confine(|| {
                    fault::point("acceptor", "server");
                    admit(shared, socket)
                });
                is_short = match admitted {
                    Ok(Ok(())) => false,
                    Ok(Err(error)) => {
                        if !is_short {
                            tracing::warn!(%error, "no thread for a connection");
                        }
                        true
                    }
                    Err(panic) => {
                        panic.end_if_damaging(shared.engine.cache());
                        tracing::error!("a client was refused: {panic}");
                        is_short
                    }
                };
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                // Out of descriptors or memory: others may end soon. The client waits meanwhile.
                if !is_short {
                    tracing::warn!(%error, "connections cannot be accepted for now");
                }
                is_short = true;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, socket: OwnedFd) -> io::Result<()> {
    let mut connections = shared.connections();
    connections.retain(|connection| !connection.is_done());
    if connections.len() >= shared.limits.connections_max {
        tracing::warn!(limit = shared.limits.connections_max, "too many connections");
        return Ok(());
    }
    connections.push(serve_connection(Arc::clone(shared), Socket::new(socket))?);
    Ok(())
}
