//! Mounts, of volumes as files and of directories, and the threads that serve them.
//!
//! Invariant: the mount exists before the server answers the kernel's first request and starts the
//! threads; if that fails, the mount is removed.

use super::abi::capability;
use super::device::Device;
use super::directory::unshare_umask;
use super::files::Files;
use super::handshake::{self, run_handshake};
use super::link::Link;
use super::mount::{self, Mount, MountError, MountOptions, UnmountError};
use super::mount_failure::MountFailure;
use super::ring::{self, PreparedRing, Ring};
use super::shared::{MountContents, Shared};
use super::worker::Worker;
use crate::claim::{Claim, ClaimError};
use crate::engine::{ArenaVolume, Engine};
use crate::fault::{self, Thread};
use crate::front::observe::Observer;
use crate::mount_table::MountRestrictions;
use crate::reclaim::reserve_stack;
use crate::store::AllocationMap;
use crate::waker::Waker;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of threads; more do not improve performance.
const THREADS_MAX: usize = 8;
/// Minimum number of threads of a mounted directory: while one waits for its disk, others answer.
const DIRECTORY_THREADS_MIN: usize = 3;

/// A mount with the threads that serve it.
pub struct RunningMount {
    shared: Arc<Shared>,
    mount: Mount,
    threads: Mutex<Vec<Thread>>,
    replaced_stale: bool,
    /// Prevents other caches from caching the files of volumes.
    claim: Option<Claim>,
    /// Notice of a degraded mode, if any.
    note: Option<String>,
}

impl fmt::Debug for RunningMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningMount").field("mount", &self.mount).finish_non_exhaustive()
    }
}

impl RunningMount {
    /// Mounts `tree` at `at`. A dead mount that a killed Larder process left there is unmounted
    /// first.
    pub(super) fn start(
        engine: Arc<Engine>,
        tree: MountContents,
        at: &Path,
        options: &MountOptions,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, MountError> {
        let refused = |source: io::Error| MountError::Refused { path: at.to_owned(), source };
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (threads_min, capabilities) = match tree {
            MountContents::Volumes(_) => (1, handshake::VOLUME_CAPABILITIES),
            // One of the threads may wait for the directory's disk.
            MountContents::Directory(ref directory) => {
                (DIRECTORY_THREADS_MIN, directory.capabilities())
            }
        };
        let prefault = matches!(tree, MountContents::Volumes(_));
        let (rings, note) = match rings(cpus.min(THREADS_MAX), options.plain, prefault) {
            Ok(rings) => (rings, None),
            Err(note) => (Vec::new(), Some(note)),
        };
        // Only the thread of a ring receives the ring's requests.
        let ring_capability = if rings.is_empty() { 0 } else { capability::OVER_IO_URING };
        let count =
            if ring_capability == 0 { cpus.clamp(threads_min, THREADS_MAX) } else { rings.len() };
        let wakers = (0..count).map(|_| Waker::new());
        let wakers = wakers.collect::<io::Result<Vec<_>>>().map_err(refused)?;
        Claim::check_mountpoint(at)?;
        let (descriptor, mount, replaced_stale) = mount::mount(at, options)?;
        let failure = match &tree {
            MountContents::Volumes(_) => Arc::new(MountFailure::new(at)),
            MountContents::Directory(directory) => Arc::clone(&directory.pool.failure),
        };
        let shared = Arc::new(Shared::new(engine, tree, failure, observer, wakers));
        let threads = Mutex::default();
        // From here on, an error unmounts when this is dropped.
        let mut mounted =
            RunningMount { shared, mount, threads, replaced_stale, claim: None, note };
        // Closed first, as an unmount could wait for replies of an open connection.
        let descriptor = descriptor;
        mounted.claim(options.restrictions)?;
        let agreed = run_handshake(&descriptor, capabilities | ring_capability).map_err(refused)?;
        if let MountContents::Directory(directory) = &mounted.shared.tree {
            directory.set_connection(agreed, &descriptor);
        }
        let uses_rings = agreed & capability::OVER_IO_URING != 0;
        let rings = if uses_rings { rings } else { Vec::new() };
        let threads = start_threads(&mounted.shared, descriptor, rings).map_err(refused)?;
        mounted.threads = Mutex::new(threads);
        Ok(mounted)
    }

    /// Claims the mount: files of volumes get a claim of their own, a directory uses the claim of
    /// its source, whose later restrictions the mount gets too.
    fn claim(&mut self, restrictions: MountRestrictions) -> Result<(), ClaimError> {
        let (mount, filesystem) = (&self.mount, self.mount.filesystem());
        match &self.shared.tree {
            MountContents::Volumes(_) => {
                self.claim = Some(Claim::of_mount(mount.path(), filesystem)?);
            }
            MountContents::Directory(directory) => {
                directory.claim().mounted(mount.path(), filesystem);
                directory.follow_restrictions(mount, restrictions | mount.inherent_restrictions());
            }
        }
        Ok(())
    }

    /// Returns true if a dead mount of a killed process was replaced.
    #[must_use]
    pub fn took_over(&self) -> bool {
        self.replaced_stale
    }

    /// Returns notices of degraded modes, a sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<_> = self.note.iter().cloned().collect();
        if let MountContents::Directory(directory) = &self.shared.tree {
            notes.extend_from_slice(&directory.notes.lock().expect("no holder panics"));
        }
        notes
    }

