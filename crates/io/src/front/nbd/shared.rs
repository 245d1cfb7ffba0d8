//! State that the connections of an NBD server share.

use super::connection::Connection;
use super::exports::Exports;
use super::options::{ServerLimits, TlsOptions};
use crate::engine::Engine;
use crate::front::observe::Observer;
use crate::front::spin::Spinners;
use crate::waker::Waker;
use larder_core::request::Budget;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) exports: Exports,
    pub(super) limits: ServerLimits,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) tls: TlsOptions,
    /// Connections that spin for their next request instead of sleeping.
    pub(super) spinners: Spinners,
    pub(super) closing: AtomicBool,
    /// Memory budget of the requests of all connections.
    pub(super) budget: Arc<Budget>,
    pub(super) connections: Mutex<Vec<Arc<Connection>>>,
    /// Wakes the thread that accepts connections and releases those that have ended.
    pub(super) acceptor: Waker,
    /// Number of connections that have negotiated an export.
    pub(super) serving: AtomicUsize,
}

/// One of the `connections_max` slots; freed when it is dropped.
pub(super) struct ConnectionSlot<'a>(&'a AtomicUsize);

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Takes a slot for a client that has negotiated an export; none if all slots are taken.
    pub(super) fn take_slot(&self) -> Option<ConnectionSlot<'_>> {
        let limit = self.limits.connections_max;
        let increment = |serving: usize| (serving < limit).then_some(serving + 1);
        self.serving.fetch_update(Ordering::AcqRel, Ordering::Acquire, increment).ok()?;
        Some(ConnectionSlot(&self.serving))
    }

    /// Returns the connections. The list changes in one step, so a panic leaves it consistent.
    pub(super) fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
