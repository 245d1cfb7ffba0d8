//! `larder serve`: volumes with a cache, over NBD, until told to stop.

mod record;
mod stores;

use crate::args::{self, VolumeArgument};
use crate::counters;
use crate::progress::WriteOut;
use crate::signals::{Asked, channel_of_signals};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{ArenaVolume, Engine, EngineOptions};
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits, ServerOptions};
use larder_report::format;
use record::Recording;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file, a block device, or an export of another NBD server by its address (schemes nbd,
    /// nbds, nbd+unix, nbds+unix), as [NAME=]PATH; the export is called NAME, else the file name
    /// without its ending.
    #[arg(required = true, value_name = "VOLUME", value_parser = args::volume)]
    volumes: Vec<VolumeArgument>,

    /// Memory of the cache, with everything that goes with it, shared by all volumes.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = args::bytes)]
    memory: u64,

    /// Where to listen: unix:PATH or tcp:ADDRESS:PORT. Without it, a socket in the runtime
    /// directory.
    #[arg(long, value_name = "ADDRESS", value_parser = args::listen)]
    listen: Option<ListenAddress>,

    /// Speak TLS, with server-cert.pem and server-key.pem of this folder.
    #[arg(long, value_name = "DIR", help_heading = "TLS")]
    tls: Option<PathBuf>,

    /// What becomes of clients that do not speak TLS: require refuses them, allow serves them.
    #[arg(long, value_name = "MODE", default_value = "require", requires = "tls",
          value_parser = ["require", "allow"], help_heading = "TLS")]
    tls_mode: String,

    /// Refuse clients without a certificate that ca-cert.pem of the folder vouches for.
    #[arg(long, requires = "tls", help_heading = "TLS")]
    tls_verify_peer: bool,

    /// Record every answered request into a new trace.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Unit of replacement, 4KiB to 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::page_blocks,
          help_heading = "Cache")]
    page_size: u32,

    /// Replacement policy: random, fifo, lru, clock, 2q, slru, arc, lirs, s3fifo, sieve, wtinylfu,
    /// clock2q+, linux.
    #[arg(long, default_value = "s3fifo", value_parser = args::policy, help_heading = "Cache")]
    policy: PolicyKind,

    /// Memory that other volumes cannot take from a volume.
    #[arg(long, value_name = "[NAME=]SIZE", value_parser = args::named_bytes,
          help_heading = "Cache")]
    min: Vec<(Option<String>, u64)>,

    /// Memory that a volume never exceeds.
    #[arg(long, value_name = "[NAME=]SIZE", value_parser = args::named_bytes,
          help_heading = "Cache")]
    max: Vec<(Option<String>, u64)>,

    /// The most that is read ahead of a stream at a time, or "off".
    #[arg(long, value_name = "SIZE|off", value_parser = args::bytes_or_off,
          help_heading = "Cache")]
    read_ahead: Option<u64>,

    /// How a volume will be read: normal, sequential (once and in order), random (nothing is read
    /// ahead), no-buffering (its clients have a cache of their own).
    #[arg(long, value_name = "[NAME=]HINT", value_parser = args::named_hint,
          help_heading = "Cache")]
    hint: Vec<(Option<String>, Hint)>,

    /// Lock the memory, so that it is never swapped out.
    #[arg(long, help_heading = "Cache")]
    lock: bool,

    /// What a write does before it is acknowledged: back (it is in the cache), through (and in the
    /// store), around (in the store only), read-only.
    #[arg(long, default_value = "back", value_parser = args::write_mode, help_heading = "Writes")]
    write_mode: WriteMode,

    /// What a flush does: keep its promise, or ignore it, which loses what a crash finds unwritten.
    #[arg(long, default_value = "keep", value_parser = args::flush_mode, help_heading = "Writes")]
    flush: FlushMode,

    /// Constants of the lazy writer: larder, or nt for those of the Windows NT file cache.
    #[arg(long, default_value = "larder", help_heading = "Writes")]
    preset: String,

    /// Set a tunable (docs/TUNABLES.md), as NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::setting, help_heading = "Writes")]
    set: Vec<(String, u64)>,

    /// Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it.
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,

    /// Use plain system calls even where io_uring is there.
    #[arg(long, help_heading = "Store")]
    plain_io: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let signals = channel_of_signals()?;
    let service = Service::start(arguments)?;
    if let Err(error) = service.announce() {
        // Whoever started us may not care for the address; the volumes are served all the same.
        eprintln!("larder: note: the addresses could not be printed: {error}");
    }
    loop {
        match signals.wait(Duration::from_hours(1)) {
            Some(Asked::Report) => service.report(),
            Some(Asked::Stop) => break,
            None => {}
        }
    }
    let stopping = AtomicBool::new(true);
    let drained = std::thread::scope(|scope| {
        scope.spawn(|| {
            while stopping.load(Ordering::Acquire) {
                match signals.wait(Duration::from_millis(100)) {
                    Some(Asked::Report) => service.report(),
                    Some(Asked::Stop) => {
                        eprintln!("larder: still writing; stopping now would lose data");
                    }
                    None => {}
                }
            }
        });
        let drained = service.drain();
        stopping.store(false, Ordering::Release);
        drained
    });
    if let Err(error) = drained {
        service.give_up();
        return Err(error);
    }
    service.report();
    let lost = service.stores.lost();
    service.close();
    ensure!(
        lost.is_empty(),
        "keep what was written: {} was deleted or replaced while it was served",
        lost.join(" and ")
    );
    Ok(())
}