    /// Sets the callback for a mount that another program has unmounted; calls it at once if that
    /// has happened.
    pub fn when_gone(&self, callback: impl FnOnce() + Send + 'static) {
        *self.shared.unmount_callback.lock().expect("no holder panics") = Some(Box::new(callback));
        self.shared.run_unmount_callback();
    }

    /// Returns true if the kernel has ended the connection: nothing uses the mount any more, also
    /// not through a bind mount, in another mount namespace, or after a lazy unmount.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone()
    }

    /// Returns the mountpoint.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Unmounts. With `lazily`, the mount disappears at once even if programs use it; these are
    /// served until the end of the mount.
    ///
    /// # Errors
    /// If a program uses it, or the kernel reports an error.
    pub fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        let unmounted = &self.shared.unmounted;
        unmounted.store(true, Ordering::Release);
        self.mount.unmount(lazily).inspect_err(|_| unmounted.store(false, Ordering::Release))
    }

    fn shut_down(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.wake_all();
        for thread in self.threads.lock().expect("no holder panics").drain(..) {
            thread.join();
        }
        if let MountContents::Directory(directory) = &self.shared.tree {
            directory.pool.end();
        }
        if !self.shared.unmounted.load(Ordering::Acquire)
            && let Err(error) = self.mount.unmount(true)
        {
            tracing::error!(%error, "the mount was left behind");
        }
    }
}

impl Drop for RunningMount {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.shut_down();
        } else if let Err(error) = self.mount.unmount(true) {
            tracing::error!(%error, "the mount was left behind");
        }
    }
}

/// Volumes shown as files in a directory.
///
/// Call [`RunningMount::unmount`] while no program uses them, then [`VolumeMount::close`].
#[derive(Debug)]
pub struct VolumeMount(RunningMount);

impl Deref for VolumeMount {
    type Target = RunningMount;

    fn deref(&self) -> &RunningMount {
        &self.0
    }
}

impl VolumeMount {
    /// Shows `volumes` as files in the empty directory `at`, each under its name. `observer`
    /// receives the events of all answered requests. `plain`: requests come through /dev/fuse, even
    /// where io_uring is available.
    ///
    /// A dead mount that a killed Larder process left there is unmounted first.
    ///
    /// # Errors
    /// If a volume's name cannot be a file's, the directory cannot be mounted on, or the machine
    /// does not allow it: one sentence that can follow "cannot".
    pub fn start(
        engine: Arc<Engine>,
        at: &Path,
        volumes: Vec<(Arc<ArenaVolume>, Arc<dyn AllocationMap>)>,
        observer: Option<Arc<dyn Observer>>,
        plain: bool,
    ) -> Result<Self, MountError> {
        let files = Files::new();
        for (volume, map) in volumes {
            files.add(volume, map)?;
        }
        let options = MountOptions {
            source: "larder".to_owned(),
            // The helper allows access for other users only if root has enabled that.
            allow_other: rustix::process::geteuid().is_root(),
            check_permissions: true,
            restrictions: MountRestrictions::UNTRUSTED,
            plain,
        };
        RunningMount::start(engine, MountContents::Volumes(files), at, &options, observer)
            .map(VolumeMount)
    }

    /// Returns the path of the file of the volume of this name.
    #[must_use]
    pub fn file(&self, volume: &str) -> PathBuf {
        self.path().join(volume)
    }

    /// Adds a volume as a file.
    ///
    /// # Errors
    /// If its name cannot be a file's.
    pub fn add(
        &self,
        volume: Arc<ArenaVolume>,
        map: Arc<dyn AllocationMap>,
    ) -> Result<(), MountError> {
        self.shared.files().add(volume, map)
    }

