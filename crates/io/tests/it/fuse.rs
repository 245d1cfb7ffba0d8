//! Volumes as files, through the kernel: contents against models, guarantees, refusals, volumes
//! that are added and removed. After each test no frame may be pinned, and all counters must be
//! consistent.
//!
//! The tests need root and a machine with FUSE; otherwise each one reports why it is skipped.

#![expect(unsafe_code, reason = "the tests make system calls directly")]
mod come_and_go;
mod model;
mod nodes;
mod promises;
mod ways;

use crate::common::rig;
use larder_core::store::Store;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::frames::ArenaFrames;
use larder_io::front::fuse::VolumeMount;
use larder_io::store::{AllocationMap, SolidMap};
use larder_testing::can_mount;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A mount with a volume called disk.
struct Service {
    engine: Arc<Engine>,
    volume: Arc<ArenaVolume>,
    /// Taken out to be closed.
    mount: Option<VolumeMount>,
    /// Removes the mountpoint when no file system is mounted there.
    directory: TempDir,
}

impl Service {
    /// Mounts a volume of `length` bytes on `store` in a cache of `memory` bytes.
    fn new(memory: u64, length: u64, store: impl Store<ArenaFrames> + 'static) -> Self {
        let engine = rig::engine(memory);
        let volume = rig::volume(&engine, "disk", length, store);
        Service::start(engine, volume, Arc::new(SolidMap))
    }

    fn start(engine: Arc<Engine>, volume: Arc<ArenaVolume>, map: Arc<dyn AllocationMap>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let volumes = vec![(Arc::clone(&volume), map)];
        let mount = VolumeMount::start(Arc::clone(&engine), directory.path(), volumes, None, false);
        Service { engine, volume, mount: Some(mount.expect("a mount")), directory }
    }

    fn mount(&self) -> &VolumeMount {
        self.mount.as_ref().expect("until the end")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens the file of the volume, for reading and writing.
    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).open(self.path("disk")).expect("it is there")
    }

    fn end(mut self) {
        let mount = self.mount.take().expect("until the end");
        // A program that another test is about to start has all files open until it runs.
        rig::eventually("it is not in use", || mount.unmount(false).is_ok());
        mount.close();
        rig::end(&self.engine);
    }
}

impl Drop for Service {
    /// Unmounts also after a failure.
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            drop(mount.unmount(true));
        }
    }
}
