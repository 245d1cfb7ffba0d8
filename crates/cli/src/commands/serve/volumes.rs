//! Volumes come and go while others are served.
//!
//! Invariants: a volume that comes is checked together with all others, as a plan, before anything
//! of it is opened; one that goes is written out and flushed before its store is let go of, and
//! stays, served as before, if that cannot be done or if somebody uses it.

use super::files::Files;
use super::plan::{VolumeFlags, VolumePlan, check_files};
use super::service::{Served, Service, warn_if_flushes_are_ignored};
use super::stores::{self, OpenedStore, Stores};
use super::warm::WarmLists;
use super::{Arguments, DirectoryArguments};
use crate::args::{self, PolicyChoice};
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

/// How long clients of a volume that goes may take for what they have asked.
const PATIENCE: Duration = Duration::from_secs(2);

/// What volumes are opened with.
pub(super) struct Opening<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) lists: Option<&'a WarmLists>,
    pub(super) arguments: &'a Arguments,
    pub(super) memory_bytes: u64,
}

impl Opening<'_> {
    /// Opens the store of a volume. An upstream server may take its time, so no lock is held.
    pub(super) fn open_store(
        &self,
        plan: &VolumePlan,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<OpenedStore> {
        let Opening { engine, arguments, memory_bytes, .. } = *self;
        OpenedStore::open(plan, memory_bytes, arguments.plain_io, engine.clock(), is_stopping)
    }

    /// Puts the cache before the store of a volume; the one export of a server is also its default.
    pub(super) fn add_volume(
        &self,
        stores: &mut Stores,
        plan: &VolumePlan,
        store: OpenedStore,
        default: bool,
    ) -> Result<Served> {
        let lists = self.lists;
        let opened = stores.add_opened(store);
        let added = self.add(plan, opened, default);
        let listed = added.and_then(|served| {
            if let Some(lists) = lists {
                let length = served.volume.geometry().length;
                let store = stores::listed_identity(plan, length);
                lists.add(&served.volume, store.context("look at the volume once more")?);
            }
            Ok(served)
        });
        if listed.is_err() {
            stores.forget(plan);
        }
        listed
    }

    /// Opens a directory, puts the cache before its files, each in the volume that is planned for it,
    /// and mounts it.
    pub(super) fn mount(
        &self,
        directory: &DirectoryArguments,
        plans: &[VolumePlan],
    ) -> Result<(Vec<Served>, Files)> {
        DirectoryMount::check(&directory.source, &directory.mountpoint)?;
        let options = DirectoryOptions {
            read_only: plans[0].write_mode == WriteMode::ReadOnly,
            restrictions: directory.restrictions,
            ttl: directory.ttl,
            shared: directory.shared,
            plain: self.arguments.plain_io,
            rules: directory.rules.clone(),
            rest: FileOptions::default(),
        };
        let opened = Directory::open(&directory.source, options, &self.engine.clock())?;
        let OpenedDirectory { directory: shown, stores, mut notes } = opened;
        let opened = stores.into_iter().map(|store| {
            let notes = std::mem::take(&mut notes);
            Opened { store, map: Arc::new(Solid), notes }
        });
        let added = plans.iter().zip(opened).map(|(plan, opened)| self.add(plan, opened, true));
        let served: Vec<_> = added.collect::<Result<_>>()?;
        let files = Files::start_directory(directory, self.engine, shown, &served)?;
        Ok((served, files))
    }

    fn add(&self, plan: &VolumePlan, opened: Opened, default: bool) -> Result<Served> {
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
        let buffer_bytes = stores::buffer_bytes_of(plan, self.memory_bytes);
        Ok(Served { volume, map: opened.map, plan: plan.clone(), default, buffer_bytes })
    }
}

impl VolumePlan {
    /// Returns the plan of a volume that is to be added with these settings.
    ///
    /// # Errors
    /// A sentence that can follow "failed to".
    pub(crate) fn to_add(
        arguments: &Arguments,
        volume: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let volume = args::volume(volume).map_err(|error| anyhow!("add {volume}: {error}"))?;
        check_files(arguments, Some(&volume))?;
        let mut plan = VolumePlan::of(&VolumeFlags::of(arguments), &volume)?;
        for (name, value) in settings {
            let set = plan.set(name, value);
            set.map_err(|reason| anyhow!("set {}.{name}: {reason}", plan.name))?;
        }
        Ok(plan)
    }
}