    /// Returns the number of opens of the file of this name.
    #[must_use]
    pub fn opens(&self, name: &str) -> usize {
        let file = self.shared.files().by_name(name.as_bytes());
        file.map_or(0, |file| file.opens.load(Ordering::Acquire))
    }

    /// Removes the file of the volume of this name after its requests were answered. Requests that
    /// take longer than `patience` are cancelled, and programs that have the file open get
    /// `ESHUTDOWN` from now on. When this returns, the mount does not use the volume any more.
    /// Returns false if there was no such file.
    pub fn remove(&self, name: &str, patience: Duration) -> bool {
        let Some(file) = self.shared.files().remove(name) else { return false };
        let is_used = || file.sessions.load(Ordering::Acquire) > 0;
        self.shared.wake_all();
        let begin = Instant::now();
        while is_used() {
            if begin.elapsed() >= patience && !file.cancelled.load(Ordering::Acquire) {
                tracing::info!(volume = name, "requests to a removed volume were given up");
                file.cancelled.store(true, Ordering::Release);
                self.shared.wake_all();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Ends the threads. Programs that still use the files get errors from now on.
    pub fn close(self) {
        drop(self);
    }
}

/// Parameter of the kernel module that enables FUSE over io_uring.
const RING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Prepares a ring for each of `threads` threads; none if the kernel has no FUSE over io_uring.
/// Returns a notice if rings would be available but cannot be used.
fn rings(threads: usize, plain: bool, prefault: bool) -> Result<Vec<PreparedRing>, String> {
    let Ok(enabled) = std::fs::read_to_string(RING_PARAMETER) else { return Ok(Vec::new()) };
    if plain {
        return Ok(Vec::new());
    }
    if enabled.trim() != "Y" {
        return Err(format!(
            "requests come through /dev/fuse, which is slower than io_uring: it is \
             disabled in the kernel; enable it before the mount with: echo Y > {RING_PARAMETER}"
        ));
    }
    ring::prepare(threads, prefault).map_err(|error| {
        format!("requests come through /dev/fuse, which is slower than io_uring: {error}")
    })
}

fn start_threads(
    shared: &Arc<Shared>,
    descriptor: rustix::fd::OwnedFd,
    rings: Vec<PreparedRing>,
) -> io::Result<Vec<Thread>> {
    let mut devices = vec![Device::new(descriptor, &shared.wakers[0])?];
    for waker in &shared.wakers[1..] {
        devices.push(Device::new(devices[0].clone_descriptor()?, waker)?);
    }
    let mut rings = rings.into_iter();
    let (started, is_ready) = channel();
    let start = |(index, (device, waker)): (usize, (Device, &Waker))| {
        let (shared, waker, ring) = (Arc::clone(shared), waker.clone(), rings.next());
        let (started, ready_at_panic) = (started.clone(), started.clone());
        let failing_mount = Arc::clone(&shared);
        let cache = Arc::clone(shared.engine.cache());
        let run = move || {
            reserve_stack();
            fault::point("fuse", shared.failure.name());
            let device = Arc::new(device);
            // A ring belongs to the thread that enables it.
            let begin = |ring| Ring::begin(ring, Arc::clone(&device), waker.clone(), index == 0);
            let (status, ring) = match ring.map(begin).transpose() {
                Ok(ring) => (Ok(()), Some(ring)),
                Err(error) => (Err(error), None),
            };
            // The starting thread may have returned with an error already.
            let _is_received = started.send(status).is_ok();
            let Some(ring) = ring else { return shared.thread_ended() };
            let worker = Worker::new(shared, Link::new(device, ring), waker);
            if worker.creates_files() {
                unshare_umask();
            }
            worker.run();
        };
        let failed = move |error: &dyn fmt::Display| {
            failing_mount.failure.fail(error);
            failing_mount.thread_ended();
            // If the thread was not ready yet, the start waits for it.
            let error = io::Error::other(error.to_string());
            let _is_received = ready_at_panic.send(Err(error)).is_ok();
        };
        fault::spawn("fuse", Some(&cache), run, failed)
    };
    let threads = devices.into_iter().zip(&shared.wakers).enumerate().map(start);
    let threads = threads.collect::<io::Result<Vec<_>>>()?;
    for _ in &threads {
        let gone = |_| io::Error::other("a thread of the mount is gone");
        is_ready.recv().map_err(gone)??;
    }
    Ok(threads)
}
