//! Adding and removing volumes while others are served.
//!
//! Invariants: a new volume is checked together with all others, as a plan, before its store is
//! opened; a removed volume is written out and flushed before its store is closed, and stays served
//! if that fails or if clients use it.

use super::files::Files;
use super::{ServedVolume, Service, warn_if_flushes_are_ignored};
use crate::plan::{Configuration, MountOptions};
use crate::policy_choice::PolicyChoice;
use crate::settings::{Assignment, ServerSettings};
use crate::stores::{self, OpenedStore, Stores};
use crate::volume_plan::VolumePlan;
use crate::volume_source::VolumeSource;
use crate::warm::WarmLists;
use anyhow::{Context, Result, anyhow};
use larder_core::mode::WriteMode;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{Engine, StopProgress};
use larder_io::front::fuse::{
    Directory, DirectoryMount, DirectoryOptions, FileOptions, OpenedDirectory,
};
use larder_io::front::nbd::{Export, ServerLimits};
use larder_io::store::{Opened, Solid};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time limit for the requests in flight of a removed volume's clients.
const DISCONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// The resources that are needed to open volumes.
pub(super) struct VolumeOpener<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) lists: Option<&'a WarmLists>,
    /// True if io_uring is not used.
    pub(super) plain_io: bool,
    pub(super) memory_bytes: u64,
}

impl VolumeOpener<'_> {
    /// Opens the store of a volume. An upstream server may be slow to respond, so no lock is held.
    pub(super) fn open_store(
        &self,
        plan: &VolumePlan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<OpenedStore> {
        let VolumeOpener { engine, plain_io, memory_bytes, .. } = *self;
        OpenedStore::open(plan, memory_bytes, plain_io, engine.clock(), is_stopping)
    }

    /// Adds a volume to the cache; the only export of a server is also its default.
    pub(super) fn add_volume(
        &self,
        stores: &mut Stores,
        plan: &VolumePlan,
        store: OpenedStore,
        default: bool,
    ) -> Result<ServedVolume> {
        let lists = self.lists;
        let opened = stores.add_opened(store);
        let added = self.add(plan, opened, default);
        let result = added.and_then(|served| {
            if let Some(lists) = lists {
                let length = served.volume.geometry().length;
                let store = stores::store_identity(plan, length);
                lists.add(&served.volume, store.context("look at the volume once more")?);
            }
            Ok(served)
        });
        if result.is_err() {
            stores.forget(plan);
        }
        result
    }

    /// Opens a directory, adds its volumes to the cache, and mounts it.
    pub(super) fn mount(
        &self,
        mount: &MountOptions,
        plans: &[VolumePlan],
    ) -> Result<(Vec<ServedVolume>, Files)> {
        DirectoryMount::check(&mount.source, &mount.mountpoint)?;
        let options = DirectoryOptions {
            read_only: plans[0].write_mode == WriteMode::ReadOnly,
            restrictions: mount.restrictions,
            ttl: mount.ttl,
            shared: mount.shared,
            plain: self.plain_io,
            rules: mount.rules.clone(),
            rest: FileOptions::default(),
        };
        let opened = Directory::open(&mount.source, options, &self.engine.clock())?;
        let OpenedDirectory { directory: opened_directory, stores, mut notes } = opened;
        let opened = stores.into_iter().map(|store| {
            let notes = std::mem::take(&mut notes);
            Opened { store, map: Arc::new(Solid), notes }
        });
        let added = plans.iter().zip(opened).map(|(plan, opened)| self.add(plan, opened, true));
        let served: Vec<_> = added.collect::<Result<_>>()?;
        let files = Files::start_directory(mount, self.engine, opened_directory, &served)?;
        Ok((served, files))
    }

    fn add(&self, plan: &VolumePlan, opened: Opened, default: bool) -> Result<ServedVolume> {
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
        let buffer_bytes = plan.buffer_bytes(self.memory_bytes);
        Ok(ServedVolume { volume, map: opened.map, plan: plan.clone(), default, buffer_bytes })
    }
}

