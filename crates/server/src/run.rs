//! The life of a server: start, requests until a stop, writing of all data, end.

use crate::control;
use crate::output;
use crate::plan::{Configuration, Plan};
use crate::requests::{RequestReceiver, RequestSender, ServerRequest};
use crate::service::{Service, Unmounted};
use crate::systemd::{ServiceManager, take_inherited_sockets};
use anyhow::{Result, anyhow, ensure};
use larder_io::engine::StopProgress;
use larder_io::fault::{self, CaughtPanic, confine, point};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which the service manager gets the progress of a stop.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which the server checks for deleted images.
const STORES_CHECK: Duration = Duration::from_secs(5);

/// The callbacks of a server to its program.
pub struct Callbacks<'a> {
    /// Reads the configuration file again.
    pub reload: &'a mut dyn FnMut(&Service),
    /// Shows the progress of writing at a stop, and its end.
    pub progress: &'a (dyn Fn(Option<&StopProgress>) + Sync),
}

impl fmt::Debug for Callbacks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

/// Serves until a stop is requested, and all data is written.
///
/// # Errors
/// The server cannot start, or data could not be written.
pub fn run(
    configuration: &Configuration,
    plan: &Plan,
    (sender, receiver): (RequestSender, &RequestReceiver),
    callbacks: Callbacks<'_>,
) -> Result<()> {
    let Callbacks { reload, progress } = callbacks;
    if let Some(file) = &plan.server.counters {
        output::check_writable(file)?;
    }
    let manager = ServiceManager::from_environment();
    let mut inherited = take_inherited_sockets()?;
    let service = Service::start(configuration, plan, inherited.nbd.take(), sender)?;
    let service = Arc::new(service);
    watch_stores(&service);
    let control =
        control::start(&service, inherited.control).inspect_err(|_| service.abort_start())?;
    if let Err(error) = service.announce() {
        // The parent may not read the address; the volumes are served regardless.
        eprintln!("larder: note: the addresses could not be printed: {error}");
    }
    manager.ready(&service.status());
    let wait = || wait_for_stop((&service, receiver, &manager), reload);
    // Dirty data must be written out, even after an internal error here.
    let result = confine(wait).map_err(|panic| {
        panic.end_if_damaging(service.engine.cache());
        anyhow!("keep serving: {panic}; the server was stopped as after SIGTERM")
    });
    manager.stopping();
    let mut drain_result = drain(&service, receiver, &manager, progress);
    let mut unmounted = Unmounted::AtOnce;
    if drain_result.is_ok() {
        unmounted = service.unmount(receiver);
        // Programs may have written before they left the mount.
        if unmounted != Unmounted::AtOnce {
            drain_result = drain(&service, receiver, &manager, progress);
        }
    }
    let lost = if drain_result.is_ok() { check_lost(&service) } else { Ok(()) };
    let failed = drain_result.as_ref().err().or(lost.as_ref().err());
    service.report_stop_result(failed.map(ToString::to_string), unmounted);
    if let Err(error) = drain_result {
        control.close();
        service.close_without_writing();
        return Err(error);
    }
    service.report_at_end();
    control.close();
    service.close();
    lost?;
    result
}

/// Fails if the paths of some images no longer lead to the files that were opened.
fn check_lost(service: &Service) -> Result<()> {
    let lost: Vec<_> =
        service.stores.find_lost().iter().map(|path| path.display().to_string()).collect();
    ensure!(
        lost.is_empty(),
        "keep the data: {} was deleted or replaced while it was served",
        lost.join(" and ")
    );
    Ok(())
}

/// Starts a thread that checks for deleted and replaced images until the service is dropped.
fn watch_stores(service: &Arc<Service>) {
    if service.is_directory() {
        return;
    }
    let weak = Arc::downgrade(service);
    let watch = move || {
        while let Some(service) = weak.upgrade() {
            drop(service.stores.find_lost());
            drop(service);
            std::thread::sleep(STORES_CHECK);
        }
    };
    let warn = |error: &dyn fmt::Display| {
        tracing::warn!("cannot watch for deleted images: {error}");
    };
    if let Err(error) = fault::spawn("stores", None, watch, warn) {
        warn(&error);
    }
}

/// Handles requests until one requests a stop.
fn wait_for_stop(
    (service, requests, manager): (&Service, &RequestReceiver, &ServiceManager),
    reload: &mut dyn FnMut(&Service),
) {
    loop {
        match requests.wait(Duration::from_hours(1)) {
            Some(ServerRequest::Report) => {
                point("main", "report");
                service.report();
            }
            // Without a configuration file, SIGHUP means that the terminal is being closed.
            Some(ServerRequest::Reload) if service.configuration.file.is_none() => return,
            Some(ServerRequest::Reload) => {
                manager.reloading();
                reload(service);
                manager.ready(&service.status());
            }
            Some(ServerRequest::Stop) => return,
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
        failure.map_or_else(String::new, |error| format!(": cannot {error}; trying again"));
    format!("still writing; stopping now would lose data{reason}")
}

/// Writes all dirty data, and reports the progress to the service manager and in answer to
/// requests.
fn drain(
    service: &Service,
    requests: &RequestReceiver,
    manager: &ServiceManager,
    progress: &(dyn Fn(Option<&StopProgress>) + Sync),
) -> Result<()> {
    // The first report is sent here: on a busy machine the other thread may not run before all data
    // is written.
    manager.still_stopping(&service.status());
    let stopping = AtomicBool::new(true);
    let answer = || {
        match requests.wait(PROGRESS_INTERVAL) {
            Some(ServerRequest::Report) => service.report(),
            Some(ServerRequest::Stop) => {
                let answer = stop_answer(service.unwritten_bytes(), service.stop_failure());
                eprintln!("larder: {answer}");
            }
            Some(ServerRequest::Reload) => {
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
                    let cache = service.engine.cache();
                    panic.report(cache, "a signal during the stop was not handled");
                }
            }
        });
        let write = || {
            point("main", "drain");
            let result = service.drain(&mut |state| progress(Some(state)));
            progress(None);
            result
        };
        let retry = |panic: CaughtPanic| {
            panic.report(service.engine.cache(), "writing everything begins again");
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
        let failing = format!("{writing}: cannot flush a.img: input/output error; trying again");
        assert_eq!(stop_answer(4096, failure()), failing);
        assert_eq!(stop_answer(0, failure()), failing, "the flush may have failed");
    }
}
