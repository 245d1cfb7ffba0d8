//! `larder serve`: volumes with a cache, over NBD, until the server is stopped.

pub(crate) mod changes;
pub(crate) mod config;
mod files;
pub(crate) mod memory_return;
pub(crate) mod plan;
mod record;
mod recording;
pub(crate) mod reload;
pub(crate) mod service;
mod shared;
mod stores;
mod volumes;
mod warm;

use crate::args::{self, Named, PathOrNone, PolicyChoice, VolumeArgument};
use crate::control;
use crate::output::{self, OutputFile};
use crate::signals::{SignalAction, SignalChannel, channel_of_signals};
use crate::systemd::ServiceManager;
use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use larder_core::cache::ShareMode;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_io::fault::{Panicked, confine, point};
use larder_io::front::fuse::{FileRule, MountRestrictions};
use larder_io::front::nbd::ListenAddress;
use larder_io::reclaim;
use plan::Plan;
use reload::Reloader;
use service::Service;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which the service manager gets the progress of a stop.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// A file, a block device, or an export of another NBD server by its address (schemes nbd,
    /// nbds, nbd+unix, nbds+unix), as [NAME=]PATH; the export name is NAME, else the file name
    /// without its extension.
    #[arg(required_unless_present = "config", value_name = "VOLUME", value_parser = args::volume)]
    pub(crate) volumes: Vec<VolumeArgument>,

    /// Read flags and volumes from this file (docs/config.md) as well; those of the command line
    /// override them. SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Memory of the cache, including its metadata, shared by all volumes.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = args::bytes)]
    pub(crate) memory: u64,

    /// Listening address: unix:PATH or tcp:ADDRESS:PORT. Default: a socket in the runtime
    /// directory.
    #[arg(long, value_name = "ADDRESS", value_parser = args::listen)]
    pub(crate) listen: Option<ListenAddress>,

    /// Close a connection whose client receives none of its waiting replies for this time.
    #[arg(long, value_name = "TIME|off", default_value = "1m", value_parser = args::time_or_off)]
    pub(crate) send_timeout: u64,

    /// Show each volume as a file in this empty directory, by FUSE, for loop devices and mounts.
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,

    /// Speak TLS, with server-cert.pem and server-key.pem of this directory.
    #[arg(long, value_name = "DIR", help_heading = "TLS")]
    pub(crate) tls: Option<PathBuf>,

    /// Handling of clients without TLS: require refuses them, allow serves them.
    #[arg(long, value_name = "MODE", default_value = "require", requires = "tls",
          value_parser = ["require", "allow"], help_heading = "TLS")]
    pub(crate) tls_mode: String,

    /// Refuse clients without a certificate signed by ca-cert.pem of the directory.
    #[arg(long, requires = "tls", help_heading = "TLS")]
    pub(crate) tls_verify_peer: bool,

    /// Record every answered request into a new trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<OutputFile>,

    /// Record every input of the cache into a new file, which larder sim --level inputs
    /// replays. Serving is slower.
    #[arg(long, value_name = "FILE")]
    pub(crate) record_inputs: Option<OutputFile>,

    /// Unit of replacement, 4KiB to 1MiB [default: 4KiB].
    #[arg(long, value_name = "[NAME=]SIZE", value_parser = args::named(args::page_blocks),
          help_heading = "Cache")]
    pub(crate) page_size: Vec<Named<u32>>,

    /// Replacement policy: random, fifo, lru, clock, 2q, slru, arc, lirs, s3fifo, sieve, wtinylfu,
    /// clock2q+, linux; or auto, which changes it for one that hits clearly more
    /// [default: s3fifo].
    #[arg(long, value_name = "[NAME=]POLICY", value_parser = args::named(args::policy_choice),
          help_heading = "Cache")]
    pub(crate) policy: Vec<Named<PolicyChoice>>,

    /// Eviction between volumes: coldest (the page not used for longest, of any volume), or auto
    /// (each volume has a part, and parts move to the volumes where they yield most hits).
    #[arg(long, value_name = "MODE", default_value_t = ShareMode::Coldest,
          value_parser = args::share, help_heading = "Cache")]
    pub(crate) share: ShareMode,

    /// Memory that other volumes cannot take from a volume.
    #[arg(long, value_name = "[NAME=]SIZE", value_parser = args::named(args::bytes),
          help_heading = "Cache")]
    pub(crate) min: Vec<Named<u64>>,

    /// Maximum memory of a volume, or all.
    #[arg(long, value_name = "[NAME=]SIZE", value_parser = args::named(args::ceiling),
          help_heading = "Cache")]
    pub(crate) max: Vec<Named<u64>>,

    /// Maximum size of read-ahead for a stream, or "off" [default: 1MiB].
    #[arg(long, value_name = "[NAME=]SIZE|off", value_parser = args::named(args::bytes_or_off),
          help_heading = "Cache")]
    pub(crate) read_ahead: Vec<Named<u64>>,

    /// Expected access pattern of a volume: normal, sequential (once and in order), random (no
    /// read-ahead), no-buffering (its clients have a cache of their own) [default: normal].
    #[arg(long, value_name = "[NAME=]HINT", value_parser = args::named(args::hint),
          help_heading = "Cache")]
    pub(crate) hint: Vec<Named<Hint>>,

    /// Give memory back, down to FLOOR and the minimum of volumes, while the system is short of it,
    /// and take it again later.
    #[arg(long, value_name = "FLOOR", num_args = 0..=1, require_equals = true,
          default_missing_value = "0", value_parser = args::bytes, help_heading = "Cache")]
    pub(crate) give_back: Option<u64>,

    /// Lock the memory, so that it is never swapped out.
    #[arg(long, help_heading = "Cache")]
    pub(crate) lock: bool,

    /// Write mode: back (a write is acknowledged when it is in the cache), through (when it is in
    /// the store too), around (it bypasses the cache), read-only [default: back].
    #[arg(long, value_name = "[NAME=]MODE", value_parser = args::named(args::write_mode),
          help_heading = "Writes")]
    pub(crate) write_mode: Vec<Named<WriteMode>>,

    /// Flush mode: keep the guarantee of a flush, or ignore it, which loses unwritten data in a
    /// crash [default: keep].
    #[arg(long, value_name = "[NAME=]MODE", value_parser = args::named(args::flush_mode),
          help_heading = "Writes")]
    pub(crate) flush: Vec<Named<FlushMode>>,

    /// Constants of the lazy writer: larder, or nt for those of the Windows NT file cache
    /// [default: larder].
    #[arg(long, value_name = "[NAME=]PRESET", value_parser = args::named(args::preset),
          help_heading = "Writes")]
    pub(crate) preset: Vec<Named<String>>,

    /// Set a tunable (docs/TUNABLES.md).
    #[arg(long, value_name = "[NAME.]TUNABLE=VALUE", value_parser = args::named_setting,
          help_heading = "Writes")]
    pub(crate) set: Vec<Named<(String, u64)>>,

    /// Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it.
    #[arg(long, value_name = "FILE")]
    pub(crate) counters: Option<OutputFile>,

    /// Socket for larder ctl, or none [default: in the runtime directory, where ctl finds it].
    #[arg(long, value_name = "PATH", value_parser = args::control, help_heading = "Control")]
    pub(crate) control: Option<PathOrNone>,

    /// Accept control connections over TCP as well, from this machine only; needs --control-token.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = args::loopback,
          requires = "control_token", help_heading = "Control")]
    pub(crate) control_tcp: Option<SocketAddr>,

    /// File with the token that clients over TCP must present, on one line; only its owner may have
    /// access.
    #[arg(long, value_name = "FILE", requires = "control_tcp", help_heading = "Control")]
    pub(crate) control_token: Option<PathBuf>,

    /// Directory for lists of cached pages, which are read back at the next start, or none
    /// [default: the state directory of a service manager, else none].
    #[arg(long, value_name = "DIR|none", value_parser = args::directory,
          help_heading = "Warm restart")]
    pub(crate) warm_list: Option<PathOrNone>,

    /// Interval at which the lists are saved, in addition to the end, or off.
    #[arg(long, value_name = "TIME|off", default_value = "5m", value_parser = args::time_or_off,
          help_heading = "Warm restart")]
    pub(crate) warm_list_every: u64,

    /// Use plain system calls even if io_uring is available.
    #[arg(long, help_heading = "Store")]
    pub(crate) plain_io: bool,

    /// The directory to mount instead of volumes; set by `larder mount`.
    #[arg(skip)]
    pub(crate) directory: Option<DirectoryArgs>,
}

