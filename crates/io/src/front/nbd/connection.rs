//! The handle of an NBD server to a connection.

use super::exports::Export;
use super::socket::Socket;
use crate::fault::Thread;
use crate::waker::Waker;
use larder_core::completion::Notify;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Handle of the server to a connection.
pub(super) struct Connection {
    pub(super) socket: Arc<Socket>,
    pub(super) waker: Waker,
    pub(super) done: Arc<AtomicBool>,
    /// The export, once it is negotiated.
    pub(super) export: Arc<OnceLock<Export>>,
    /// Address of a TCP client.
    pub(super) peer: Option<IpAddr>,
    /// True if the server ends the connection, even with requests in flight.
    pub(super) close_requested: Arc<AtomicBool>,
    pub(super) thread: Mutex<Option<Thread>>,
}

impl Connection {
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Returns true while the client has not negotiated an export.
    pub(super) fn is_in_handshake(&self) -> bool {
        self.export.get().is_none() && !self.is_done()
    }

    /// Returns true if the client has sent anything.
    pub(super) fn has_received(&self) -> bool {
        self.socket.has_received()
    }

    /// Returns the address of a TCP client.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    pub(super) fn serves(&self, export: &Export) -> bool {
        self.export.get().is_some_and(|current| current.is_same(export))
    }

    /// Wakes the connection's thread, to check whether its export was removed.
    pub(super) fn wake(&self) {
        self.waker.notify();
    }

    pub(super) fn close(&self) {
        self.close_requested.store(true, Ordering::Release);
        self.socket.shut_down();
        self.waker.notify();
    }

    pub(super) fn join(&self) {
        if let Some(thread) = self.thread.lock().expect("no holder panics").take() {
            thread.join();
        }
    }
}
