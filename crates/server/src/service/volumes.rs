//! Adding and removing volumes while others are served.
//!
//! Invariants: a new volume is checked together with all others, as a plan, before its store is
//! opened; a removed volume is written out and flushed before its store is closed, and stays served
//! if that fails or if clients use it.

use super::{ServedVolume, Service, warn_if_flushes_are_ignored};
use crate::lock;
use crate::plan::MountOptions;
use crate::stores::{self, VolumeStore};
use crate::volume_plan::VolumePlan;
use anyhow::{Context, Result, anyhow};
use larder_core::curve::choice::PolicyChoice;
use larder_core::mode::WriteMode;
use larder_core::volume::VolumeOptions;
use larder_io::engine::StopProgress;
use larder_io::front::fuse::{
    Directory, DirectoryMount, DirectoryOptions, FileOptions, OpenedDirectory,
};
use larder_io::front::nbd::{Export, ServerLimits};
use larder_io::store::{OpenedStore, SolidMap};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time limit for the requests in flight of a removed volume's clients.
const DISCONNECT_TIME_MAX: Duration = Duration::from_secs(2);

impl Service {
    /// Opens the store of a volume. An upstream server may be slow to respond, so no lock is held.
    pub(super) fn open_store(&self, plan: &VolumePlan, memory_bytes: u64) -> Result<VolumeStore> {
        let (plain_io, clock) = (self.settings().plain_io, self.engine.clock());
        VolumeStore::open(plan, memory_bytes, plain_io, clock, &|| self.is_stopping())
    }

    /// Adds a volume to the cache; the only export of a server is also its default.
    pub(super) fn add_volume(
        &self,
        plan: &VolumePlan,
        store: VolumeStore,
        default: bool,
    ) -> Result<ServedVolume> {
        let opened = self.stores.add_opened(store);
        let result = self.add_opened(plan, opened, default).and_then(|served| {
            if let Some(lists) = &self.lists {
                let length = served.volume.geometry().length;
                let store = stores::store_identity(plan, length);
                lists.add(&served.volume, store.context("look at the volume once more")?);
            }
            Ok(served)
        });
        result.inspect_err(|_| {
            self.stores.forget(plan);
        })
    }

    fn add_opened(
        &self,
        plan: &VolumePlan,
        opened: OpenedStore,
        default: bool,
    ) -> Result<ServedVolume> {
        for note in &opened.notes {
            eprintln!("larder: note: {note}");
        }
        let options = VolumeOptions {
            page_blocks: plan.page_blocks,
            policy: plan.policy.first(),
            policy_auto: plan.policy == PolicyChoice::Auto,
            write_mode: plan.write_mode,
            flush_mode: plan.flush_mode,
            hint: plan.hint,
            min_frames: plan.min_frames,
            max_frames: plan.max_frames,
            tunables: plan.tunables.clone(),
            ..VolumeOptions::new(&plan.name, opened.store.geometry())
        };
        let volume = self.engine.add_volume(options, opened.store)?;
        let buffer_bytes = plan.buffer_bytes(self.settings().memory_bytes);
        Ok(ServedVolume { volume, map: opened.map, plan: plan.clone(), default, buffer_bytes })
    }

    /// Opens a directory, adds its volumes to the cache, and mounts it.
    pub(super) fn mount(&self, mount: &MountOptions, plans: &[VolumePlan]) -> Result<()> {
        DirectoryMount::check(&mount.source, &mount.mountpoint)?;
        let options = DirectoryOptions {
            read_only: plans[0].write_mode == WriteMode::ReadOnly,
            restrictions: mount.restrictions,
            ttl: mount.ttl,
            shared: mount.shared,
            plain: self.settings().plain_io,
            rules: mount.rules.clone(),
            rest: FileOptions::default(),
        };
        let opened = Directory::open(&mount.source, options, &self.engine.clock())?;
        let OpenedDirectory { directory, stores, mut notes } = opened;
        for (plan, store) in plans.iter().zip(stores) {
            let notes = std::mem::take(&mut notes);
            let served =
                self.add_opened(plan, OpenedStore { store, map: Arc::new(SolidMap), notes }, true)?;
            lock(&self.volumes).push(served);
        }
        self.files.start_directory(mount, &self.engine, directory, &self.volumes())
    }
}

