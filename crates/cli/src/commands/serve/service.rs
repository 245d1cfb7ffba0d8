//! A running service: the engine, its volumes and the NBD server, and what is asked of them from
//! the command line, by signals and by the control interface.
//!
//! Invariant: the list of volumes is that of the exports; each has its plan, which says what was
//! set last. Locks are taken whether or not a holder has panicked: each change is one step, and a
//! request of the control interface that panics must not keep a stop from writing everything out.

use super::Arguments;
use super::files::Files;
use super::memory_return::Giving;
use super::plan::{Plan, VolumePlan};
use super::record::Recording;
use super::recording::{self, InputRecording, RecordingFile};
use super::stores::{self, Stores, lost_of};
use super::volumes::Opening;
use super::warm::{self, Gathered, WarmLists};
use crate::args::{self, PathOrNone};
use crate::counters;
use crate::output::{self, sentence};
use crate::progress::WriteOut;
use crate::runtime_directory::runtime_directory;
use crate::signals::{Asker, SignalAction};
use anyhow::{Context, Result, anyhow};
use larder_core::input::InputSink;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::request::BudgetUsage;
use larder_io::claim::{Claim, ClaimWatch};
use larder_io::engine::{ArenaVolume, Engine, EngineOptions, StopProgress};
use larder_io::fault;
use larder_io::front::listen::Listener;
use larder_io::front::nbd::{ListenAddress, Server, ServerLimits, ServerOptions};
use larder_io::store::AllocationMap;
use larder_report::control::Progress;
use larder_report::{escape, format};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval at which it is looked whether images were deleted.
const STORES_CHECK: Duration = Duration::from_secs(5);

/// A volume that is served.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) volume: Arc<ArenaVolume>,
    pub(super) map: Arc<dyn AllocationMap>,
    pub(crate) plan: VolumePlan,
    /// Whether clients that name no export get it.
    pub(super) default: bool,
    /// What of the memory its store has taken for buffers.
    pub(super) buffer_bytes: u64,
}

/// A running service.
pub(crate) struct Service {
    /// Giving memory back, if that was asked for.
    giving: Option<Giving>,
    /// Reports data that is reachable past the cache.
    _claims: Option<ClaimWatch>,
    engine: Arc<Engine>,
    /// None once it is closed.
    server: RwLock<Option<Server>>,
    files: Files,
    volumes: Mutex<Vec<Served>>,
    /// Where each volume is, and what was there when it was opened.
    stores: Mutex<Stores>,
    /// Held by the thread that looks whether their paths still lead there.
    looking: Mutex<()>,
    /// What of the memory is not the cache's.
    pub(super) bytes_beside: AtomicU64,
    /// Lists of what is cached, if they are kept.
    lists: Option<WarmLists>,
    /// What the cache shall have.
    memory_bytes: AtomicU64,
    /// Held by whoever changes what is served.
    changing: Mutex<()>,
    /// Held by a control request that adds a volume.
    adding: Arc<tokio::sync::Mutex<()>>,
    /// What it was started with.
    arguments: Arguments,
    /// What is recorded, and where.
    recording: Mutex<Option<(Recording, RecordingFile)>>,
    /// The log of the cache's inputs, if there is one.
    inputs: Option<InputRecording>,
    begun: Instant,
    asker: Asker,
    stopping: AtomicBool,
    /// How far a stop is.
    progress: watch::Sender<Option<Progress>>,
    /// What a stop has to write.
    drained_bytes: AtomicU64,
}

impl Service {
    /// Opens the volumes and serves them, on the socket that was handed over if there is one.
    pub(crate) fn start(
        arguments: &Arguments,
        plan: &Plan,
        handed_over: Option<Listener>,
        asker: Asker,
    ) -> Result<Self> {
        let inputs = arguments.record_inputs.as_deref().map(InputRecording::start).transpose()?;
        let log = inputs.as_ref().map(InputRecording::log);
        match Self::start_with_log(arguments, plan, handed_over, asker, log) {
            Ok(service) => Ok(Service { inputs, ..service }),
            Err(error) => {
                inputs.iter().for_each(InputRecording::discard);
                Err(error)
            }
        }
    }

