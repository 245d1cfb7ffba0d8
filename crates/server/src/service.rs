//! A running service: the engine, its volumes and the NBD server, and the operations that the
//! command line, signals and the control interface request of them.
//!
//! Invariant: the list of volumes is that of the exports; each has its plan with the current
//! settings. Poisoned locks are accepted: each change is one step, and a request of the control
//! interface that panics must not prevent a stop from writing all dirty data.

mod files;
mod volumes;

pub use files::prepare;

use crate::counters;
use crate::memory_return::MemoryReturn;
use crate::output::{self, sentence};
use crate::plan::{Configuration, Plan};
use crate::record::Recording;
use crate::recording::{self, InputRecording, RecordingFile};
use crate::requests::{RequestSender, ServerRequest};
use crate::runtime_directory::runtime_directory;
use crate::settings::ServerSettings;
use crate::stores::{self, Stores, find_lost_files};
use crate::value::PathOrNone;
use crate::volume_plan::VolumePlan;
use crate::warm::{self, PendingList, WarmLists};
use anyhow::{Context, Result, anyhow};
use files::Files;
use larder_core::input::InputSink;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::request::BudgetUsage;
use larder_io::claim::{Claim, ClaimWatch};
use larder_io::engine::{ArenaVolume, Engine, EngineOptions, StopProgress};
use larder_io::fault;
use larder_io::front::listen::Listener;
use larder_io::front::nbd::{ListenAddress, Server, ServerLimits, ServerOptions};
use larder_io::store::AllocationMap;
use larder_report::escape;
use larder_schema::control::Progress;
use larder_schema::format;
use std::fmt;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use volumes::VolumeOpener;

/// Interval at which the server checks for deleted images.
const STORES_CHECK: Duration = Duration::from_secs(5);

/// A volume that is served.
#[derive(Clone)]
pub struct ServedVolume {
    pub(crate) volume: Arc<ArenaVolume>,
    pub(super) map: Arc<dyn AllocationMap>,
    pub(crate) plan: VolumePlan,
    /// True if clients that name no export get this volume.
    pub(super) default: bool,
    /// Bytes of `--memory` that its store uses for buffers.
    pub(super) buffer_bytes: u64,
}

/// A running service.
pub struct Service {
    /// Return of memory to the system, if `--give-back` is set.
    memory_return: Option<MemoryReturn>,
    /// Reports other accesses to the data that bypass the cache.
    _claims: Option<ClaimWatch>,
    engine: Arc<Engine>,
    /// `None` once it is closed.
    server: RwLock<Option<Server>>,
    files: Files,
    volumes: Mutex<Vec<ServedVolume>>,
    /// The path of each volume, and the identity of its file when it was opened.
    stores: Mutex<Stores>,
    /// Held by the thread that checks the paths.
    lost_check: Mutex<()>,
    /// Bytes of `--memory` that the cache cannot use.
    pub(super) reserved_bytes: AtomicU64,
    /// Lists of cached pages, if `--warm-list` is set.
    lists: Option<WarmLists>,
    /// The configured memory.
    memory_bytes: AtomicU64,
    /// Held during a change of the volumes or settings.
    change_lock: Mutex<()>,
    /// Held by a control request that adds a volume.
    add_lock: Arc<tokio::sync::Mutex<()>>,
    /// The configuration of the start.
    configuration: Configuration,
    /// The settings of the start.
    settings: ServerSettings,
    /// The recording of requests and its file.
    recording: Mutex<Option<(Recording, RecordingFile)>>,
    /// The recording of the cache's inputs.
    inputs: Option<InputRecording>,
    started_at: Instant,
    requests: RequestSender,
    stopping: AtomicBool,
    /// Progress of a stop.
    progress: watch::Sender<Option<Progress>>,
    /// Bytes that a stop has to write.
    drained_bytes: AtomicU64,
}

impl fmt::Debug for ServedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedVolume").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("plan", &self.plan()).finish_non_exhaustive()
    }
}

