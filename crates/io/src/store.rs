//! Stores: files and block devices of this machine, exports of other servers.
//!
//! [`open`] opens and locks a path, determines its type, and returns the best store that the kernel
//! allows: io_uring with direct I/O if possible, otherwise without direct I/O or with plain calls
//! and a note that says so. [`open_nbd`] connects to an export of an NBD server.

mod backing;
pub(crate) mod directory;
mod error;
mod file;
pub(crate) mod files;
mod gather;
mod map;
mod nbd;
mod plain;
mod uring;

pub(crate) use file::file_size_limit;
pub use file::{OpenError, OpenedFile, open_file};
pub use map::{AllocationMap, FileMap, MapExtent, SolidMap};
pub use nbd::{NbdOptions, Upstream, open_nbd};

use crate::frames::ArenaFrames;
use crate::waker::Waker;
use backing::Backing;
use larder_core::clock::{Clock, Nanos};
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp};
use plain::PlainStore;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uring::UringStore;

/// A store that an engine thread can sleep on.
pub trait EngineStore: Store<ArenaFrames> {
    /// Sleeps until an operation is done, the waker is notified, or `timeout` has passed.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()>;

    /// Returns the control of a store on a server, whose thread may wait for that server.
    fn peer_control(&self) -> Option<Arc<PeerControl>> {
        None
    }
}

/// Control of a store on a server by other threads than its own.
#[derive(Debug, Default)]
pub struct PeerControl {
    ended: Arc<AtomicBool>,
    unflushed: AtomicBool,
}

impl PeerControl {
    /// Ends all waits for the server: operations in flight and all later ones fail.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the flag that [`PeerControl::end`] sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ended)
    }

    /// Returns true if the store has passed a change to the server that is not known to be stable.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    pub(crate) fn set_unflushed(&self, unflushed: bool) {
        self.unflushed.store(unflushed, Ordering::Release);
    }
}

/// A store without a file descriptor (a model, a double, plain calls), for an engine thread: the
/// thread sleeps until the store's next event.
pub struct TimedStore<S> {
    inner: S,
    clock: Arc<dyn Clock>,
}

impl<S> fmt::Debug for TimedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedStore").finish_non_exhaustive()
    }
}

impl<S: Store<ArenaFrames>> TimedStore<S> {
    /// Wraps `inner`, whose times are those of `clock`.
    pub fn new(inner: S, clock: Arc<dyn Clock>) -> Self {
        TimedStore { inner, clock }
    }
}

impl<S: Store<ArenaFrames>> Store<ArenaFrames> for TimedStore<S> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, now: Nanos, frames: &ArenaFrames, op: StoreOp<ArenaFrames>) {
        self.inner.submit(now, frames, op);
    }

    fn reap(
        &mut self,
        now: Nanos,
        frames: &ArenaFrames,
        done: &mut Vec<StoreCompletion<ArenaFrames>>,
    ) {
        self.inner.reap(now, frames, done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.inner.next_event()
    }
}

impl<S: Store<ArenaFrames>> EngineStore for TimedStore<S> {
    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let event = self.inner.next_event().map(|at| at.saturating_sub(self.clock.now()));
        let event = event.map(Duration::from_nanos);
        waker.sleep(None, event.into_iter().chain(timeout).min())
    }
}

/// An opened store, with notes for the user.
pub struct OpenedStore {
    /// The store.
    pub store: Box<dyn EngineStore>,
    /// Allocation map of the store.
    pub map: Arc<dyn AllocationMap>,
    /// One sentence for each way in which the store is slower or less safe than it could be.
    pub notes: Vec<String>,
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedStore").field("notes", &self.notes).finish_non_exhaustive()
    }
}

/// Options for opening a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Never write; several readers may share the store.
    pub read_only: bool,
    /// Use plain calls even if io_uring is available.
    pub plain: bool,
}

/// Opens and locks a file or block device.
///
/// # Errors
/// One sentence with path and reason: missing, not a file or device, no permission, in use, not a
/// multiple of 512 bytes long, empty.
pub fn open(
    path: &Path,
    options: OpenOptions,
    clock: Arc<dyn Clock>,
) -> Result<OpenedStore, OpenError> {
    let file = open_file(path, options.read_only)?;
    let mut notes = file.notes.clone();
    if !file.is_device && !options.read_only {
        notes.extend(file::size_limit_note(path, file.geometry.length));
    }
    let map: Arc<dyn AllocationMap> = Arc::new(FileMap::new(&file)?);
    let subject = format!("{} is", path.display());
    let (store, slow) = store_on(Arc::new(file), &subject, options.plain, clock);
    notes.extend(slow);
    Ok(OpenedStore { store, map, notes })
}

/// Returns a store on io_uring, or on plain calls if `plain` or without io_uring. A note says the
/// latter; `subject` begins its sentence: "FILE is".
fn store_on(
    backing: Arc<dyn Backing>,
    subject: &str,
    plain: bool,
    clock: Arc<dyn Clock>,
) -> (Box<dyn EngineStore>, Option<String>) {
    let uring = (!plain).then(|| UringStore::new(Arc::clone(&backing)));
    let denied = match uring {
        Some(Ok(store)) => return (Box::new(store), None),
        other => other.and_then(Result::err),
    };
    let note = denied.map(|error| {
        format!(
            "io_uring is not available ({error}): {subject} read and written with plain calls, \
             one at a time; allow io_uring_setup(2) to have it faster"
        )
    });
    let store = PlainStore::new(backing, Arc::clone(&clock));
    (Box::new(TimedStore::new(store, clock)), note)
}
