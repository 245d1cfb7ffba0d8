//! The stop of a service: writing all dirty data, the progress for clients that follow it, and the
//! end of front ends, lists and recordings.

use super::files::Unmounted;
use super::{ServedVolume, Service};
use crate::lock;
use crate::recording::{InputRecording, RequestRecording};
use crate::requests::{RequestSender, ServerRequest};
use crate::value::OptionalPath;
use crate::warm::{PendingList, WarmLists};
use anyhow::{Result, anyhow};
use larder_io::engine::StopProgress;
use larder_schema::control::{JobResult, PathUsers, Progress};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;

pub(super) struct StopState {
    requests: RequestSender,
    is_started: AtomicBool,
    progress: watch::Sender<Option<Progress>>,
    /// Bytes that the stop has to write.
    drained_bytes: AtomicU64,
    /// Bytes that were discarded instead.
    discarded_bytes: AtomicU64,
}

impl StopState {
    pub(super) fn new(requests: RequestSender) -> Self {
        let progress = watch::Sender::new(None);
        StopState {
            requests,
            is_started: AtomicBool::new(false),
            progress,
            drained_bytes: 0.into(),
            discarded_bytes: 0.into(),
        }
    }
}

impl Service {
    /// Requests a stop, as SIGTERM does.
    pub(crate) fn request_stop(&self) {
        if !self.stop.requests.send(ServerRequest::Stop) {
            tracing::warn!("a stop was requested, but the server receives no requests any more");
        }
    }

    /// Returns true from the moment a stop is requested.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_started.load(Ordering::Acquire) || self.stop.requests.is_stop_requested()
    }

    /// Subscribes to the progress of a stop; `None` before it begins.
    pub(crate) fn stop_progress(&self) -> watch::Receiver<Option<Progress>> {
        self.stop.progress.subscribe()
    }

    /// Writes all dirty data, without a time limit; reports the progress to `show`.
    ///
    /// # Errors
    /// Data could not be written.
    pub fn drain(&self, show: &mut dyn FnMut(&StopProgress)) -> Result<()> {
        self.stop.is_started.store(true, Ordering::Release);
        let volumes = self.engine.cache().volumes();
        let dirty_bytes: u64 = volumes.iter().map(|volume| volume.unclean_bytes()).sum();
        self.stop.drained_bytes.fetch_add(dirty_bytes, Ordering::AcqRel);
        // Writing begins at once; the lock is held only for short and local steps.
        let flushes = self.engine.start_flushes();
        // This waits for an addition or removal of a volume in progress.
        drop(self.lock_changes());
        drop(flushes);
        if let Some(lists) = &self.lists {
            lists.before_stop();
        }
        let has_control = !matches!(self.settings().control, Some(OptionalPath::None));
        let result = self.engine.drain(|progress| {
            let mut progress = progress.clone();
            if let Some(error) = progress.error.as_mut().filter(|_| has_control) {
                let volume = &progress.volume;
                *error =
                    format!("{error} (larder ctl remove {volume} --give-up discards the data)");
            }
            // A request that follows the shown text is answered with the same reason.
            self.stop.progress.send_replace(Some(Progress::Volume {
                done_bytes: progress.total_bytes.saturating_sub(progress.left_bytes),
                volume: progress.volume.clone(),
                total_bytes: progress.total_bytes,
                error: progress.error.clone(),
            }));
            show(&progress);
        });
        result.map_err(|failures| {
            let failures = failures.iter().map(|failure| failure.trim_start_matches("cannot "));
            anyhow!("{}", failures.collect::<Vec<_>>().join("; and to "))
        })
    }

    /// Returns the reason why the stop cannot write a volume, if there is one.
    pub(crate) fn stop_failure(&self) -> Option<String> {
        match &*self.stop.progress.borrow() {
            Some(Progress::Volume { error, .. }) => error.clone(),
            _ => None,
        }
    }

    /// Discards the unwritten data of a volume, so that the stop in progress can end. All requests
    /// of its clients fail from now on.
    ///
    /// # Errors
    /// There is no such volume.
    pub(super) fn discard_at_stop(&self, name: &str) -> Result<()> {
        let ServedVolume { volume, .. } = self.volume(name)?;
        let lost_bytes = volume.unclean_bytes();
        self.engine.give_up_volume_at_stop(&volume);
        let less = |bytes: u64| Some(bytes.saturating_sub(lost_bytes));
        let drained_bytes = &self.stop.drained_bytes;
        let _before = drained_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        self.stop.discarded_bytes.fetch_add(lost_bytes, Ordering::AcqRel);
        Ok(())
    }

    /// Publishes to the clients that follow a stop that it waits, although all data is written.
    pub(super) fn report_waiting(&self, path: String, users: PathUsers) {
        self.stop.progress.send_replace(Some(Progress::Waiting { path, users }));
    }

    /// Publishes the result of a stop to the clients that follow it.
    pub(crate) fn report_stop_result(&self, failure: Option<String>, unmounted: Unmounted) {
        let failures = failure.into_iter().collect();
        let done_bytes = self.stop.drained_bytes.load(Ordering::Acquire);
        let disconnected = unmounted == Unmounted::ByForce;
        let discarded_bytes = self.stop.discarded_bytes.load(Ordering::Acquire);
        let result = JobResult {
            done_bytes,
            failures,
            discarded_bytes,
            disconnected,
            ..JobResult::default()
        };
        self.stop.progress.send_replace(Some(Progress::Done(result)));
    }

    /// Ends a service whose data is written, saves its lists, and ends its recordings.
    pub(crate) fn close(&self) {
        self.close_without_writing();
        let lists = self.lists.as_ref().map(WarmLists::collect).unwrap_or_default();
        self.engine.shut_down();
        if let Some(inputs) = &self.inputs {
            inputs.finish(&self.arena_volumes());
        }
        lists.iter().for_each(PendingList::save);
    }

    /// Ends a service whose start fails: clients may have written already. Removes the recordings.
    pub(crate) fn abort_start(&self) {
        self.close_clients();
        if let Some(recording) = lock(&self.recording).take() {
            recording.discard();
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
        lock(&self.recording).take().into_iter().for_each(RequestRecording::finish);
    }

    fn close_clients(&self) {
        self.files.close();
        if let Some(server) = self.server.write().unwrap_or_else(PoisonError::into_inner).take() {
            server.close();
        }
    }
}
