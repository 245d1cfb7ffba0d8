//! The connection to the server, and the way back to one.
//!
//! While there is none, a thread of its own tries to connect, at once and then after 0.1 s, twice
//! as long each time, up to 5 s: neither a name that is not found nor a host that does not answer
//! keeps the thread of the store.

use crate::fault::{self, point};
use crate::nbd_client::{Client, ClientError, ConnectOptions, NbdUri};
use crate::wake::Waker;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::lane::Notify;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

const DELAY_MIN: Nanos = 100 * MILLISECOND;
const DELAY_MAX: Nanos = 5 * SECOND;

type Outcome = Result<Client, ClientError>;

/// Reports the outcome of an attempt to the thread of the store.
fn set(to: &Mutex<Option<Outcome>>, waker: &Waker, outcome: Outcome) {
    *to.lock().expect("no holder panics") = Some(outcome);
    waker.notify();
}

/// A connection, or what is done to have one.
pub(super) enum Link {
    Up(Box<Client>),
    Down(Down),
}

/// Without a connection.
pub(super) struct Down {
    /// When it was lost.
    pub(super) since: Nanos,
    /// Why, or why there still is none: can follow "failed to".
    pub(super) reason: String,
    retry_at: Nanos,
    delay: Nanos,
    attempt: Option<Arc<Mutex<Option<Outcome>>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Up(_) => f.write_str("Up"),
            Link::Down(down) => write!(f, "Down({})", down.reason),
        }
    }
}

impl Down {
    pub(super) fn new(now: Nanos, reason: String) -> Self {
        Down { since: now, reason, retry_at: now, delay: 0, attempt: None }
    }

    /// Starts a try if it is time for one; says when to look again, if `waker` does not.
    pub(super) fn tend(
        &mut self,
        now: Nanos,
        (uri, options): (&NbdUri, ConnectOptions),
        waker: &Waker,
    ) -> Option<Nanos> {
        if self.attempt.is_some() {
            return None;
        }
        if now < self.retry_at {
            return Some(self.retry_at);
        }
        let outcome = Arc::new(Mutex::new(None));
        let (uri, to, waker) = (uri.clone(), Arc::clone(&outcome), waker.clone());
        let (to_at_panic, waker_at_panic) = (Arc::clone(&to), waker.clone());
        let connect = move || {
            point("reconnect", &uri.export);
            set(&to, &waker, Client::connect_with(&uri, options));
        };
        let failed = move |panic: &dyn fmt::Display| {
            tracing::error!("an attempt to reconnect has failed: {panic}");
            let error = ClientError::Io(io::Error::other(panic.to_string()));
            set(&to_at_panic, &waker_at_panic, Err(error));
        };
        let spawned = fault::spawn("reconnect", None, connect, failed);
        match spawned {
            Ok(_) => {
                self.attempt = Some(outcome);
                None
            }
            Err(error) => {
                self.failed(now, format!("start a thread: {error}"));
                Some(self.retry_at)
            }
        }
    }

    /// The connection, if a try has brought one.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Client> {
        let outcome = self.attempt.as_ref()?.lock().expect("no holder panics").take()?;
        self.attempt = None;
        match outcome {
            Ok(client) => Some(client),
            Err(error) => {
                self.failed(now, error.to_string());
                None
            }
        }
    }

    /// A try failed: the next one comes later.
    pub(super) fn failed(&mut self, now: Nanos, reason: String) {
        self.delay = (self.delay * 2).clamp(DELAY_MIN, DELAY_MAX);
        self.retry_at = now + self.delay;
        self.reason = reason;
    }
}