/// The mount of a directory.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryArgs {
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) ttl: Duration,
    pub(crate) shared: bool,
    pub(crate) allow_other: bool,
    pub(crate) restrictions: MountRestrictions,
    pub(crate) rules: Vec<FileRule>,
}

impl ServeArgs {
    /// Returns the flags that name a volume, with the volume.
    pub(crate) fn named_volumes(&self) -> Vec<(&'static str, String)> {
        fn entries<T>(
            key: &'static str,
            values: &[Named<T>],
        ) -> impl Iterator<Item = (&'static str, String)> {
            values.iter().filter_map(move |named| Some((key, named.volume.clone()?)))
        }
        entries("page-size", &self.page_size)
            .chain(entries("policy", &self.policy))
            .chain(entries("min", &self.min))
            .chain(entries("max", &self.max))
            .chain(entries("write-mode", &self.write_mode))
            .chain(entries("flush", &self.flush))
            .chain(entries("read-ahead", &self.read_ahead))
            .chain(entries("hint", &self.hint))
            .chain(entries("preset", &self.preset))
            .chain(entries("set", &self.set))
            .collect()
    }
}

impl ServeArgs {
    /// Returns the options that name an output file, with the file.
    fn output_files(&self) -> impl Iterator<Item = (&'static str, &OutputFile)> {
        let files = [
            ("counters", &self.counters),
            ("record", &self.record),
            ("record-inputs", &self.record_inputs),
        ];
        files.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?)))
    }
}

