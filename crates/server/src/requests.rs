//! Requests to a running server from signals, the control interface and the service itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request to a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequest {
    /// Write everything and end: SIGTERM, SIGINT, SIGPWR.
    Stop,
    /// Print a table of counters: SIGUSR1.
    Report,
    /// Read the configuration file again: SIGHUP.
    Reload,
}

/// Sends requests.
#[derive(Clone, Debug)]
pub struct RequestSender {
    sender: Sender<ServerRequest>,
    stop: Arc<AtomicBool>,
}

impl RequestSender {
    /// Sends a request; returns true if the server can still receive it.
    #[must_use]
    pub fn send(&self, request: ServerRequest) -> bool {
        if request == ServerRequest::Stop {
            self.stop.store(true, Ordering::Release);
        }
        self.sender.send(request).is_ok()
    }

    /// Returns true once a stop was requested, also before the server receives the request.
    #[must_use]
    pub fn is_stop_requested(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Receives requests.
#[derive(Debug)]
pub struct RequestReceiver(Mutex<Receiver<ServerRequest>>);

impl RequestReceiver {
    /// Returns the next request; `None` if none arrives within `timeout`.
    ///
    /// # Panics
    /// Never: no holder of the lock panics.
    pub fn wait(&self, timeout: Duration) -> Option<ServerRequest> {
        self.0.lock().expect("no holder panics").recv_timeout(timeout).ok()
    }
}

/// Returns a channel for requests.
#[must_use]
pub fn request_channel() -> (RequestSender, RequestReceiver) {
    let (sender, receiver) = channel();
    (RequestSender { sender, stop: Arc::default() }, RequestReceiver(Mutex::new(receiver)))
}