/// A running service.
struct Service {
    engine: Arc<Engine>,
    server: Server,
    volumes: Vec<Arc<ArenaVolume>>,
    /// Where the counters go, besides standard error.
    counters: Option<PathBuf>,
    /// Where each volume is, and what was there when it was opened.
    stores: stores::Stores,
    /// What is recorded, and where.
    recording: Option<(Recording, PathBuf)>,
}

impl Service {
    fn start(arguments: &Arguments) -> Result<Self> {
        let tunables = tunables(arguments)?;
        check_names(arguments)?;
        let tls = stores::tls(arguments)?;
        let engine = Engine::new(EngineOptions {
            memory_bytes: stores::cache_bytes(arguments)?,
            huge_pages: true,
            lock: arguments.lock,
            threads: args::cores().get(),
            policy_bytes: arguments.policy.bytes_per_page(),
        })?;
        let engine = Arc::new(engine);
        let limits = ServerLimits::default();
        let (mut volumes, mut exports) = (Vec::new(), Vec::new());
        let mut stores = stores::Stores::default();
        let mut promised = 0;
        for volume in &arguments.volumes {
            let opened = stores.open(volume, arguments, engine.clock())?;
            for note in &opened.notes {
                eprintln!("larder: note: {note}");
            }
            let mut options = VolumeOptions::new(&volume.name, opened.store.geometry());
            options.page_blocks = arguments.page_size;
            options.policy = arguments.policy;
            options.write_mode = arguments.write_mode;
            options.flush_mode = arguments.flush;
            options.tunables = tunables.clone();
            options.hint = *of_volume(&arguments.hint, &volume.name).unwrap_or(&Hint::Normal);
            options.min_frames = frames(&arguments.min, &volume.name, 0);
            options.max_frames = frames(&arguments.max, &volume.name, u32::MAX);
            check_bounds(&options, engine.cache().frame_count())?;
            promised += u64::from(options.min_frames);
            ensure!(
                promised <= u64::from(engine.cache().frame_count()),
                "give every volume its --min: together they are more than --memory"
            );
            let default = arguments.volumes.len() == 1;
            let volume = engine.add_volume(options, opened.store)?;
            exports.push(Export::new(Arc::clone(&volume), opened.map, default, &limits));
            volumes.push(volume);
        }
        let listen = arguments.listen.clone().unwrap_or_else(|| default_address(arguments));
        let recording = match &arguments.record {
            Some(path) => Some((start_recording(path, &engine, &volumes)?, path.clone())),
            None => None,
        };
        let observer = recording.as_ref().map(|(recording, _)| recording.observer());
        let options = ServerOptions { limits, observer, tls };
        let server = Server::start_with(Arc::clone(&engine), &listen, exports, options);
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                if let Some((recording, path)) = recording {
                    discard_recording(recording, &path);
                }
                return Err(error.into());
            }
        };
        let counters = arguments.counters.clone();
        Ok(Service { engine, server, volumes, counters, stores, recording })
    }

    /// Says where the exports are: one line each.
    fn announce(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        for volume in &self.volumes {
            let size = format::bytes(volume.geometry().length);
            let mode = volume.write_mode();
            let uri = self.server.uri(volume.name());
            writeln!(out, "serving {} ({size}, {mode}) at {uri}", volume.name())?;
            if volume.flush_mode() == FlushMode::Ignore {
                eprintln!(
                    "larder: WARNING: {} ignores flushes: a crash loses what was written in the \
                     last seconds, also what a client was told is safe",
                    volume.name()
                );
            }
        }
        out.flush()?;
        Ok(())
    }

    fn report(&self) {
        for volume in &self.volumes {
            eprintln!("{}", counters::counters(self.engine.cache(), volume).to_text());
            if let Some(table) = counters::latencies(volume, &volume.totals()) {
                eprintln!("{}", table.to_text());
            }
        }
        if let Some(path) = &self.counters
            && let Err(error) = self.write_counters(path)
        {
            eprintln!("larder: note: {error:#}");
        }
    }

    /// Replaces the file of counters as a whole.
    fn write_counters(&self, path: &Path) -> Result<()> {
        let json = counters::json(self.engine.cache(), &self.volumes);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            writeln!(file, "{json:#}")?;
            file.persist(path)?;
            Ok(())
        };
        write().with_context(|| format!("write the counters to {}", path.display()))
    }

    fn drain(&self) -> Result<()> {
        let mut progress = WriteOut::new();
        let drained = self.engine.drain(|at| progress.show(at));
        progress.finish();
        drained.map_err(|failures| {
            let failures: Vec<_> = failures
                .iter()
                .map(|failure| failure.trim_start_matches("failed to ").to_owned())
                .collect();
            anyhow!("{}", failures.join("; and to "))
        })
    }

    fn close(self) {
        let engine = Arc::clone(&self.engine);
        self.give_up();
        engine.shut_down();
    }

    /// Ends the connections and what was recorded of them, and leaves the stores as they are.
    fn give_up(self) {
        self.server.close();
        if let Some((recording, path)) = self.recording {
            finish_recording(recording, &path);
        }
    }
}

