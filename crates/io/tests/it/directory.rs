//! A directory with a cache, through the kernel: the results of programs are compared with a plain
//! directory on the same file system and with models; guarantees and changes behind the mount are
//! tested. After each test no frame may be pinned, and all counters must be consistent.
//!
//! The tests need root and a machine with FUSE; otherwise each one reports why it is skipped.

#![expect(unsafe_code, reason = "the tests make system calls directly")]
#![expect(clippy::print_stderr, reason = "the seed of a failure is printed")]
#![expect(clippy::large_stack_arrays, reason = "what is compared is short to write so")]

mod asynchronous;
mod behind;
mod contents;
mod direct;
mod elsewhere;
mod faults;
mod holes;
mod locks;
mod mapped;
mod mirror;
mod mountpoint;
mod names;
mod private;
mod privileges;
mod promises;
mod restrictions;
mod rules;
mod shared;
mod times;
mod unnamed;

use crate::common::{lazy::keep_dirty, rig};
use larder_core::mode::WriteMode;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{ArenaVolume, Engine};
use larder_io::front::fuse::{
    Directory, DirectoryMount, DirectoryOptions, FileGlob, FileOptions, FileRule, MountRestrictions,
};
use larder_testing::can_mount;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A buffer for direct I/O.
#[repr(C, align(4096))]
struct Aligned<const BYTES: usize>([u8; BYTES]);

/// Options for files whose names match a glob.
#[derive(Clone, Copy)]
struct Rule {
    glob: &'static str,
    files: FileOptions,
    mode: WriteMode,
    page_blocks: u32,
}

/// Returns a rule with default options, from which others are made.
fn rule(glob: &'static str) -> Rule {
    Rule { glob, files: FileOptions::default(), mode: WriteMode::Back, page_blocks: 1 }
}

/// Options of a mount for a test.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
struct Setting {
    memory: u64,
    mode: WriteMode,
    /// Dirty data is written only when it must be.
    lazy: bool,
    plain: bool,
    /// Only the user that mounts has access, and the kernel does not check it.
    private: bool,
    ttl: Duration,
    shared: bool,
    rest: FileOptions,
    rules: &'static [Rule],
}

impl Default for Setting {
    fn default() -> Self {
        let ttl = Duration::from_secs(1);
        Setting {
            memory: 16 * MIB,
            mode: WriteMode::Back,
            lazy: false,
            plain: false,
            private: false,
            ttl,
            shared: false,
            rest: FileOptions::default(),
            rules: &[],
        }
    }
}

/// A mounted directory.
struct Service {
    engine: Arc<Engine>,
    /// Taken out to be closed.
    mount: Option<DirectoryMount>,
    source: TempDir,
    /// Removes the mountpoint when no file system is mounted there.
    at: TempDir,
}

impl Service {
    fn new(setting: Setting) -> Self {
        Service::over(tempfile::tempdir().expect("a directory"), setting)
    }

    fn over(source: TempDir, setting: Setting) -> Self {
        Service::at(tempfile::tempdir().expect("a directory"), source, setting)
    }

    /// Mounts `source` at the empty directory `at`.
    fn at(at: TempDir, source: TempDir, setting: Setting) -> Self {
        let engine = rig::engine(setting.memory);
        let read_only = setting.mode == WriteMode::ReadOnly;
        let rules = setting.rules.iter().map(|rule| FileRule {
            glob: FileGlob::parse(rule.glob).expect("a glob"),
            files: rule.files,
        });
        let options = DirectoryOptions {
            read_only,
            restrictions: MountRestrictions::NONE,
            ttl: setting.ttl,
            shared: setting.shared,
            plain: setting.plain,
            rules: rules.collect(),
            rest: setting.rest,
        };
        let opened = Directory::open(source.path(), options, &engine.clock()).expect("a directory");
        let cached = setting.rules.iter().filter(|rule| !rule.files.uncached);
        let of_rules = cached.map(|rule| (rule.glob, rule.mode, rule.page_blocks));
        let planned = std::iter::once(("files", setting.mode, 1)).chain(of_rules);
        let volumes = planned.zip(opened.stores).map(|((name, mode, page_blocks), store)| {
            let mut volume = VolumeOptions::new(name, store.geometry());
            (volume.write_mode, volume.page_blocks) = (mode, page_blocks);
            let volume = engine.add_volume(volume, store).expect("a thread");
            if setting.lazy {
                keep_dirty(&volume);
            }
            volume
        });
        let volumes = volumes.collect();
        let others = !setting.private;
        let mount = DirectoryMount::start(
            Arc::clone(&engine),
            opened.directory,
            volumes,
            at.path(),
            others,
        );
        Service { engine, mount: Some(mount.expect("a mount")), source, at }
    }

    /// Returns a path through the mount.
    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    /// Returns the same path in the directory behind the cache.
    fn behind(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    /// Returns the number of bytes that the directory does not have yet.
    fn dirty(&self) -> u64 {
        self.volumes().iter().map(|volume| volume.unclean_bytes()).sum()
    }

    /// Returns the volume of files without a rule, and those of rules.
    fn volumes(&self) -> &[Arc<ArenaVolume>] {
        self.mount.as_ref().expect("until the end").volumes()
    }

    /// Unmounts, writes everything, and checks that all counters are consistent. Returns the
    /// directory.
    fn end(mut self) -> TempDir {
        let mount = self.mount.take().expect("until the end");
        // A program that another test is about to start has all files open until it runs.
        rig::eventually("it is not in use", || mount.unmount(false).is_ok());
        self.finish(mount)
    }

    /// Does the same after another program has unmounted it.
    fn end_unmounted(mut self) -> TempDir {
        let mount = self.mount.take().expect("until the end");
        self.finish(mount)
    }

    fn finish(mut self, mount: DirectoryMount) -> TempDir {
        mount.close();
        self.engine.drain(|_| {}).expect("the directory can be written");
        rig::end(&self.engine);
        let source = tempfile::tempdir().expect("a directory");
        std::mem::replace(&mut self.source, source)
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