impl Configuration {
    /// Returns the plan of a volume that is to be added with these settings, to a server that was
    /// started with `server`.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
    pub(crate) fn plan_added(
        &self,
        server: &ServerSettings,
        volume: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<VolumePlan> {
        let source =
            VolumeSource::parse(volume).map_err(|error| anyhow!("add {volume}: {error}"))?;
        self.check_files(server, Some(&source))?;
        let mut plan = self.plan_volume(&source)?;
        let assignments: Vec<_> = settings
            .iter()
            .map(|(name, value)| Assignment {
                volume: Some(source.name.clone()),
                name: name.clone(),
                value: value.into(),
            })
            .collect();
        plan.assign(assignments.iter())?;
        Ok(plan)
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
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
    pub(crate) fn add(
        &self,
        volume: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<ServedVolume> {
        let (configuration, server) = (self.configuration(), self.start_settings());
        self.add_planned(&configuration.plan_added(server, volume, settings)?)
    }

    /// Fails if a directory is mounted: volumes can be added and removed only by `larder serve`.
    fn check_volumes(&self, operation: &str, name: &str) -> Result<()> {
        let alternative = match self.volumes().len() {
            1 => "which is one volume",
            _ => "whose volumes are those of its rules",
        };
        self.check_no_directory(operation, name, alternative)
    }

    /// Returns true if a directory is mounted.
    pub(crate) fn is_directory(&self) -> bool {
        self.configuration().mount.is_some()
    }

    /// Fails if a directory is mounted: its files get their addresses as they are opened, so
    /// clients cannot use them.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to": the `operation` on `name`, and the
    /// `alternative`.
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
    /// Nothing has changed. The error text is a verb phrase that follows "failed to".
    pub(crate) fn add_planned(&self, plan: &VolumePlan) -> Result<ServedVolume> {
        let name = &plan.name;
        let memory_bytes = self.check_added(plan)?;
        let (engine, plain_io) = (self.engine(), self.start_settings().plain_io);
        let opener = VolumeOpener { engine, lists: self.lists(), plain_io, memory_bytes };
        let store = opener.open_store(plan, &|| self.is_stopping())?;
        let _change_lock = self.lock_changes();
        // Other volumes and settings may have changed meanwhile.
        anyhow::ensure!(
            self.check_added(plan)? == memory_bytes,
            "add {name}: the memory of the cache was changed meanwhile; try again"
        );
        let buffer_bytes = plan.buffer_bytes(memory_bytes);
        self.reserve_memory(buffer_bytes)?;
        let added = self.add_and_publish(&opener, plan, store);
        if added.is_err() {
            self.release_memory(buffer_bytes);
        }
        let served = added?;
        warn_if_flushes_are_ignored(&served.volume);
        Ok(served)
    }

    /// Checks that a volume can be added now; returns the current memory.
    fn check_added(&self, plan: &VolumePlan) -> Result<u64> {
        let name = &plan.name;
        anyhow::ensure!(!self.is_stopping(), "add {name}: the server is stopping");
        self.check_volumes("add", name)?;
        anyhow::ensure!(self.volume(name).is_none(), "add {name}: there is a volume of this name");
        let mut new_plan = self.plan();
        let memory_bytes = new_plan.server.memory_bytes;
        new_plan.volumes.push(plan.clone());
        new_plan.check()?;
        Ok(memory_bytes)
    }

    fn add_and_publish(
        &self,
        opener: &VolumeOpener<'_>,
        plan: &VolumePlan,
        store: OpenedStore,
    ) -> Result<ServedVolume> {
        let engine = self.engine();
        let served = opener.add_volume(&mut self.stores(), plan, store, false)?;
        let volume = &served.volume;
        let published = match plan.policy {
            // The memory for the policy's tables is taken from the cache.
            PolicyChoice::Fixed(kind) => engine.set_policy(volume, kind),
            PolicyChoice::Auto => engine.set_policy_auto(volume),
        };
        let published = published.map_err(anyhow::Error::from).and_then(|()| self.publish(&served));
        if let Err(error) = published {
            if let Some(lists) = self.lists() {
                lists.forget(volume);
            }
            self.stores().forget(plan);
            if let Err(removal_error) = engine.remove_volume(volume, continue_always) {
                tracing::error!(
                    again = %removal_error,
                    "a volume that could not be offered was not removed"
                );
            }
            return Err(error);
        }
        self.note_added(served.clone());
        Ok(served)
    }

    /// Makes a volume available to clients, as an export and as a file.
    fn publish(&self, served: &ServedVolume) -> Result<()> {
        let export = served.export(&ServerLimits::default());
        self.with_server(|server| Ok(server.add_export(export)?))?;
        let result = self.files().add(served);
        if result.is_err() {
            let name = served.volume.name();
            self.files().remove(name, DISCONNECT_TIME_MAX);
            self.with_server(|server| Ok(server.remove_export(name, DISCONNECT_TIME_MAX)))?;
        }
        result
    }

    /// Fails if a volume cannot be removed now.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
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
        let usage = self.files().usage(name);
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
    /// the error text is a verb phrase that follows "failed to". Then the volume is served as
    /// before. While the server stops, a volume can only be given up: the stop then ends without
    /// its data.
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
        let Some(served) = self.volume(name) else {
            anyhow::bail!("find the volume \"{name}\": none is called so");
        };
        self.check_unused(name, disconnect)?;
        self.with_server(|server| Ok(server.remove_export(name, DISCONNECT_TIME_MAX)))?;
        self.files().remove(name, DISCONNECT_TIME_MAX);
        if give_up {
            self.engine().give_up_volume(&served.volume);
        }
        let list = self.lists().and_then(|lists| lists.before_removal(&served.volume));
        // The store may be slow: other volumes can be changed meanwhile.
        drop(change_lock);
        let mut report = |state: &StopProgress| {
            progress(state);
            // A volume that cannot be written stays, and a stop writes all volumes itself.
            let is_over = state.error.is_some() && !give_up || self.is_stopping();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let written = self.engine().write_out_volume(&served.volume, &mut report);
        let _change_lock = self.lock_changes();
        let removed =
            written.and_then(|()| self.engine().remove_volume(&served.volume, &mut report));
        if let Err(error) = removed {
            if let Some(lists) = self.lists() {
                lists.resume(&served.volume);
            }
            self.publish(&served)?;
            return Err(error.into());
        }
        self.note_removed(name);
        if let Some(lists) = self.lists() {
            lists.forget(&served.volume);
        }
        if let Some(list) = list {
            list.save();
        }
        self.release_memory(served.buffer_bytes);
        let is_lost = self.stores().forget(&served.plan);
        anyhow::ensure!(
            !is_lost,
            "keep what was written: {} was deleted or replaced while it was served",
            served.plan.path.display()
        );
        Ok(())
    }

    /// Takes memory from the cache for the buffers of an upstream volume.
    fn reserve_memory(&self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            let reserved = self.reserved_bytes() + bytes;
            self.engine().set_memory(self.plan().server.memory_bytes - reserved)?;
            self.reserved_bytes.store(reserved, Ordering::Release);
        }
        Ok(())
    }

    fn release_memory(&self, bytes: u64) {
        if bytes > 0 {
            let reserved = self.reserved_bytes() - bytes;
            self.reserved_bytes.store(reserved, Ordering::Release);
            if let Err(error) = self.engine().set_memory(self.plan().server.memory_bytes - reserved)
            {
                tracing::error!(%error, "the cache could not take back its memory");
            }
        }
    }
}