pub(crate) fn run(arguments: &ServeArgs) -> Result<()> {
    let mut reloader = Reloader::new(arguments, std::env::args_os().skip(2).collect())?;
    let mut arguments = reloader.arguments().clone();
    reclaim::limit_heaps();
    // Threads started from here on inherit the memory reclaim settings of this thread.
    arguments.lock |= files::prepare(&arguments)?;
    let plan = reloader.plan().clone();
    serve(&arguments, &plan, &mut |service| reloader.reload(service))
}

/// Serves a directory.
pub(crate) fn run_directory(arguments: &ServeArgs) -> Result<()> {
    reclaim::limit_heaps();
    let plan = Plan::of(arguments)?;
    serve(arguments, &plan, &mut |_| {})
}

fn serve(arguments: &ServeArgs, plan: &Plan, reload: &mut dyn FnMut(&Arc<Service>)) -> Result<()> {
    if let Some(file) = &arguments.counters {
        output::check_writable(file)?;
    }
    let signals = channel_of_signals()?;
    let manager = ServiceManager::from_environment();
    let mut inherited = crate::systemd::take_inherited_sockets()?;
    let service = Service::start(arguments, plan, inherited.nbd.take(), signals.sender())?;
    let service = Arc::new(service);
    Service::watch_stores(&service);
    let control = control::start(arguments, inherited.control, &service)
        .inspect_err(|_| service.abort_start())?;
    if let Err(error) = service.announce() {
        // The parent may not read the address; the volumes are served regardless.
        eprintln!("larder: note: the addresses could not be printed: {error}");
    }
    manager.ready(&service.status());
    let wait = || wait_for_stop(arguments, (&service, &signals, &manager), reload);
    // Dirty data must be written out, even after an internal error here.
    let result = confine(wait).map_err(|panic| {
        panic.end_if_damaging(service.engine().cache());
        anyhow!("keep serving: {panic}; the server was stopped as after SIGTERM")
    });
    manager.stopping();
    let mut drain_result = drain(&service, &signals, &manager);
    if drain_result.is_ok() {
        // Programs may have written while the unmount waited for them.
        if service.unmount(&signals) {
            drain_result = drain(&service, &signals, &manager);
        }
    }
    let lost = if drain_result.is_ok() { check_lost(&service) } else { Ok(()) };
    let failed = drain_result.as_ref().err().or(lost.as_ref().err());
    service.report_stop_result(failed.map(ToString::to_string));
    if let Err(error) = drain_result {
        control.close();
        service.close_without_writing();
        return Err(error);
    }
    service.report();
    control.close();
    service.close();
    lost?;
    if let Some(error) = signals.error() {
        bail!("receive signals: {error}; the server was stopped as after SIGTERM");
    }
    result
}

