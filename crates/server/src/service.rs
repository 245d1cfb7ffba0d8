//! A running service: the engine, its volumes and the NBD server, and the operations that the
//! command line, signals and the control interface request of them.
//!
//! Invariant: the list of volumes is that of the exports; each has its plan with the current
//! settings.

mod exposure;
mod files;
pub(crate) mod shortage;
mod stop;
mod volumes;

pub use files::prepare;

use crate::counters;
use crate::lock;
use crate::memory_return::MemoryReturn;
use crate::output::{self, sentence};
use crate::plan::{Configuration, Plan};
use crate::recording::{InputRecording, RequestRecording};
use crate::requests::RequestSender;
use crate::runtime_directory::runtime_directory;
use crate::settings::ServerSettings;
use crate::stores::{self, Stores};
use crate::value::unknown_volume;
use crate::volume_plan::VolumePlan;
use crate::warm::{self, WarmLists};
use anyhow::{Context, Result, anyhow};
use files::Files;
pub(crate) use files::Unmounted;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::request::BudgetUsage;
use larder_io::claim::{Claim, ClaimWatch};
use larder_io::engine::{ArenaVolume, Engine, EngineOptions};
use larder_io::front::listen::Listener;
use larder_io::front::nbd::{ListenAddress, Server, ServerLimits, ServerOptions, TlsOptions};
use larder_io::store::AllocationMap;
use larder_report::escape;
use larder_schema::format;
use std::fmt;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;
use stop::StopState;

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
    pub(crate) memory_return: Option<MemoryReturn>,
    /// Reports other accesses to the data that bypass the cache.
    _claims: Option<ClaimWatch>,
    pub(crate) engine: Arc<Engine>,
    /// `None` once it is closed.
    server: RwLock<Option<Server>>,
    files: Files,
    volumes: Mutex<Vec<ServedVolume>>,
    pub(crate) stores: Stores,
    /// Bytes of `--memory` that the cache cannot use.
    reserved_bytes: AtomicU64,
    /// Lists of cached pages, if `--warm-list` is set.
    lists: Option<WarmLists>,
    /// Held during a change of the volumes or settings.
    change_lock: Mutex<()>,
    /// Held by a control request that adds a volume.
    pub(crate) add_lock: Arc<tokio::sync::Mutex<()>>,
    /// The configuration of the start.
    pub(crate) configuration: Configuration,
    settings: Mutex<ServerSettings>,
    recording: Mutex<Option<RequestRecording>>,
    /// The recording of the cache's inputs.
    inputs: Option<InputRecording>,
    pub(crate) started_at: Instant,
    stop: StopState,
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
        let settings = &plan.server;
        let tls = stores::tls(settings)?;
        let options = EngineOptions {
            memory_bytes: settings.memory_bytes - plan.reserved_bytes(),
            huge_pages: true,
            lock: settings.lock,
            threads: std::thread::available_parallelism().map_or(1, NonZero::get),
            policy_bytes: plan.policy_bytes(),
        };
        let inputs = settings.record_inputs.as_deref().map(InputRecording::start).transpose()?;
        let engine = Engine::with_log(options, inputs.as_ref().map(InputRecording::log))
            .inspect_err(|_| inputs.iter().for_each(InputRecording::discard))?;
        engine.cache().set_share_mode(settings.share);
        if let Some(note) = shortage::note(settings.memory_bytes) {
            eprintln!("larder: note: {note}");
        }
        let mut service = Service {
            memory_return: None,
            _claims: None,
            engine: Arc::new(engine),
            server: RwLock::new(None),
            files: Files::default(),
            volumes: Mutex::default(),
            stores: Stores::default(),
            reserved_bytes: AtomicU64::new(plan.reserved_bytes()),
            lists: None,
            change_lock: Mutex::new(()),
            add_lock: Arc::default(),
            configuration: configuration.clone(),
            settings: Mutex::new(settings.clone()),
            recording: Mutex::new(None),
            inputs,
            started_at: Instant::now(),
            stop: StopState::new(requests),
        };
        if let Err(error) = service.open(plan, inherited, tls) {
            service.abort_start();
            return Err(error);
        }
        let memory_return = settings.give_back.map(|it| MemoryReturn::start(&service.engine, it));
        Ok(Service { memory_return, _claims: watch_claims(), ..service })
    }

    /// Opens the volumes, and serves them.
    fn open(&mut self, plan: &Plan, inherited: Option<Listener>, tls: TlsOptions) -> Result<()> {
        let settings = &plan.server;
        self.lists = warm::start(settings, &self.engine)?;
        if let Some(options) = &self.configuration.mount {
            return self.mount(options, &plan.volumes);
        }
        for volume in &plan.volumes {
            let store = self.open_store(volume, settings.memory_bytes)?;
            let served = self.add_volume(volume, store, plan.volumes.len() == 1)?;
            lock(&self.volumes).push(served);
        }
        let volumes = self.volumes();
        let limits = ServerLimits { send_time_max: settings.send_timeout, ..Default::default() };
        let exports = volumes.iter().map(|served| served.export(&limits)).collect();
        let listener = match inherited {
            Some(listener) => listener,
            None => Listener::bind(&address(settings, &plan.volumes)?)?,
        };
        if let Some(warning) = exposure::warning(listener.address(), settings) {
            eprintln!("larder: WARNING: {warning}");
        }
        let names = || plan.volumes.iter().map(|volume| volume.name.clone()).collect();
        let record = |path: &PathBuf| RequestRecording::start(path, &self.engine, names());
        let recording = settings.record.as_ref().map(record).transpose()?;
        let observer = recording.as_ref().map(RequestRecording::observer);
        *lock(&self.recording) = recording;
        let options = ServerOptions { limits, observer: observer.clone(), tls };
        let server = Server::start_on(Arc::clone(&self.engine), listener, exports, options)?;
        *self.server.write().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.files.start(settings, &self.engine, &volumes, observer)
    }

    fn server(&self) -> RwLockReadGuard<'_, Option<Server>> {
        self.server.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the server with an operation that may take some time.
    ///
    /// # Errors
    /// Those of the operation; or the server is closed.
    fn with_server<T>(&self, operation: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        operation(self.server().as_ref().context("reach clients: the server is stopping")?)
    }

    pub(crate) fn volumes(&self) -> Vec<ServedVolume> {
        lock(&self.volumes).clone()
    }

    pub(crate) fn find_volume(&self, name: &str) -> Option<ServedVolume> {
        lock(&self.volumes).iter().find(|served| served.volume.name() == name).cloned()
    }

    /// Returns the volume of this name.
    ///
    /// # Errors
    /// There is no such volume.
    pub(crate) fn volume(&self, name: &str) -> Result<ServedVolume> {
        self.find_volume(name).ok_or_else(|| {
            let volumes = self.volumes();
            anyhow!(unknown_volume(name, volumes.iter().map(|served| served.volume.name())))
        })
    }

    /// Locks the volumes and settings against other changes, until the guard is dropped.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        lock(&self.change_lock)
    }

    /// Returns the bytes of `--memory` that the cache cannot use.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn settings(&self) -> ServerSettings {
        lock(&self.settings).clone()
    }

    pub(crate) fn plan(&self) -> Plan {
        let volumes = self.volumes().into_iter().map(|served| served.plan).collect();
        Plan { server: self.settings(), warm_lists: self.lists.is_some(), volumes }
    }

    /// Stores the new plan, for the same volumes.
    pub(crate) fn set_plan(&self, plan: &Plan) {
        lock(&self.settings).clone_from(&plan.server);
        for (served, plan) in lock(&self.volumes).iter_mut().zip(&plan.volumes) {
            debug_assert_eq!(served.plan.name, plan.name, "the same volumes in the same order");
            served.plan = plan.clone();
        }
    }

    /// Returns true if a directory is mounted.
    pub(crate) fn is_directory(&self) -> bool {
        self.configuration.mount.is_some()
    }

    /// Returns the address of a volume for NBD clients; empty once the server is closed.
    pub(crate) fn uri(&self, volume: &str) -> String {
        self.server().as_ref().map(|server| server.uri(volume)).unwrap_or_default()
    }

    /// Returns the usage of the memory that the requests of NBD clients may hold; `None` for a
    /// mounted directory, or once the server is closed.
    pub(crate) fn budget(&self) -> Option<BudgetUsage> {
        self.server().as_ref().map(Server::budget)
    }

    /// Prints the addresses of the exports, one per line.
    pub(crate) fn announce(&self) -> std::io::Result<()> {
        let (mut out, volumes) = (output::stdout(), self.volumes());
        if let Some(options) = &self.configuration.mount {
            let (source, at) = (escape::path(&options.source), escape::path(&options.mountpoint));
            writeln!(out, "mounted {source} at {at} ({})", volumes[0].volume.write_mode())?;
        }
        for ServedVolume { volume, .. } in &volumes {
            if !self.is_directory() {
                writeln!(out, "{}", self.serving_line(volume))?;
            }
            warn_if_flushes_are_ignored(volume);
        }
        for ServedVolume { volume, .. } in &volumes {
            if let Some(file) = self.files.file(volume.name()) {
                writeln!(out, "serving {} as the file {}", volume.name(), file.display())?;
            }
        }
        out.flush()
    }

    /// Returns the line with the address of a volume for clients.
    pub(super) fn serving_line(&self, volume: &ArenaVolume) -> String {
        let size = format::bytes(volume.geometry().length);
        let (name, mode, uri) = (volume.name(), volume.write_mode(), self.uri(volume.name()));
        format!("serving {name} ({size}, {mode}) at {uri}")
    }

    /// Returns a line with the current state, for the service manager.
    pub(crate) fn status(&self) -> String {
        let left = format::bytes(self.unwritten_bytes());
        if self.is_stopping() {
            return format!("stopping: {left} to write");
        }
        let volumes = format::counted(self.volumes().len() as u64, "volume");
        format!("serving {volumes}; {left} not written yet")
    }

    /// Returns the number of bytes that clients have written and the stores do not have yet.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.volumes().iter().map(|served| served.volume.unclean_bytes()).sum()
    }

    /// Prints the counters of all volumes, and writes the file of counters.
    pub(crate) fn report(&self) {
        self.print_counters();
        self.save_counters();
    }

    /// Prints the counters unless notes are turned off, and writes the file of counters.
    pub(crate) fn report_at_end(&self) {
        if !output::is_quiet() {
            self.print_counters();
        }
        self.save_counters();
    }

    fn print_counters(&self) {
        for ServedVolume { volume, .. } in self.volumes() {
            eprint!("{}\n", counters::counters(self.engine.cache(), &volume).to_whole_text());
            if let Some(table) = counters::latencies(&volume, &volume.totals()) {
                eprint!("{}\n", table.to_whole_text());
            }
        }
    }

    /// Writes the file of counters, if there is one.
    fn save_counters(&self) {
        if let Some(path) = self.settings().counters
            && let Err(error) = self.write_counters(&path)
        {
            eprintln!("larder: note: cannot {}", sentence(&error));
        }
    }

    /// Replaces the file of counters atomically.
    fn write_counters(&self, path: &Path) -> Result<()> {
        let json = counters::json(self.engine.cache(), &self.arena_volumes());
        output::write_atomically(path, &format!("{json:#}\n"))
    }

    fn arena_volumes(&self) -> Vec<Arc<ArenaVolume>> {
        self.volumes().into_iter().map(|served| served.volume).collect()
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

pub(crate) fn address(settings: &ServerSettings, volumes: &[VolumePlan]) -> Result<ListenAddress> {
    if let Some(address) = &settings.listen {
        return Ok(address.clone());
    }
    let name = &volumes[0].name;
    Ok(ListenAddress::Unix(runtime_directory()?.join(format!("{name}.sock"))))
}
