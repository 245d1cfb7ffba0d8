//! A directory with a cache, through the kernel: what programs see against a plain directory on the same
//! file system and against models, promises, and what other programs change behind it. After each
//! test nothing may be held and every number must add up.
//!
//! As root on a machine with FUSE; else each test says why it is skipped.

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

/// How files are handled that are called so.
#[derive(Clone, Copy)]
struct Rule {
    glob: &'static str,
    files: FileOptions,
    mode: WriteMode,
    page_blocks: u32,
}

/// What a rule that says nothing comes to, to be made from.
fn rule(glob: &'static str) -> Rule {
    Rule { glob, files: FileOptions::default(), mode: WriteMode::Back, page_blocks: 1 }
}

/// How a directory is mounted for a test.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
struct Setting {
    memory: u64,
    mode: WriteMode,
    /// Nothing is written before it must be.
    lazy: bool,
    plain: bool,
    /// For nobody but who mounts, which is not checked.
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
    /// What removes the mountpoint, once nothing is mounted there.
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

    /// A name as programs see it.
    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    /// The same name in the directory behind the cache.
    fn behind(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    /// Bytes that the directory does not have yet.
    fn dirty(&self) -> u64 {
        self.volumes().iter().map(|volume| volume.unclean_bytes()).sum()
    }

    /// The volume of the rest, and those of rules.
    fn volumes(&self) -> &[Arc<ArenaVolume>] {
        self.mount.as_ref().expect("until the end").volumes()
    }

    /// Unmounts, writes everything, and looks whether all adds up; the directory as it is then.
    fn end(mut self) -> TempDir {
        let mount = self.mount.take().expect("until the end");
        // A program that another test is about to start has all files open until it runs.
        rig::eventually("nobody uses it", || mount.unmount(false).is_ok());
        self.finish(mount)
    }

    /// Does the same after somebody else has unmounted it.
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
    /// After a failure nothing stays mounted.
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            drop(mount.unmount(true));
        }
    }
}