/// Fails if the paths of some images no longer lead to the files that were opened.
fn check_lost(service: &Service) -> Result<()> {
    let lost: Vec<_> = service.find_lost().iter().map(|path| path.display().to_string()).collect();
    ensure!(
        lost.is_empty(),
        "keep what was written: {} was deleted or replaced while it was served",
        lost.join(" and ")
    );
    Ok(())
}

/// Handles signals until one requests a stop.
fn wait_for_stop(
    arguments: &ServeArgs,
    (service, signals, manager): (&Arc<Service>, &SignalChannel, &ServiceManager),
    reload: &mut dyn FnMut(&Arc<Service>),
) {
    loop {
        match signals.wait(Duration::from_hours(1)) {
            Some(SignalAction::Report) => {
                point("main", "report");
                service.report();
            }
            // Without a configuration file, SIGHUP means that the terminal is being closed.
            Some(SignalAction::Reload) if arguments.config.is_none() => return,
            Some(SignalAction::Reload) => {
                manager.reloading();
                reload(service);
                manager.ready(&service.status());
            }
            Some(SignalAction::Stop) => return,
            None => {}
        }
    }
}

/// Returns the message for a stop request during the stop.
fn stop_answer(unwritten_bytes: u64, failure: Option<String>) -> String {
    if unwritten_bytes == 0 && failure.is_none() {
        return "note: stopping already; all data is written".to_owned();
    }
    let reason =
        failure.map_or_else(String::new, |error| format!(": failed to {error}; trying again"));
    format!("still writing; stopping now would lose data{reason}")
}

/// Writes all dirty data, and reports the progress to the service manager and to signals.
fn drain(service: &Service, signals: &SignalChannel, manager: &ServiceManager) -> Result<()> {
    // The first report is sent here: on a busy machine the other thread may not run before all data
    // is written.
    manager.still_stopping(&service.status());
    let stopping = AtomicBool::new(true);
    let answer = || {
        match signals.wait(PROGRESS_INTERVAL) {
            Some(SignalAction::Report) => service.report(),
            Some(SignalAction::Stop) => {
                let answer = stop_answer(service.unwritten_bytes(), service.stop_failure());
                eprintln!("larder: {answer}");
            }
            Some(SignalAction::Reload) => {
                eprintln!("larder: note: stopping, so nothing is read again");
            }
            None => {}
        }
        manager.still_stopping(&service.status());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while stopping.load(Ordering::Acquire) {
                // Without this thread, the service manager would end the process before all data is
                // written.
                if let Err(panic) = confine(answer) {
                    let cache = service.engine().cache();
                    panic.report(cache, "a signal during the stop was not handled");
                }
            }
        });
        let write = || {
            point("main", "drain");
            service.drain()
        };
        let retry = |panic: Panicked| {
            panic.report(service.engine().cache(), "writing everything begins again");
            confine(write)
        };
        let result = confine(write).or_else(retry);
        stopping.store(false, Ordering::Release);
        result.unwrap_or_else(|panic| Err(anyhow!("write everything: {panic}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_stop_names_a_loss_only_if_there_is_unwritten_data() {
        assert_eq!(stop_answer(0, None), "note: stopping already; all data is written");
        let writing = "still writing; stopping now would lose data";
        assert_eq!(stop_answer(4096, None), writing);
        let failure = || Some("flush a.img: input/output error".to_owned());
        let failing = format!("{writing}: failed to flush a.img: input/output error; trying again");
        assert_eq!(stop_answer(4096, failure()), failing);
        assert_eq!(stop_answer(0, failure()), failing, "the flush may have failed");
    }
}
