//! The connection to the server, and reconnection.
//!
//! While there is none, a separate thread tries to connect: immediately, then after 0.1 s, then
//! after twice as long each time, up to 5 s, until the server replies on a connection. Neither a
//! name that is not found nor a host that does not reply blocks the thread of the store.

use crate::fault::{self, point};
use crate::nbd_client::{Client, ClientError, ConnectOptions, NbdUri};
use crate::waker::Waker;
use larder_core::clock::{MILLISECOND, Nanos, SECOND};
use larder_core::completion::Wake;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

const DELAY_MIN: Nanos = 100 * MILLISECOND;
const DELAY_MAX: Nanos = 5 * SECOND;

type Outcome = Result<Client, ClientError>;

/// Reports the outcome of an attempt to the thread of the store.
fn report_outcome(to: &Mutex<Option<Outcome>>, waker: &Waker, outcome: Outcome) {
    *to.lock().expect("no holder panics") = Some(outcome);
    waker.wake();
}

/// A connection, or the attempts to establish one.
pub(super) enum Link {
    Up(Connected),
    Down(Disconnected),
}

/// A time without a useful connection. It ends when the server answers a request: a connection that
/// is lost before that does not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// Time at which the connection was lost.
    pub(super) since: Nanos,
    /// Delay before the latest attempt.
    delay: Nanos,
}

pub(super) struct Connected {
    pub(super) client: Box<Client>,
    since: Nanos,
    /// The outage that this connection ends with its first answer.
    pub(super) outage: Option<Outage>,
    /// Cookie of the first request sent through this connection.
    pub(super) first_sent: Option<u64>,
}

pub(super) struct Disconnected {
    pub(super) outage: Outage,
    /// The reason of the outage, or of the last failed attempt: can follow "cannot".
    pub(super) reason: String,
    retry_at: Nanos,
    attempt: Option<Arc<Mutex<Option<Outcome>>>>,
}

impl Connected {
    pub(super) fn new(client: Box<Client>, now: Nanos, outage: Option<Outage>) -> Self {
        Connected { client, since: now, outage, first_sent: None }
    }

    /// Returns the state after the loss of this connection.
    pub(super) fn lost(&self, now: Nanos, reason: String) -> Disconnected {
        let Some(outage) = self.outage else {
            let outage = Outage { since: now, delay: 0 };
            // A server that replies, and closes each connection soon, gets only a few of them.
            let retry_at = now.max(self.since.saturating_add(DELAY_MIN));
            return Disconnected { outage, reason, retry_at, attempt: None };
        };
        let mut down = Disconnected { outage, reason: String::new(), retry_at: now, attempt: None };
        down.schedule_retry(now, reason);
        down
    }
}

impl Disconnected {
    /// Starts an attempt if it is time for one. Returns the time of the next call, unless an
    /// attempt is running, which notifies `waker`.
    pub(super) fn start_attempt(
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
            report_outcome(&to, &waker, Client::connect_with(&uri, options));
        };
        let failed = move |panic: &dyn fmt::Display| {
            tracing::error!("an attempt to reconnect has failed: {panic}");
            let error = ClientError::Io(io::Error::other(panic.to_string()));
            report_outcome(&to_at_panic, &waker_at_panic, Err(error));
        };
        let spawned = fault::spawn("reconnect", None, connect, failed);
        match spawned {
            Ok(_) => {
                self.attempt = Some(outcome);
                None
            }
            Err(error) => {
                self.schedule_retry(now, format!("start a thread: {error}"));
                Some(self.retry_at)
            }
        }
    }

    /// Returns the connection, if an attempt has established one.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Client> {
        let outcome = self.attempt.as_ref()?.lock().expect("no holder panics").take()?;
        self.attempt = None;
        match outcome {
            Ok(client) => Some(client),
            Err(error) => {
                self.schedule_retry(now, error.to_string());
                None
            }
        }
    }

    pub(super) fn schedule_retry(&mut self, now: Nanos, reason: String) {
        self.outage.delay = (self.outage.delay * 2).clamp(DELAY_MIN, DELAY_MAX);
        self.retry_at = now + self.outage.delay;
        self.reason = reason;
    }
}