impl Service {
    /// Opens the volumes and serves them, on the inherited socket if there is one.
    pub(crate) fn start(
        configuration: &Configuration,
        plan: &Plan,
        inherited: Option<Listener>,
        requests: RequestSender,
    ) -> Result<Self> {
        let inputs = plan.server.record_inputs.as_deref().map(InputRecording::start).transpose()?;
        let log = inputs.as_ref().map(InputRecording::log);
        match Self::start_with_log(configuration, plan, inherited, requests, log) {
            Ok(service) => Ok(Service { inputs, ..service }),
            Err(error) => {
                inputs.iter().for_each(InputRecording::discard);
                Err(error)
            }
        }
    }

    fn start_with_log(
        configuration: &Configuration,
        plan: &Plan,
        inherited: Option<Listener>,
        requests: RequestSender,
        log: Option<Box<dyn InputSink>>,
    ) -> Result<Self> {
        let settings = &plan.server;
        let tls = stores::tls(settings)?;
        let options = EngineOptions {
            memory_bytes: settings.memory_bytes - plan.reserved_bytes(),
            huge_pages: true,
            lock: settings.lock,
            threads: std::thread::available_parallelism().map_or(1, NonZero::get),
            policy_bytes: plan.policy_bytes(),
        };
        let engine = Engine::with_log(options, log)?;
        engine.cache().set_share_mode(settings.share);
        let engine = Arc::new(engine);
        let lists = warm::start(settings, &engine)?;
        let limits = limits(settings);
        let mut stores = Stores::default();
        let (memory_bytes, plain_io) = (settings.memory_bytes, settings.plain_io);
        let opener =
            VolumeOpener { engine: &engine, lists: lists.as_ref(), plain_io, memory_bytes };
        let is_stopping = || requests.is_stop_requested();
        if let Some(options) = &configuration.mount {
            let (served, files) = opener.mount(options, &plan.volumes)?;
            return Ok(Service::of(configuration, plan, engine, (served, files), requests));
        }
        let default = plan.volumes.len() == 1;
        let volumes = plan.volumes.iter().map(|plan| {
            let store = opener.open_store(plan, &is_stopping)?;
            opener.add_volume(&mut stores, plan, store, default)
        });
        let volumes: Vec<_> = volumes.collect::<Result<_>>()?;
        let exports = volumes.iter().map(|served| served.export(&limits)).collect();
        let listener = match inherited {
            Some(listener) => listener,
            None => Listener::bind(&address(settings, &plan.volumes)?)?,
        };
        let recording = match &settings.record {
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
            let files = Files::start(settings, &engine, &volumes, observer)?;
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
            ..Service::of(configuration, plan, engine, (volumes, files), requests)
        })
    }

    /// Returns a service without a server, lists and recordings.
    fn of(
        configuration: &Configuration,
        plan: &Plan,
        engine: Arc<Engine>,
        (volumes, files): (Vec<ServedVolume>, Files),
        requests: RequestSender,
    ) -> Self {
        Service {
            memory_return: plan.server.give_back.map(|floor| MemoryReturn::start(&engine, floor)),
            _claims: watch_claims(),
            engine,
            server: RwLock::new(None),
            files,
            volumes: Mutex::new(volumes),
            stores: Mutex::default(),
            lost_check: Mutex::new(()),
            reserved_bytes: AtomicU64::new(plan.reserved_bytes()),
            lists: None,
            memory_bytes: AtomicU64::new(plan.server.memory_bytes),
            change_lock: Mutex::new(()),
            add_lock: Arc::default(),
            configuration: configuration.clone(),
            settings: plan.server.clone(),
            recording: Mutex::new(None),
            inputs: None,
            started_at: Instant::now(),
            requests,
            stopping: AtomicBool::new(false),
            progress: watch::Sender::new(None),
            drained_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the state of `--give-back`, if it is set.
    pub(crate) fn memory_return(&self) -> Option<&MemoryReturn> {
        self.memory_return.as_ref()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the configuration of the start.
    pub(super) fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the settings of the start.
    pub(super) fn start_settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Returns the lists of cached pages, if they are kept.
    pub(super) fn lists(&self) -> Option<&WarmLists> {
        self.lists.as_ref()
    }

    /// Returns the files of the volumes.
    pub(super) fn stores(&self) -> MutexGuard<'_, Stores> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the server with an operation that may take some time.
    ///
    /// # Errors
    /// Those of the operation; or the server is closed.
    pub(super) fn with_server<T>(&self, operation: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        operation(server.as_ref().context("reach clients: the server is stopping")?)
    }

    /// Returns the mount.
    fn files(&self) -> &Files {
        &self.files
    }

    /// Adds a volume to the list.
    pub(super) fn note_added(&self, served: ServedVolume) {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner).push(served);
    }

    /// Removes a volume from the list.
    pub(super) fn note_removed(&self, name: &str) {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.retain(|served| served.volume.name() != name);
    }

    /// Returns the current volumes.
    pub(crate) fn volumes(&self) -> Vec<ServedVolume> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the volume of this name.
    pub(crate) fn volume(&self, name: &str) -> Option<ServedVolume> {
        self.volumes().into_iter().find(|served| served.volume.name() == name)
    }

    /// Locks the volumes and settings against other changes, until the guard is dropped.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.change_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock that a control request holds while it adds a volume.
    pub(crate) fn add_lock(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.add_lock)
    }

    /// Returns the bytes of `--memory` that the cache cannot use.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Acquire)
    }

    /// Returns the current plan.
    pub(crate) fn plan(&self) -> Plan {
        let volumes = self.volumes().into_iter().map(|served| served.plan).collect();
        let server = ServerSettings {
            memory_bytes: self.memory_bytes.load(Ordering::Acquire),
            share: self.engine.cache().share_mode(),
            ..self.settings.clone()
        };
        Plan { server, warm_lists: self.lists.is_some(), volumes }
    }

    /// Stores the new plan, for the same volumes.
    pub(crate) fn set_plan(&self, plan: &Plan) {
        self.memory_bytes.store(plan.server.memory_bytes, Ordering::Release);
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for (served, plan) in volumes.iter_mut().zip(&plan.volumes) {
            debug_assert_eq!(served.plan.name, plan.name, "the same volumes in the same order");
            served.plan = plan.clone();
        }
    }

    /// Returns the address of a volume for NBD clients; empty once the server is closed.
    pub(crate) fn uri(&self, volume: &str) -> String {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(|server| server.uri(volume)).unwrap_or_default()
    }

    /// Returns the usage of the memory that the requests of NBD clients may hold; `None` for a
    /// mounted directory, or once the server is closed.
    pub(crate) fn budget(&self) -> Option<BudgetUsage> {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(Server::budget)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Prints the addresses of the exports, one per line.
    pub(crate) fn announce(&self) -> std::io::Result<()> {
        let mut out = crate::output::stdout();
        if let Some(options) = &self.configuration.mount {
            let (source, at) = (escape::path(&options.source), escape::path(&options.mountpoint));
            let volumes = self.volumes();
            writeln!(out, "mounted {source} at {at} ({})", volumes[0].volume.write_mode())?;
            for ServedVolume { volume, .. } in volumes {
                warn_if_flushes_are_ignored(&volume);
            }
            return out.flush();
        }
        for ServedVolume { volume, .. } in self.volumes() {
            writeln!(out, "{}", self.serving_line(&volume))?;
            warn_if_flushes_are_ignored(&volume);
        }
        for ServedVolume { volume, .. } in self.volumes() {
            if let Some(file) = self.files.file(volume.name()) {
                writeln!(out, "serving {} as the file {}", volume.name(), file.display())?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Returns the line with the address of a volume for clients.
    pub(super) fn serving_line(&self, volume: &ArenaVolume) -> String {
        let size = format::bytes(volume.geometry().length);
        let (name, mode, uri) = (volume.name(), volume.write_mode(), self.uri(volume.name()));
        format!("serving {name} ({size}, {mode}) at {uri}")
    }

    /// Returns a line with the current state, for the service manager.
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
        for ServedVolume { volume, .. } in self.volumes() {
            eprint!("{}\n", counters::counters(self.engine.cache(), &volume).to_text());
            if let Some(table) = counters::latencies(&volume, &volume.totals()) {
                eprint!("{}\n", table.to_text());
            }
        }
        if let Some(path) = &self.settings.counters
            && let Err(error) = self.write_counters(path)
        {
            eprintln!("larder: note: failed to {}", sentence(&error));
        }
    }

    /// Replaces the file of counters atomically.
    fn write_counters(&self, path: &Path) -> Result<()> {
        let volumes: Vec<_> = self.volumes().into_iter().map(|served| served.volume).collect();
        let json = counters::json(self.engine.cache(), &volumes);
        output::write_atomically(path, &format!("{json:#}\n"))
    }

    /// Requests a stop, as SIGTERM does.
    pub(crate) fn request_stop(&self) {
        if !self.requests.send(ServerRequest::Stop) {
            tracing::warn!("asked to stop, but nobody listens");
        }
    }

    /// Returns true from the moment a stop is requested.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.requests.is_stop_requested()
    }

    /// Subscribes to the progress of a stop; `None` before it begins.
    pub(crate) fn stop_progress(&self) -> watch::Receiver<Option<Progress>> {
        self.progress.subscribe()
    }

    /// Writes all dirty data, without a time limit; reports the progress to `show`.
    ///
    /// # Errors
    /// Data could not be written. The error text is a verb phrase that follows "failed to".
    pub fn drain(&self, show: &mut dyn FnMut(&StopProgress)) -> Result<()> {
        self.stopping.store(true, Ordering::Release);
        let volumes = self.engine.cache().volumes();
        let dirty_bytes: u64 = volumes.iter().map(|volume| volume.unclean_bytes()).sum();
        self.drained_bytes.fetch_add(dirty_bytes, Ordering::AcqRel);
        // Writing begins at once; the lock is held only for short and local steps.
        let flushes = self.engine.start_flushes();
        // This waits for an addition or removal of a volume in progress.
        drop(self.lock_changes());
        drop(flushes);
        if let Some(lists) = &self.lists {
            lists.before_stop();
        }
        let result = self.engine.drain(|progress| {
            let error = progress
                .error
                .as_ref()
                .map(|error| self.with_discard_hint(&progress.volume, error));
            let progress = &StopProgress { error, ..progress.clone() };
            show(progress);
            self.progress.send_replace(Some(Progress::Volume {
                volume: progress.volume.clone(),
                done_bytes: progress.total_bytes.saturating_sub(progress.left_bytes),
                total_bytes: progress.total_bytes,
                error: progress.error.clone(),
            }));
        });
        result.map_err(|failures| {
            let failures: Vec<_> = failures
                .iter()
                .map(|failure| failure.trim_start_matches("failed to ").to_owned())
                .collect();
            anyhow!("{}", failures.join("; and to "))
        })
    }

    /// Returns the reason why a stop cannot write a volume, with the command that discards its
    /// data.
    fn with_discard_hint(&self, volume: &str, error: &str) -> String {
        match &self.settings.control {
            Some(PathOrNone::None) => error.to_owned(),
            _ => format!("{error} (larder ctl remove {volume} --give-up discards the data)"),
        }
    }

    /// Returns the reason why the stop cannot write a volume, if there is one.
    pub(super) fn stop_failure(&self) -> Option<String> {
        match &*self.progress.borrow() {
            Some(Progress::Volume { error, .. }) => error.clone(),
            _ => None,
        }
    }

    /// Discards the unwritten data of a volume, so that the stop in progress can end. All requests
    /// of its clients fail from now on.
    ///
    /// # Errors
    /// There is no such volume. The error text is a verb phrase that follows "failed to".
    pub(super) fn discard_at_stop(&self, name: &str) -> Result<()> {
        let served = self.volume(name);
        let ServedVolume { volume, .. } =
            served.with_context(|| format!("find the volume \"{name}\": none is called so"))?;
        let lost_bytes = volume.unclean_bytes();
        self.engine.give_up_volume_at_stop(&volume);
        let less = |bytes: u64| Some(bytes.saturating_sub(lost_bytes));
        let _before = self.drained_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        Ok(())
    }

    /// Publishes the result of a stop to the clients that follow it.
    pub(crate) fn report_stop_result(&self, failure: Option<String>) {
        let failures = failure.into_iter().collect();
        let done_bytes = self.drained_bytes.load(Ordering::Acquire);
        let done = Progress::Done { done_bytes, failures };
        self.progress.send_replace(Some(done));
    }

    /// Returns the paths that no longer lead to the files that are written, and logs each new one.
    /// It may wait for a file system.
    pub(crate) fn find_lost(&self) -> Vec<PathBuf> {
        let _guard = self.lost_check.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_paths()
    }

    /// Checks the paths, unless another thread does so and may be waiting for a file system.
    pub(crate) fn try_check_paths(&self) {
        let guard = self.lost_check.try_lock();
        if !matches!(guard, Err(TryLockError::WouldBlock)) {
            drop(self.check_paths());
        }
    }

    /// Returns the paths that were lost at the last check.
    pub(crate) fn known_lost(&self) -> Vec<PathBuf> {
        self.stores().known_lost()
    }

    fn check_paths(&self) -> Vec<PathBuf> {
        let files = self.stores().files();
        let lost = find_lost_files(&files);
        for path in self.stores().record_lost(&lost) {
            tracing::warn!(
                "{} was deleted or replaced while it is served; what is written will not be there \
                 after the server's end (copy the data by way of the server)",
                path.display()
            );
        }
        lost
    }

    /// Starts a thread that checks for deleted and replaced images until the service is dropped.
    pub(super) fn watch_stores(service: &Arc<Self>) {
        if service.is_directory() {
            return;
        }
        let weak = Arc::downgrade(service);
        let watch = move || {
            while let Some(service) = weak.upgrade() {
                drop(service.find_lost());
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
        self.close_without_writing();
        let lists = self.lists.as_ref().map(WarmLists::collect).unwrap_or_default();
        self.engine.shut_down();
        if let Some(inputs) = &self.inputs {
            let volumes: Vec<_> = self.volumes().into_iter().map(|served| served.volume).collect();
            inputs.finish(&volumes);
        }
        lists.iter().for_each(PendingList::save);
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

    /// Ends the connections and their recording, and leaves the stores unchanged.
    pub(crate) fn close_without_writing(&self) {
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

/// Reports changes that would have made the start of this server fail. The cache does not depend on
/// it.
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

/// Warns that a volume does not keep the guarantee of a flush.
pub(crate) fn warn_of_ignored_flushes(volume: &str) {
    eprintln!(
        "larder: WARNING: {volume} ignores flushes: a crash loses what was written in the last \
         seconds, also what a client was told is safe"
    );
}

/// Returns the limits on clients.
fn limits(settings: &ServerSettings) -> ServerLimits {
    ServerLimits { send_time_max: settings.send_timeout, ..ServerLimits::default() }
}

/// Returns the address to listen on.
pub(crate) fn address(settings: &ServerSettings, volumes: &[VolumePlan]) -> Result<ListenAddress> {
    if let Some(address) = &settings.listen {
        return Ok(address.clone());
    }
    let name = &volumes[0].name;
    Ok(ListenAddress::Unix(runtime_directory()?.join(format!("{name}.sock"))))
}
