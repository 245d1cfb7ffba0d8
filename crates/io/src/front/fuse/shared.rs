//! The state that all threads of a mount share.

use super::directory::Directory;
use super::files::Files;
use super::mount_failure::MountFailure;
use crate::engine::Engine;
use crate::front::observe::Observer;
use crate::front::spin::Spinners;
use crate::waker::Waker;
use larder_core::completion::Wake;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(super) enum MountContents {
    Volumes(Files),
    /// A directory, whose files are one volume, or one for each of its sections.
    Directory(Arc<Directory>),
}

pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) tree: MountContents,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) spinners: Spinners,
    pub(super) closing: AtomicBool,
    pub(super) wakers: Vec<Waker>,
    running: AtomicUsize,
    /// True if this process has unmounted it.
    pub(super) unmounted: AtomicBool,
    /// True if another program has unmounted it, or the kernel has aborted the connection.
    is_gone: AtomicBool,
    /// Called once when that has happened.
    pub(super) unmount_callback: Mutex<Option<UnmountCallback>>,
    pub(super) failure: Arc<MountFailure>,
}

/// Callback for a mount that another program has unmounted.
pub(super) type UnmountCallback = Box<dyn FnOnce() + Send>;

impl Shared {
    pub(super) fn new(
        engine: Arc<Engine>,
        tree: MountContents,
        failure: Arc<MountFailure>,
        observer: Option<Arc<dyn Observer>>,
        wakers: Vec<Waker>,
    ) -> Self {
        if let MountContents::Directory(directory) = &tree {
            directory.pool.set_wakers(&wakers);
        }
        Shared {
            engine,
            tree,
            failure,
            observer,
            spinners: Spinners::new(),
            closing: AtomicBool::new(false),
            running: AtomicUsize::new(wakers.len()),
            wakers,
            unmounted: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            unmount_callback: Mutex::new(None),
        }
    }

    pub(super) fn files(&self) -> &Files {
        match &self.tree {
            MountContents::Volumes(files) => files,
            MountContents::Directory(_) => {
                unreachable!("requests to a directory are not about volumes")
            }
        }
    }

    pub(super) fn thread_ended(&self) {
        let is_last = self.running.fetch_sub(1, Ordering::AcqRel) == 1;
        if !is_last || self.is_closing() {
            return;
        }
        if let MountContents::Directory(directory) = &self.tree {
            directory.pool.sweep.set_gone();
        }
        self.is_gone.store(true, Ordering::Release);
        if !self.unmounted.load(Ordering::Acquire) {
            tracing::info!("another process has unmounted the file system");
            self.run_unmount_callback();
        }
    }

    /// Returns true if the kernel has ended the connection.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(super) fn run_unmount_callback(&self) {
        if self.is_gone()
            && let Some(callback) = self.unmount_callback.lock().expect("no holder panics").take()
        {
            callback();
        }
    }

    /// Wakes all threads, to check the changed state.
    pub(super) fn wake_all(&self) {
        for waker in &self.wakers {
            waker.wake();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}