impl Served {
    /// What clients are offered.
    pub(super) fn export(&self, limits: &ServerLimits) -> Export {
        Export::new(Arc::clone(&self.volume), Arc::clone(&self.map), self.default, limits)
    }
}

/// Goes on, whatever a removal says.
fn go_on(_: &StopProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

impl Service {
    /// Adds a volume, written as on the command line, with these settings beside the flags of the
    /// server that hold for all volumes.
    ///
    /// # Errors
    /// A sentence that can follow "failed to".
    pub(crate) fn add(&self, volume: &str, settings: &BTreeMap<String, String>) -> Result<Served> {
        self.add_planned(&VolumePlan::to_add(self.arguments(), volume, settings)?)
    }

    /// Whether volumes are served that come and go.
    fn check_volumes(&self, what: &str, name: &str) -> Result<()> {
        let what_it_is = match self.volumes().len() {
            1 => "which is one volume",
            _ => "whose volumes are those of its rules",
        };
        self.check_no_directory(what, name, what_it_is)
    }

    /// Whether a directory is mounted here.
    pub(crate) fn is_directory(&self) -> bool {
        self.arguments().directory.is_some()
    }

    /// Whether the addresses of volumes are the client's: those of a directory are given to its files
    /// as they come.
    ///
    /// # Errors
    /// A sentence that can follow "failed to": `what` to do with the name, and what there is
    /// instead.
    pub(crate) fn check_no_directory(&self, what: &str, name: &str, instead: &str) -> Result<()> {
        anyhow::ensure!(
            !self.is_directory(),
            "{what} {name}: this is a mounted directory, {instead}"
        );
        Ok(())
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// A sentence that can follow "failed to". Nothing has changed.
    pub(super) fn add_planned(&self, plan: &VolumePlan) -> Result<Served> {
        let name = &plan.name;
        let memory_bytes = self.check_added(plan)?;
        let (engine, arguments) = (self.engine(), self.arguments());
        let opening = Opening { engine, lists: self.lists(), arguments, memory_bytes };
        let store = opening.open_store(plan, &|| self.is_stopping())?;
        let _one_at_a_time = self.changing();
        // Other volumes and settings may have changed meanwhile.
        anyhow::ensure!(
            self.check_added(plan)? == memory_bytes,
            "add {name}: the memory of the cache was changed meanwhile; try again"
        );
        let buffer_bytes = stores::buffer_bytes_of(plan, memory_bytes);
        self.take_aside(buffer_bytes)?;
        let added = self.add_and_offer(&opening, plan, store);
        if added.is_err() {
            self.give_back(buffer_bytes);
        }
        let served = added?;
        warn_if_flushes_are_ignored(&served.volume);
        Ok(served)
    }

    /// Checks whether a volume can be added now; returns the memory in force.
    fn check_added(&self, plan: &VolumePlan) -> Result<u64> {
        let name = &plan.name;
        anyhow::ensure!(!self.is_stopping(), "add {name}: the server is stopping");
        self.check_volumes("add", name)?;
        anyhow::ensure!(self.volume(name).is_none(), "add {name}: there is a volume of this name");
        let mut whole = self.plan();
        let memory_bytes = whole.memory_bytes;
        whole.volumes.push(plan.clone());
        whole.check()?;
        Ok(memory_bytes)
    }

    fn add_and_offer(
        &self,
        opening: &Opening<'_>,
        plan: &VolumePlan,
        store: OpenedStore,
    ) -> Result<Served> {
        let engine = self.engine();
        let served = opening.add_volume(&mut self.stores(), plan, store, false)?;
        let volume = &served.volume;
        let offered = match plan.policy {
            // The tables of its policy are taken out of the memory.
            PolicyChoice::Fixed(kind) => engine.set_policy(volume, kind),
            PolicyChoice::Auto => engine.set_policy_auto(volume),
        };
        let offered = offered.map_err(anyhow::Error::from).and_then(|()| self.offer(&served));
        if let Err(error) = offered {
            if let Some(lists) = self.lists() {
                lists.forget(volume);
            }
            self.stores().forget(plan);
            if let Err(again) = engine.remove_volume(volume, go_on) {
                tracing::error!(%again, "a volume that could not be offered was not removed");
            }
            return Err(error);
        }
        self.note_added(served.clone());
        Ok(served)
    }

    /// Lets clients find a volume, by all ways that there are.
    fn offer(&self, served: &Served) -> Result<()> {
        let export = served.export(&ServerLimits::default());
        self.with_server(|server| Ok(server.add_export(export)?))?;
        let shown = self.files().add(served);
        if shown.is_err() {
            let name = served.volume.name();
            self.files().remove(name, PATIENCE);
            self.with_server(|server| Ok(server.remove_export(name, PATIENCE)))?;
        }
        shown
    }

    /// Why a volume cannot go now, if that is so.
    ///
    /// # Errors
    /// A sentence that can follow "failed to".
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
        let why = self.files().use_of(name);
        if let Some(why) = why.filter(|_| !disconnect) {
            anyhow::bail!(
                "remove {name}: {why}; end that first, or use larder ctl remove --disconnect"
            );
        }
        Ok(())
    }

    /// Removes a volume: detaches its clients, writes and flushes all dirty data, reports that to
    /// `progress`, and closes the store. With `give_up` nothing more is passed to the store, and
    /// unwritten data is lost.
    ///
    /// # Errors
    /// If there is no such volume, clients use it and are not to be disconnected, or its store
    /// fails: a sentence that can follow "failed to". Then it is served as before. While the server
    /// stops, a volume can only be given up: the stop then ends without its data.
    pub(crate) fn remove(
        &self,
        name: &str,
        (disconnect, give_up): (bool, bool),
        mut progress: impl FnMut(&StopProgress),
    ) -> Result<()> {
        let changing = self.changing();
        if self.is_stopping() && give_up {
            return self.give_up_at_stop(name);
        }
        let Some(served) = self.volume(name) else {
            anyhow::bail!("find the volume \"{name}\": none is called so");
        };
        self.check_unused(name, disconnect)?;
        self.with_server(|server| Ok(server.remove_export(name, PATIENCE)))?;
        self.files().remove(name, PATIENCE);
        if give_up {
            self.engine().give_up_volume(&served.volume);
        }
        let list = self.lists().and_then(|lists| lists.before_removal(&served.volume));
        // The store may take its time: other volumes can be changed meanwhile.
        drop(changing);
        let mut report = |at: &StopProgress| {
            progress(at);
            // One that cannot be written to stays, and a stop writes it out by itself.
            let is_over = at.error.is_some() && !give_up || self.is_stopping();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let written = self.engine().write_out_volume(&served.volume, &mut report);
        let _changing = self.changing();
        let removed =
            written.and_then(|()| self.engine().remove_volume(&served.volume, &mut report));
        if let Err(error) = removed {
            if let Some(lists) = self.lists() {
                lists.go_on(&served.volume);
            }
            self.offer(&served)?;
            return Err(error.into());
        }
        self.note_removed(name);
        if let Some(lists) = self.lists() {
            lists.forget(&served.volume);
        }
        if let Some(list) = list {
            list.save();
        }
        self.give_back(served.buffer_bytes);
        let leads_elsewhere = self.stores().forget(&served.plan);
        anyhow::ensure!(
            !leads_elsewhere,
            "keep what was written: {} was deleted or replaced while it was served",
            served.plan.path.display()
        );
        Ok(())
    }

    /// Takes memory from the cache for the buffers of an upstream volume.
    fn take_aside(&self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            let beside = self.bytes_beside() + bytes;
            self.engine().set_memory(self.plan().memory_bytes - beside)?;
            self.bytes_beside.store(beside, Ordering::Release);
        }
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            let beside = self.bytes_beside() - bytes;
            self.bytes_beside.store(beside, Ordering::Release);
            if let Err(error) = self.engine().set_memory(self.plan().memory_bytes - beside) {
                tracing::error!(%error, "the cache could not take back its memory");
            }
        }
    }
}