fn start_recording(
    path: &Path,
    engine: &Engine,
    volumes: &[Arc<ArenaVolume>],
) -> Result<Recording> {
    let what = || format!("record to {}", path.display());
    let file = match File::create_new(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{}: it exists already; remove it, or name another file", what());
        }
        file => file.with_context(what)?,
    };
    let names = volumes.iter().map(|volume| volume.name().to_owned()).collect();
    let shown = path.display().to_string();
    let warn = move |error: &std::io::Error| {
        eprintln!(
            "larder: WARNING: recording to {shown} has stopped, its volumes are still served: \
             {error}"
        );
    };
    Recording::start(file, names, engine.clock(), warn).with_context(what)
}

/// Leaves nothing behind of a recording that never had a server.
fn discard_recording(recording: Recording, path: &Path) {
    let discarded = recording.finish().and_then(|_| std::fs::remove_file(path));
    if let Err(error) = discarded {
        tracing::warn!(path = %path.display(), %error, "an empty trace could not be removed");
    }
}

/// Says what was recorded. Volumes that were served well do not fail because of it.
fn finish_recording(recording: Recording, path: &Path) {
    let path = path.display();
    match recording.finish() {
        Ok(recorded) => {
            let requests = format::count(recorded.requests);
            eprintln!("larder: recorded {requests} requests in {path}");
            if recorded.lost > 0 {
                let lost = format::count(recorded.lost);
                eprintln!("larder: {lost} more were answered too fast to be recorded");
            }
        }
        Err(error) => eprintln!("larder: {path} is not whole: recording stopped early: {error}"),
    }
}

fn tunables(arguments: &Arguments) -> Result<Tunables> {
    let mut tunables = Tunables::preset(&arguments.preset)
        .ok_or_else(|| anyhow!("use preset \"{}\": there are larder and nt", arguments.preset))?;
    for (name, value) in &arguments.set {
        tunables.set(name, *value).with_context(|| format!("set {name}"))?;
    }
    if let Some(bytes) = arguments.read_ahead {
        tunables.set("read-ahead-max", bytes).context("read ahead")?;
    }
    Ok(tunables)
}

fn check_names(arguments: &Arguments) -> Result<()> {
    let names: Vec<_> = arguments.volumes.iter().map(|volume| &volume.name).collect();
    for (i, name) in names.iter().enumerate() {
        ensure!(
            !names[..i].contains(name),
            "serve two volumes called \"{name}\": name one of them with NAME=PATH"
        );
    }
    let bounds = arguments.min.iter().chain(&arguments.max).map(|(name, _)| name);
    let hints = arguments.hint.iter().map(|(name, _)| name);
    for name in bounds.chain(hints).flatten() {
        ensure!(
            names.contains(&name),
            "set --min, --max or --hint of \"{name}\": no volume is called so"
        );
    }
    Ok(())
}

/// What is said of a volume: of itself before what is said of all.
fn of_volume<'a, T>(said: &'a [(Option<String>, T)], volume: &str) -> Option<&'a T> {
    let own = said.iter().rev().find(|(name, _)| name.as_deref() == Some(volume));
    let all = said.iter().rev().find(|(name, _)| name.is_none());
    own.or(all).map(|(_, value)| value)
}

/// The frames that a bound gives a volume.
fn frames(bounds: &[(Option<String>, u64)], volume: &str, default: u32) -> u32 {
    of_volume(bounds, volume)
        .map_or(default, |bytes| u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX))
}

fn check_bounds(options: &VolumeOptions, frames: u32) -> Result<()> {
    let VolumeOptions { name, min_frames, max_frames, .. } = options;
    ensure!(min_frames <= max_frames, "serve {name}: its --min is above its --max");
    ensure!(
        *min_frames <= frames,
        "serve {name}: its --min is more than the cache has; raise --memory"
    );
    ensure!(
        *max_frames >= 512,
        "serve {name}: its --max is below 2MiB, less than one large request needs"
    );
    Ok(())
}

fn default_address(arguments: &Arguments) -> ListenAddress {
    let directory =
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    ListenAddress::Unix(directory.join(format!("larder-{}.sock", arguments.volumes[0].name)))
}