    fn start_with_log(
        arguments: &Arguments,
        plan: &Plan,
        handed_over: Option<Listener>,
        asker: Asker,
        log: Option<Box<dyn InputSink>>,
    ) -> Result<Self> {
        let tls = stores::tls(arguments)?;
        let options = EngineOptions {
            memory_bytes: plan.memory_bytes - stores::bytes_beside(plan),
            huge_pages: true,
            lock: arguments.lock,
            threads: args::cores().get(),
            policy_bytes: plan.policy_bytes(),
        };
        let engine = Engine::with_log(options, log)?;
        engine.cache().set_share_mode(plan.share);
        let engine = Arc::new(engine);
        let lists = warm::start(arguments, plan, &engine)?;
        let limits = limits(arguments);
        let mut stores = Stores::default();
        let memory_bytes = plan.memory_bytes;
        let opening = Opening { engine: &engine, lists: lists.as_ref(), arguments, memory_bytes };
        let is_stopping = || asker.is_stop_asked();
        if let Some(directory) = &arguments.directory {
            let (served, files) = opening.mount(directory, &plan.volumes)?;
            return Ok(Service::of(arguments, plan, engine, (served, files), asker));
        }
        let default = plan.volumes.len() == 1;
        let volumes = plan.volumes.iter().map(|plan| {
            let store = opening.open_store(plan, &is_stopping)?;
            opening.add_volume(&mut stores, plan, store, default)
        });
        let volumes: Vec<_> = volumes.collect::<Result<_>>()?;
        let exports = volumes.iter().map(|served| served.export(&limits)).collect();
        let listener = match handed_over {
            Some(listener) => listener,
            None => Listener::bind(&address(arguments)?)?,
        };
        let recording = match &arguments.record {
            Some(path) => {
                let names = plan.volumes.iter().map(|volume| volume.name.clone()).collect();
                Some(recording::start(path, &engine, names)?)
            }
            None => None,
        };
        let observer = recording.as_ref().map(|(recording, _)| recording.observer());
        let options = ServerOptions { limits, observer: observer.clone(), tls };
        let server = Server::start_on(Arc::clone(&engine), listener, exports, options);
        let started = server.map_err(anyhow::Error::from).and_then(|server| {
            let files = Files::start(arguments, &engine, &volumes, observer)?;
            Ok((server, files))
        });
        let (server, files) = match started {
            Ok(started) => started,
            Err(error) => {
                if let Some((recording, file)) = recording {
                    recording::discard(recording, &file);
                }
                return Err(error);
            }
        };
        Ok(Service {
            server: RwLock::new(Some(server)),
            stores: Mutex::new(stores),
            lists,
            recording: Mutex::new(recording),
            ..Service::of(arguments, plan, engine, (volumes, files), asker)
        })
    }

    /// Returns a service without a server, lists and recordings.
    fn of(
        arguments: &Arguments,
        plan: &Plan,
        engine: Arc<Engine>,
        (volumes, files): (Vec<Served>, Files),
        asker: Asker,
    ) -> Self {
        Service {
            giving: arguments.give_back.map(|floor| Giving::start(&engine, floor)),
            _claims: watch_claims(),
            engine,
            server: RwLock::new(None),
            files,
            volumes: Mutex::new(volumes),
            stores: Mutex::default(),
            looking: Mutex::new(()),
            bytes_beside: AtomicU64::new(stores::bytes_beside(plan)),
            lists: None,
            memory_bytes: AtomicU64::new(plan.memory_bytes),
            changing: Mutex::new(()),
            adding: Arc::default(),
            arguments: arguments.clone(),
            recording: Mutex::new(None),
            inputs: None,
            begun: Instant::now(),
            asker,
            stopping: AtomicBool::new(false),
            progress: watch::Sender::new(None),
            drained_bytes: AtomicU64::new(0),
        }
    }

    /// Giving memory back, if that was asked for.
    pub(crate) fn giving(&self) -> Option<&Giving> {
        self.giving.as_ref()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What it was started with.
    pub(super) fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Lists of what is cached, if they are kept.
    pub(super) fn lists(&self) -> Option<&WarmLists> {
        self.lists.as_ref()
    }

    /// Where each volume is.
    pub(super) fn stores(&self) -> MutexGuard<'_, Stores> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server something that may take a moment.
    ///
    /// # Errors
    /// Those of the question, or that there is no server any more.
    pub(super) fn with_server<T>(&self, ask: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        ask(server.as_ref().context("reach clients: the server is stopping")?)
    }

    /// Volumes as files.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// A volume has come.
    pub(super) fn note_added(&self, served: Served) {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner).push(served);
    }

    /// A volume is gone.
    pub(super) fn note_removed(&self, name: &str) {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.retain(|served| served.volume.name() != name);
    }

