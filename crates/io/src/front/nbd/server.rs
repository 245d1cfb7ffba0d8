//! The NBD server: accepts connections, and limits their number.

use super::connection::Connection;
use super::exports::{Export, ExportNameInUse, Exports};
use super::options::{ServerLimits, ServerOptions};
use super::session::serve_connection;
use super::shared::Shared;
use super::socket::Socket;
use crate::engine::Engine;
use crate::fault::{self, Thread, confine, report_failed_part};
use crate::front::listen::{ListenAddress, ListenError, Listener};
use crate::front::spin::Spinners;
use crate::log_limit::LogLimit;
use crate::tls::TlsMode;
use crate::waker::Waker;
use larder_core::completion::Wake;
use larder_core::request::{Budget, BudgetUsage};
use larder_core::units::BLOCK_BYTES_U64;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Interval of attempts to accept a connection while descriptors or memory are short.
const SHORTAGE_RETRY: Duration = Duration::from_millis(10);

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<Thread>,
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
        Server::start_on(engine, Listener::bind(address)?, exports, options)
    }

    /// As [`Server::start`], on an existing listener and with all options.
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
        let shared = Arc::new(Shared {
            engine,
            exports: Exports::new(exports),
            limits,
            observer,
            tls,
            spinners: Spinners::new(),
            closing: AtomicBool::new(false),
            budget: Arc::new(Budget::new(limits.connections_max)),
            connections: Mutex::new(Vec::new()),
            acceptor: Waker::new().map_err(refused)?,
            serving: AtomicUsize::new(0),
        });
        let acceptor = {
            let (shared, listener) = (Arc::clone(&shared), Arc::clone(&listener));
            let cache = Arc::clone(shared.engine.cache());
            let failed = |error: &dyn fmt::Display| {
                report_failed_part("no more NBD clients are accepted", error);
            };
            let accept = move || accept(&shared, &listener);
            fault::spawn("accept", Some(&cache), accept, failed).map_err(refused)?
        };
        Ok(Server { shared, acceptor: Some(acceptor), listener })
    }

    /// Returns the address, with the port that the kernel has chosen if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        self.listener.address()
    }

    /// Returns the NBD URI of an export.
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

    /// Adds an export.
    ///
    /// # Errors
    /// If there is one of the same name.
    pub fn add_export(&self, export: Export) -> Result<(), ExportNameInUse> {
        self.shared.exports.add(export)
    }

    /// Returns the number of clients that use the export of this name.
    #[must_use]
    pub fn clients(&self, name: &str) -> usize {
        let exports = self.shared.exports.list();
        let export = exports.iter().find(|export| export.info.name == name);
        export.map_or(0, |export| self.connections_to(export).len())
    }

    fn connections_to(&self, export: &Export) -> Vec<Arc<Connection>> {
        let mut connections = self.shared.connections().clone();
        connections.retain(|connection| connection.serves(export));
        connections
    }

    /// Returns the usage of the memory budget of all clients' requests.
    #[must_use]
    pub fn budget(&self) -> BudgetUsage {
        let frames = self.shared.engine.cache().frame_count();
        self.shared.budget.usage(u64::from(frames) * BLOCK_BYTES_U64)
    }

    /// Removes the export of this name and disconnects its clients after it has answered the
    /// requests that it has received from them. A client that does not finish within `patience` is
    /// disconnected with requests in flight. When this returns, the server does not use the
    /// export's volume any more. Returns false if there is no such export.
    pub fn remove_export(&self, name: &str, patience: Duration) -> bool {
        let Some(export) = self.shared.exports.remove(name) else { return false };
        let serving = || self.connections_to(&export);
        let begin = Instant::now();
        for connection in serving() {
            connection.waker.wake();
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

    /// Closes all connections and stops listening. Requests in flight are cancelled.
    pub fn close(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.closing.store(true, Ordering::Release);
        self.shared.acceptor.wake();
        acceptor.join();
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

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    let (mut refusals, mut shortages) = (LogLimit::default(), LogLimit::default());
    while !shared.closing.load(Ordering::Acquire) {
        let wanted = Some((listener.as_fd(), PollFlags::IN));
        if let Err(error) = shared.acceptor.sleep(wanted, None) {
            tracing::error!(%error, "waiting for connections failed");
            std::thread::sleep(Duration::from_millis(100));
        }
        // The next connection may need the descriptors of those that have ended.
        let ended: Vec<_> =
            shared.connections().extract_if(.., |connection| connection.is_done()).collect();
        for connection in ended {
            connection.join();
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let admitted = confine(|| {
                    fault::point("acceptor", "server");
                    admit(shared, socket, &mut refusals)
                });
                match admitted {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => shortages.log(|count| {
                        tracing::warn!(%error, count, "cannot create a thread for a connection");
                    }),
                    Err(panic) => panic.report(shared.engine.cache(), "a client was refused"),
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                // The process has no descriptor or memory left. Other connections may end soon, and
                // the new client waits in the listen queue.
                shortages.log(|count| {
                    tracing::warn!(%error, count, "connections cannot be accepted for now");
                });
                std::thread::sleep(SHORTAGE_RETRY);
            }
        }
    }
}

/// Logs that a connection is closed to keep a limit.
fn log_refusal(refusals: &mut LogLimit, reason: &'static str, limit: usize) {
    refusals.log(|count| tracing::warn!(limit, count, "closed connections: {reason}"));
}

fn admit(shared: &Arc<Shared>, socket: OwnedFd, refusals: &mut LogLimit) -> io::Result<()> {
    let limits = &shared.limits;
    let mut connections = shared.connections();
    if shared.serving.load(Ordering::Acquire) >= limits.connections_max {
        log_refusal(refusals, "the maximum number of clients is connected", limits.connections_max);
        return Ok(());
    }
    if let Some(oldest) = handshake_to_close(&connections, limits.handshakes_max) {
        let oldest = connections.remove(oldest);
        oldest.close();
        // Its thread and its memory are released before the next connection is accepted.
        oldest.join();
        log_refusal(refusals, "too many concurrent handshakes", limits.handshakes_max);
    }
    connections.push(serve_connection(Arc::clone(shared), Socket::new(socket))?);
    Ok(())
}

/// Returns the index of the handshake to close before another one begins. It is one from the
/// address with the most handshakes, so that a host that begins many affects only itself: the
/// oldest one whose client has sent nothing, else the oldest one.
fn handshake_to_close(connections: &[Arc<Connection>], handshakes_max: usize) -> Option<usize> {
    let handshakes = |(_, connection): &(usize, &Arc<Connection>)| connection.is_in_handshake();
    let handshakes: Vec<_> = connections.iter().enumerate().filter(handshakes).collect();
    if handshakes.len() < handshakes_max {
        return None;
    }
    let count_from =
        |peer| handshakes.iter().filter(|(_, connection)| connection.peer == peer).count();
    let busiest = handshakes
        .iter()
        .map(|(_, connection)| connection.peer)
        .max_by_key(|&peer| count_from(peer))?;
    let mut of_busiest = handshakes.iter().filter(|(_, connection)| connection.peer == busiest);
    of_busiest
        .clone()
        .find(|(_, connection)| !connection.socket.has_received())
        .or(of_busiest.next())
        .map(|&(index, _)| index)
}