impl ServedVolume {
    /// Returns the export of the volume.
    pub(super) fn export(&self, limits: &ServerLimits) -> Export {
        Export::new(Arc::clone(&self.volume), Arc::clone(&self.map), self.default, limits)
    }
}

/// Continues a removal regardless of its progress.
fn continue_always(_: &StopProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

impl Service {
    /// Adds a volume, written as on the command line, with these settings in addition to the flags
    /// of the server for all volumes.
    pub(crate) fn add(
        &self,
        volume: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<ServedVolume> {
        self.add_planned(&self.configuration.plan_added(&self.settings(), volume, settings)?)
    }

    /// Fails if a directory is mounted: volumes can be added and removed only by `larder serve`.
    fn check_volumes(&self, operation: &str, name: &str) -> Result<()> {
        let alternative = match self.volumes().len() {
            1 => "which is one volume",
            _ => "whose volumes are those of its rules",
        };
        self.check_no_directory(operation, name, alternative)
    }

    /// Fails if a directory is mounted: its files get their addresses as they are opened, so
    /// clients cannot use them. The error has the `operation` on `name`, and the `alternative`.
    pub(crate) fn check_no_directory(
        &self,
        operation: &str,
        name: &str,
        alternative: &str,
    ) -> Result<()> {
        anyhow::ensure!(
            !self.is_directory(),
            "{operation} {name}: this is a mounted directory, {alternative}"
        );
        Ok(())
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(crate) fn add_planned(&self, plan: &VolumePlan) -> Result<ServedVolume> {
        let name = &plan.name;
        let memory_bytes = self.check_added(plan)?;
        let store = self.open_store(plan, memory_bytes)?;
        let _change_lock = self.lock_changes();
        // Other volumes and settings may have changed meanwhile.
        anyhow::ensure!(
            self.check_added(plan)? == memory_bytes,
            "add {name}: the memory of the cache was changed meanwhile; try again"
        );
        let buffer_bytes = plan.buffer_bytes(memory_bytes);
        self.set_reserved_bytes(self.reserved_bytes() + buffer_bytes)?;
        let added = self.add_and_publish(plan, store);
        let served = added.inspect_err(|_| self.release_memory(buffer_bytes))?;
        warn_if_flushes_are_ignored(&served.volume);
        Ok(served)
    }

    /// Checks that a volume can be added now; returns the current memory.
    fn check_added(&self, plan: &VolumePlan) -> Result<u64> {
        let name = &plan.name;
        anyhow::ensure!(!self.is_stopping(), "add {name}: the server is stopping");
        self.check_volumes("add", name)?;
        anyhow::ensure!(
            self.find_volume(name).is_none(),
            "add {name}: there is a volume of this name"
        );
        let mut new_plan = self.plan();
        let memory_bytes = new_plan.server.memory_bytes;
        new_plan.volumes.push(plan.clone());
        new_plan.check().map_err(|error| anyhow!(error.message_of_keys))?;
        Ok(memory_bytes)
    }

    fn add_and_publish(&self, plan: &VolumePlan, store: VolumeStore) -> Result<ServedVolume> {
        let engine = &self.engine;
        let served = self.add_volume(plan, store, false)?;
        let volume = &served.volume;
        let published = match plan.policy {
            // The memory for the policy's tables is taken from the cache.
            PolicyChoice::Fixed(kind) => engine.set_policy(volume, kind),
            PolicyChoice::Auto => engine.set_policy_auto(volume),
        };
        let published = published.map_err(anyhow::Error::from).and_then(|()| self.publish(&served));
        if let Err(error) = published {
            if let Some(lists) = &self.lists {
                lists.forget(volume);
            }
            self.stores.forget(plan);
            if let Err(removal_error) = engine.remove_volume(volume, continue_always) {
                tracing::error!(
                    again = %removal_error,
                    "a volume that could not be offered was not removed"
                );
            }
            return Err(error);
        }
        lock(&self.volumes).push(served.clone());
        Ok(served)
    }

    /// Makes a volume available to clients, as an export and as a file.
    fn publish(&self, served: &ServedVolume) -> Result<()> {
        let export = served.export(&ServerLimits::default());
        self.with_server(|server| Ok(server.add_export(export)?))?;
        let result = self.files.add(served);
        if result.is_err() {
            let name = served.volume.name();
            self.files.remove(name, DISCONNECT_TIME_MAX);
            self.with_server(|server| Ok(server.remove_export(name, DISCONNECT_TIME_MAX)))?;
        }
        result
    }

    /// Fails if a volume cannot be removed now.
    pub(crate) fn check_unused(&self, name: &str, disconnect: bool) -> Result<()> {
        anyhow::ensure!(
            !self.is_stopping(),
            "remove {name}: the server is stopping; larder ctl remove --give-up discards the data \
             that it cannot write"
        );
        self.check_volumes("remove", name)?;
        let clients = self.with_server(|server| Ok(server.clients(name)))?;
        let word = if clients == 1 { "client is" } else { "clients are" };
        anyhow::ensure!(
            clients == 0 || disconnect,
            "remove {name}: {clients} {word} connected; let them go first, or use \
             larder ctl remove --disconnect"
        );
        let usage = self.files.usage(name);
        if let Some(usage) = usage.filter(|_| !disconnect) {
            anyhow::bail!(
                "remove {name}: {usage}; end that first, or use larder ctl remove --disconnect"
            );
        }
        Ok(())
    }

    /// Removes a volume: disconnects its clients, writes and flushes all dirty data, reports that
    /// to `progress`, and closes the store. With `give_up` no more data is written to the store,
    /// and unwritten data is lost.
    ///
    /// # Errors
    /// There is no such volume, clients use it and are not to be disconnected, or its store fails:
    /// then the volume is served as before. While the server stops, a volume can only be given up:
    /// the stop then ends without its data.
    pub(crate) fn remove(
        &self,
        name: &str,
        (disconnect, give_up): (bool, bool),
        mut progress: impl FnMut(&StopProgress),
    ) -> Result<()> {
        let change_lock = self.lock_changes();
        if self.is_stopping() && give_up {
            return self.discard_at_stop(name);
        }
        let served = self.volume(name)?;
        self.check_unused(name, disconnect)?;
        self.with_server(|server| Ok(server.remove_export(name, DISCONNECT_TIME_MAX)))?;
        self.files.remove(name, DISCONNECT_TIME_MAX);
        if give_up {
            self.engine.give_up_volume(&served.volume);
        }
        let list = self.lists.as_ref().and_then(|lists| lists.before_removal(&served.volume));
        // The store may be slow: other volumes can be changed meanwhile.
        drop(change_lock);
        let mut report = |state: &StopProgress| {
            progress(state);
            // A volume that cannot be written stays, and a stop writes all volumes itself.
            let is_over = state.error.is_some() && !give_up || self.is_stopping();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let written = self.engine.write_out_volume(&served.volume, &mut report);
        let _change_lock = self.lock_changes();
        let removed = written.and_then(|()| self.engine.remove_volume(&served.volume, &mut report));
        if let Err(error) = removed {
            if let Some(lists) = &self.lists {
                lists.resume(&served.volume);
            }
            self.publish(&served)?;
            return Err(error.into());
        }
        lock(&self.volumes).retain(|served| served.volume.name() != name);
        if let Some(lists) = &self.lists {
            lists.forget(&served.volume);
        }
        if let Some(list) = list {
            list.save();
        }
        self.release_memory(served.buffer_bytes);
        let is_lost = self.stores.forget(&served.plan);
        anyhow::ensure!(
            !is_lost,
            "keep the data: {} was deleted or replaced while it was served",
            served.plan.path.display()
        );
        Ok(())
    }

    /// Sets the memory that the cache cannot use, for the buffers of upstream volumes.
    fn set_reserved_bytes(&self, bytes: u64) -> Result<()> {
        if bytes != self.reserved_bytes() {
            self.engine.set_memory(self.settings().memory_bytes - bytes)?;
            self.reserved_bytes.store(bytes, Ordering::Release);
        }
        Ok(())
    }

    fn release_memory(&self, bytes: u64) {
        let reserved = self.reserved_bytes() - bytes;
        if let Err(error) = self.set_reserved_bytes(reserved) {
            // The next change of the memory takes it back.
            self.reserved_bytes.store(reserved, Ordering::Release);
            tracing::error!(%error, "the cache could not take back its memory");
        }
    }
}