    /// The volumes as they are now.
    pub(crate) fn volumes(&self) -> Vec<Served> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The volume of this name.
    pub(crate) fn volume(&self, name: &str) -> Option<Served> {
        self.volumes().into_iter().find(|served| served.volume.name() == name)
    }

    /// Keeps others from changing what is served, until it is dropped.
    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock that a control request holds while it adds a volume.
    pub(crate) fn adding(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.adding)
    }

    /// What of the memory is not the cache's.
    pub(crate) fn bytes_beside(&self) -> u64 {
        self.bytes_beside.load(Ordering::Acquire)
    }

    /// What is in force.
    pub(crate) fn plan(&self) -> Plan {
        let volumes = self.volumes().into_iter().map(|served| served.plan).collect();
        let memory_bytes = self.memory_bytes.load(Ordering::Acquire);
        let (warm_lists, share) = (self.lists.is_some(), self.engine.cache().share_mode());
        Plan { memory_bytes, warm_lists, share, volumes }
    }

    /// Notes what is in force now, for the volumes that are there.
    pub(crate) fn set_plan(&self, plan: &Plan) {
        self.memory_bytes.store(plan.memory_bytes, Ordering::Release);
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for (served, plan) in volumes.iter_mut().zip(&plan.volumes) {
            debug_assert_eq!(served.plan.name, plan.name, "the same volumes in the same order");
            served.plan = plan.clone();
        }
    }

    /// The address of a volume for NBD clients; empty once the server is closed.
    pub(crate) fn uri(&self, volume: &str) -> String {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(|server| server.uri(volume)).unwrap_or_default()
    }

    /// Returns the figures of the memory that the requests of NBD clients may hold; `None` for a
    /// mounted directory, or once the server is closed.
    pub(crate) fn budget(&self) -> Option<BudgetUsage> {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(Server::budget)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Says where the exports are: one line each.
    pub(crate) fn announce(&self) -> std::io::Result<()> {
        let mut out = crate::output::stdout();
        if let Some(directory) = &self.arguments.directory {
            let (source, at) =
                (escape::path(&directory.source), escape::path(&directory.mountpoint));
            let volumes = self.volumes();
            writeln!(out, "mounted {source} at {at} ({})", volumes[0].volume.write_mode())?;
            for Served { volume, .. } in volumes {
                warn_if_flushes_are_ignored(&volume);
            }
            return out.flush();
        }
        for Served { volume, .. } in self.volumes() {
            writeln!(out, "{}", self.line_about(&volume))?;
            warn_if_flushes_are_ignored(&volume);
        }
        for Served { volume, .. } in self.volumes() {
            if let Some(file) = self.files.file(volume.name()) {
                writeln!(out, "serving {} as the file {}", volume.name(), file.display())?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Where a volume is for clients.
    pub(super) fn line_about(&self, volume: &ArenaVolume) -> String {
        let size = format::bytes(volume.geometry().length);
        let (name, mode, uri) = (volume.name(), volume.write_mode(), self.uri(volume.name()));
        format!("serving {name} ({size}, {mode}) at {uri}")
    }

    /// One line on what it does now, for the service manager.
    pub(crate) fn status(&self) -> String {
        let volumes = self.volumes();
        let left = format::bytes(self.unwritten_bytes());
        if self.is_stopping() {
            return format!("stopping: {left} to write");
        }
        let count = volumes.len();
        let word = if count == 1 { "volume" } else { "volumes" };
        format!("serving {count} {word}; {left} not written yet")
    }

    /// Returns the number of bytes that clients have written and the stores do not have yet.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.volumes().iter().map(|served| served.volume.unclean_bytes()).sum()
    }

    pub(crate) fn report(&self) {
        for Served { volume, .. } in self.volumes() {
            eprint!("{}\n", counters::counters(self.engine.cache(), &volume).to_text());
            if let Some(table) = counters::latencies(&volume, &volume.totals()) {
                eprint!("{}\n", table.to_text());
            }
        }
        if let Some(path) = &self.arguments.counters
            && let Err(error) = self.write_counters(path)
        {
            eprintln!("larder: note: failed to {}", sentence(&error));
        }
    }

    /// Replaces the file of counters as a whole.
    fn write_counters(&self, path: &Path) -> Result<()> {
        let volumes: Vec<_> = self.volumes().into_iter().map(|served| served.volume).collect();
        let json = counters::json(self.engine.cache(), &volumes);
        output::write_whole(path, &format!("{json:#}\n"))
    }

    /// Asks for a stop, as SIGTERM does.
    pub(crate) fn ask_to_stop(&self) {
        if !self.asker.request(SignalAction::Stop) {
            tracing::warn!("asked to stop, but nobody listens");
        }
    }

    /// Returns true from the moment a stop is requested.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.asker.is_stop_asked()
    }

    /// How far a stop is, from now on; nothing before it has begun.
    pub(crate) fn stop_progress(&self) -> watch::Receiver<Option<Progress>> {
        self.progress.subscribe()
    }

    /// Writes everything out, for as long as it takes.
    pub(crate) fn drain(&self) -> Result<()> {
        self.stopping.store(true, Ordering::Release);
        let volumes = self.engine.cache().volumes();
        let dirty_bytes: u64 = volumes.iter().map(|volume| volume.unclean_bytes()).sum();
        self.drained_bytes.fetch_add(dirty_bytes, Ordering::AcqRel);
        // Writing begins at once; the lock is held for short and local steps only.
        let flushes = self.engine.start_flushes();
        // A volume that is just coming or going is one or the other first.
        drop(self.changing());
        drop(flushes);
        if let Some(lists) = &self.lists {
            lists.before_stop();
        }
        let mut shown = WriteOut::new("writing");
        let drained = self.engine.drain(|at| {
            let error = at.error.as_ref().map(|error| self.with_way_out(&at.volume, error));
            let at = &StopProgress { error, ..at.clone() };
            shown.show(at);
            self.progress.send_replace(Some(Progress::Volume {
                volume: at.volume.clone(),
                done_bytes: at.total_bytes.saturating_sub(at.left_bytes),
                total_bytes: at.total_bytes,
                error: at.error.clone(),
            }));
        });
        shown.finish();
        drained.map_err(|failures| {
            let failures: Vec<_> = failures
                .iter()
                .map(|failure| failure.trim_start_matches("failed to ").to_owned())
                .collect();
            anyhow!("{}", failures.join("; and to "))
        })
    }

    /// Returns the reason why a stop cannot write a volume, with the way to stop without its data.
    fn with_way_out(&self, volume: &str, error: &str) -> String {
        match &self.arguments.control {
            Some(PathOrNone::None) => error.to_owned(),
            _ => format!("{error} (larder ctl remove {volume} --give-up discards the data)"),
        }
    }

    /// Returns the reason why the stop cannot write a volume, if it has met one.
    pub(super) fn stop_failure(&self) -> Option<String> {
        match &*self.progress.borrow() {
            Some(Progress::Volume { error, .. }) => error.clone(),
            _ => None,
        }
    }

    /// Gives up the unwritten data of a volume, so that the stop that is under way can end. All
    /// requests of its clients fail from now on.
    ///
    /// # Errors
    /// A sentence that can follow "failed to": there is no such volume.
    pub(super) fn give_up_at_stop(&self, name: &str) -> Result<()> {
        let served = self.volume(name);
        let Served { volume, .. } =
            served.with_context(|| format!("find the volume \"{name}\": none is called so"))?;
        let lost_bytes = volume.unclean_bytes();
        self.engine.give_up_volume_at_stop(&volume);
        let less = |bytes: u64| Some(bytes.saturating_sub(lost_bytes));
        let _before = self.drained_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        Ok(())
    }

    /// Everything has been written, or not: whoever asked is told.
    pub(crate) fn stopped(&self, failure: Option<String>) {
        let failures = failure.into_iter().collect();
        let done_bytes = self.drained_bytes.load(Ordering::Acquire);
        let done = Progress::Done { done_bytes, failures };
        self.progress.send_replace(Some(done));
    }

    /// Returns the paths that do not lead to what is written any more, and logs each new one. It
    /// may wait for a file system.
    pub(crate) fn lost(&self) -> Vec<PathBuf> {
        let _one_at_a_time = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_for_lost()
    }

    /// Looks for lost paths, unless another thread does so and may be waiting for a file system.
    pub(crate) fn try_look_for_lost(&self) {
        let looking = self.looking.try_lock();
        if !matches!(looking, Err(TryLockError::WouldBlock)) {
            drop(self.look_for_lost());
        }
    }

    /// Returns the paths that were lost at the last look.
    pub(crate) fn known_lost(&self) -> Vec<PathBuf> {
        self.stores().known_lost()
    }

    fn look_for_lost(&self) -> Vec<PathBuf> {
        let files = self.stores().files();
        let lost = lost_of(&files);
        for path in self.stores().note_lost(&lost) {
            tracing::warn!(
                "{} was deleted or replaced while it is served; what is written will not be there \
                 after the server's end (copy the data by way of the server)",
                path.display()
            );
        }
        lost
    }

    /// Looks for deleted and replaced images until the service is gone.
    pub(super) fn watch_stores(service: &Arc<Self>) {
        if service.is_directory() {
            return;
        }
        let weak = Arc::downgrade(service);
        let watch = move || {
            while let Some(service) = weak.upgrade() {
                drop(service.lost());
                drop(service);
                std::thread::sleep(STORES_CHECK);
            }
        };
        let warn = |error: &dyn std::fmt::Display| {
            tracing::warn!("cannot watch for deleted images: {error}");
        };
        if let Err(error) = fault::spawn("stores", None, watch, warn) {
            warn(&error);
        }
    }

    pub(crate) fn close(&self) {
        self.give_up();
        let lists = self.lists.as_ref().map(WarmLists::gather).unwrap_or_default();
        self.engine.shut_down();
        if let Some(inputs) = &self.inputs {
            let volumes: Vec<_> = self.volumes().into_iter().map(|served| served.volume).collect();
            inputs.finish(&volumes);
        }
        lists.iter().for_each(Gathered::save);
    }

    /// Ends a service whose start fails after its volumes are served: clients may have written
    /// already. Removes the recordings.
    pub(crate) fn abort_start(&self) {
        self.close_clients();
        if let Some((recording, file)) = self.take_recording() {
            recording::discard(recording, &file);
        }
        if self.volumes().iter().any(|served| !served.volume.is_clean())
            && let Err(failures) = self.engine.drain(|_| {})
        {
            for failure in failures {
                eprintln!("larder: {failure}");
            }
        }
        self.engine.shut_down();
        self.inputs.iter().for_each(InputRecording::discard);
    }

    /// Ends the connections and what was recorded of them, and leaves the stores as they are.
    pub(crate) fn give_up(&self) {
        self.close_clients();
        if let Some((recording, file)) = self.take_recording() {
            recording::finish(recording, &file);
        }
    }

    fn close_clients(&self) {
        self.files.close();
        if let Some(server) = self.server.write().unwrap_or_else(PoisonError::into_inner).take() {
            server.close();
        }
    }

    fn take_recording(&self) -> Option<(Recording, RecordingFile)> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Reports changes that would have made the start of this server fail. No cache depends on it.
fn watch_claims() -> Option<ClaimWatch> {
    for note in Claim::notes() {
        eprintln!("larder: note: {note}");
    }
    let report = |sentence: &str| eprintln!("larder: WARNING: not safe any more to {sentence}");
    let watch = ClaimWatch::start(report);
    let warn = |error: &std::io::Error| {
        eprintln!("larder: note: cannot watch for later mounts of the same data: {error}");
    };
    watch.inspect_err(warn).ok()
}

/// True if a crash loses writes that a client of a volume with these modes has flushed.
pub(super) fn loses_flushed_writes(write_mode: WriteMode, flush_mode: FlushMode) -> bool {
    write_mode != WriteMode::ReadOnly && flush_mode == FlushMode::Ignore
}

/// Warns if a crash loses writes that a client of this volume has flushed.
pub(super) fn warn_if_flushes_are_ignored(volume: &ArenaVolume) {
    if loses_flushed_writes(volume.write_mode(), volume.flush_mode()) {
        warn_of_ignored_flushes(volume.name());
    }
}

/// Says aloud that a volume does not keep its promise.
pub(crate) fn warn_of_ignored_flushes(volume: &str) {
    eprintln!(
        "larder: WARNING: {volume} ignores flushes: a crash loses what was written in the last \
         seconds, also what a client was told is safe"
    );
}

/// Returns the limits on clients.
fn limits(arguments: &Arguments) -> ServerLimits {
    let send_time_max = match arguments.send_timeout {
        0 => None,
        ns => Some(Duration::from_nanos(ns)),
    };
    ServerLimits { send_time_max, ..ServerLimits::default() }
}

/// Where to listen.
pub(crate) fn address(arguments: &Arguments) -> Result<ListenAddress> {
    if let Some(address) = &arguments.listen {
        return Ok(address.clone());
    }
    let name = &arguments.volumes[0].name;
    Ok(ListenAddress::Unix(runtime_directory()?.join(format!("{name}.sock"))))
}
