//! A connection, as its thread and the server share it.

use super::exports::Export;
use super::socket::Socket;
use crate::fault::Thread;
use crate::waker::Waker;
use larder_core::completion::Wake;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// State that the thread of a connection shares with the server.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) waker: Waker,
    /// The export, once it is negotiated.
    pub(super) export: OnceLock<Export>,
    /// Address of a TCP client.
    pub(super) peer: Option<IpAddr>,
    /// True if the server ends the connection, even with requests in flight.
    pub(super) close_requested: AtomicBool,
    pub(super) done: AtomicBool,
    /// The thread, until it is joined.
    pub(super) thread: Mutex<Option<Thread>>,
}

impl Connection {
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        Ok(Connection {
            peer: socket.peer(),
            socket,
            waker: Waker::new()?,
            export: OnceLock::new(),
            close_requested: AtomicBool::new(false),
            done: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub(super) fn is_in_handshake(&self) -> bool {
        self.export.get().is_none() && !self.is_done()
    }

    pub(super) fn serves(&self, export: &Export) -> bool {
        !self.is_done() && self.export.get().is_some_and(|current| current.is_same(export))
    }

    pub(super) fn close(&self) {
        self.close_requested.store(true, Ordering::Release);
        self.socket.shut_down();
        self.waker.wake();
    }

    pub(super) fn join(&self) {
        if let Some(thread) = self.thread.lock().expect("no holder panics").take() {
            thread.join();
        }
    }
}
