//! Connections of the control interface, and the limits on their number.
//!
//! A new connection is always accepted. Until its first request is accepted, it can only replace
//! other connections without an accepted request: clients that send nothing, or have no token,
//! never block a client with the token. A connection that is closed for another one has the same or
//! a lower rank, and is the oldest of its rank.

use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::AbortHandle;

/// Maximum number of connections that have not sent a byte.
const SILENT_MAX: usize = 128;
/// Maximum number of connections without an accepted request. Each has a buffer for its head.
const UNPROVEN_MAX: usize = 16;
/// Maximum number of connections of clients that may control the server.
const TRUSTED_MAX: usize = 16;

/// Trust in the client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Silent,
    Unproven,
    /// Trusted, and between two requests.
    Idle,
    /// Trusted, with a request in progress.
    Answering,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    rank: Rank,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Entries {
    /// Entries in order of age, oldest first.
    entries: Vec<Entry>,
    next_id: u64,
}

impl Entries {
    fn count(&self, is: impl Fn(Rank) -> bool) -> usize {
        self.entries.iter().filter(|entry| is(entry.rank)).count()
    }

    /// Closes the oldest connection of a rank; returns true if there was one.
    fn close_oldest(&mut self, rank: Rank) -> bool {
        let Some(oldest) = self.entries.iter().position(|entry| entry.rank == rank) else {
            return false;
        };
        self.entries.remove(oldest).task.abort();
        true
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }
}

/// The connections of one socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Entries>>);

/// A connection in the list; dropping it removes the entry.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Connections,
    id: u64,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("no holder panics")
    }

    /// Returns a handle for a new connection; [`Connections::add`] adds its task.
    pub(super) fn register(&self) -> Connection {
        let mut entries = self.lock();
        entries.next_id += 1;
        Connection { connections: self.clone(), id: entries.next_id }
    }

    /// Adds the connection `id`, which has sent nothing yet, with its task.
    pub(super) fn add(&self, id: u64, task: AbortHandle) {
        let mut entries = self.lock();
        if entries.count(|rank| rank == Rank::Silent) >= SILENT_MAX {
            entries.close_oldest(Rank::Silent);
        }
        entries.entries.push(Entry { id, rank: Rank::Silent, task });
    }
}

impl Connection {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Records that the client has sent data.
    pub(super) fn record_input(&self) {
        let mut entries = self.connections.lock();
        if entries.count(|rank| rank == Rank::Unproven) >= UNPROVEN_MAX {
            entries.close_oldest(Rank::Unproven);
        }
        if let Some(entry) = entries.entry(self.id) {
            entry.rank = Rank::Unproven;
        }
    }

    /// Records that a request is accepted; returns false if too many are in progress.
    pub(super) fn begin_answer(&self) -> bool {
        let mut entries = self.connections.lock();
        let is_trusted = |rank| matches!(rank, Rank::Idle | Rank::Answering);
        let is_new = entries.entry(self.id).is_some_and(|entry| !is_trusted(entry.rank));
        if is_new && entries.count(is_trusted) >= TRUSTED_MAX && !entries.close_oldest(Rank::Idle) {
            return false;
        }
        if let Some(entry) = entries.entry(self.id) {
            entry.rank = Rank::Answering;
        }
        true
    }

    /// Records that the request was answered.
    pub(super) fn end_answer(&self) {
        if let Some(entry) = self.connections.lock().entry(self.id) {
            entry.rank = Rank::Idle;
        }
    }

    /// Returns true if a request of the client was accepted.
    pub(super) fn is_trusted(&self) -> bool {
        let mut entries = self.connections.lock();
        entries
            .entry(self.id)
            .is_some_and(|entry| matches!(entry.rank, Rank::Idle | Rank::Answering))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().entries.retain(|entry| entry.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of connections whose tasks never end on their own.
    struct Tasks {
        runtime: tokio::runtime::Runtime,
        connections: Connections,
    }

    impl Tasks {
        fn connect(&self) -> (Connection, tokio::task::JoinHandle<()>) {
            let connection = self.connections.register();
            let task = self.runtime.spawn(std::future::pending());
            self.connections.add(connection.id(), task.abort_handle());
            (connection, task)
        }

        fn is_closed(&self, task: &tokio::task::JoinHandle<()>) -> bool {
            self.runtime.block_on(tokio::task::yield_now());
            task.is_finished()
        }
    }

    #[test]
    fn clients_without_a_right_close_each_other_and_nobody_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tasks = Tasks { runtime, connections: Connections::default() };
        let trusted: Vec<_> = (0..TRUSTED_MAX)
            .map(|_| {
                let (connection, task) = tasks.connect();
                connection.record_input();
                assert!(connection.begin_answer());
                (connection, task)
            })
            .collect();
        let (first, first_task) = tasks.connect();
        let others: Vec<_> = (0..1000)
            .map(|number| {
                let one = tasks.connect();
                if number % 2 == 0 {
                    one.0.record_input();
                }
                one
            })
            .collect();
        assert!(tasks.is_closed(&first_task), "the oldest silent one");
        assert!(!first.is_trusted());
        assert!(trusted.iter().all(|(_, task)| !tasks.is_closed(task)));
        let open = others.iter().filter(|(_, task)| !tasks.is_closed(task)).count();
        assert!(open <= SILENT_MAX + UNPROVEN_MAX, "{open}");
        // A new trusted client replaces an idle one, but none with a request in progress.
        let (last, _task) = tasks.connect();
        last.record_input();
        assert!(!last.begin_answer(), "all are being answered");
        trusted[3].0.end_answer();
        assert!(last.begin_answer() && last.is_trusted());
        assert!(tasks.is_closed(&trusted[3].1));
        drop((trusted, others, first, last));
        assert!(tasks.connections.lock().entries.is_empty());
    }
}
