//! Stop: all dirty data is written, however long that takes, and the progress is reported.

use super::{ArenaVolume, Engine};
use crate::blocking::BlockingSession;
use crate::fault;
use larder_core::request::{Request, RequestOp};
use larder_core::store::StoreErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Interval of progress reports.
const TICK: Duration = Duration::from_millis(100);
/// Number of ticks between a failed flush and the next attempt.
const RETRY_TICKS: u32 = 10;

/// Progress of a stop.
#[derive(Clone, Debug)]
pub struct StopProgress {
    /// Name of the volume.
    pub volume: String,
    /// Bytes that its store did not have when the stop began.
    pub total_bytes: u64,
    /// Bytes that its store does not have yet.
    pub left_bytes: u64,
    /// Error of the last attempt, if it failed; the next attempt follows automatically.
    pub error: Option<String>,
}

impl Engine {
    /// Makes every volume write through from now on.
    pub fn begin_stop(&self) {
        for driver in self.drivers().iter() {
            driver.volume.begin_stop();
        }
    }

    /// Writes and flushes everything, and reports to `progress` several times a second. Returns
    /// when all volumes are on stable storage. A store that fails is retried for as long as it
    /// takes. Volumes that ignore flushes are written and flushed, too.
    ///
    /// # Errors
    /// If a store cannot flush: one sentence for each such volume. Everything has then been written
    /// to it, except data that must not be written before other data is stable; the state of the
    /// written data is unknown.
    pub fn drain(&self, mut progress: impl FnMut(&StopProgress)) -> Result<(), Vec<String>> {
        // The totals are read before the first volume is written: a small volume may be clean
        // before its turn.
        let volumes: Vec<_> = {
            let drivers = self.drivers();
            let volumes = drivers.iter().map(|driver| &driver.volume);
            volumes.map(|volume| (volume.unclean_bytes(), Arc::clone(volume))).collect()
        };
        self.begin_stop();
        // A store that does not answer does not delay the data of the other volumes.
        let _flushes = self.start_flushes();
        let mut report = |at: &StopProgress| {
            progress(at);
            ControlFlow::Continue(())
        };
        let needs_flush =
            |(_, volume): &&(u64, Arc<ArenaVolume>)| !self.is_stable_on_server(volume);
        let drained = volumes
            .iter()
            .filter(needs_flush)
            .map(|(total, volume)| self.drain_volume(volume, *total, &mut report));
        let failures: Vec<_> = drained.filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Starts to write and flush all volumes at the same time, and returns the waiting sessions.
    pub fn start_flushes(&self) -> Vec<BlockingSession> {
        let volumes: Vec<_> = self.drivers().iter().map(|one| Arc::clone(&one.volume)).collect();
        let start = |volume| {
            // A volume that is closed has been written out.
            let mut session = self.blocking_session(volume).ok()?;
            session.start_flush(Request::uncounted(RequestOp::FlushAlways, 0..0));
            Some(session)
        };
        volumes.iter().filter_map(start).collect()
    }

    /// Returns true if no data of a volume waits for its server.
    fn is_stable_on_server(&self, volume: &Arc<ArenaVolume>) -> bool {
        let drivers = self.drivers();
        drivers.iter().any(|one| Arc::ptr_eq(&one.volume, volume) && one.is_stable_on_server())
    }

    /// Returns the reason why a volume can never be written out, if any.
    fn is_lost(&self, volume: &Arc<ArenaVolume>) -> Option<String> {
        let error = volume.broken()?;
        if self.is_given_up(volume) {
            return None;
        }
        Some(format!("{error}; {}", fault::unwritten(&self.cache, volume)))
    }

    /// Writes and flushes everything of one volume, which had `total_bytes` of unwritten data at
    /// the start, unless `progress` breaks it off or the volume is broken.
    pub(super) fn drain_volume(
        &self,
        volume: &Arc<ArenaVolume>,
        total_bytes: u64,
        progress: &mut dyn FnMut(&StopProgress) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let session = self.blocking_session(volume);
        let mut session = session.map_err(|error| format!("cannot write everything: {error}"))?;
        let mut error = None;
        let mut failed_flushes = 0;
        let mut report = |error: &Option<String>| {
            progress(&StopProgress {
                volume: volume.name().to_owned(),
                total_bytes,
                left_bytes: volume.unclean_bytes(),
                error: error.clone(),
            })
        };
        'written: loop {
            if let Some(reason) = self.is_lost(volume) {
                error = Some(reason);
                break;
            }
            session.start_flush(Request::uncounted(RequestOp::FlushAlways, 0..0));
            let result = loop {
                if report(&error).is_break() {
                    error = Some("write everything: it was broken off".to_owned());
                    break 'written;
                }
                if let Some(result) = session.poll() {
                    break result;
                }
                session.sleep(TICK);
            };
            let is_away = match result {
                Ok(()) => {
                    error = None;
                    break;
                }
                Err(failure) => {
                    // A store that is away will return with all data that it has received.
                    error = (!self.is_given_up(volume)).then(|| failure.to_string());
                    failure.kind == StoreErrorKind::Away
                }
            };
            let is_written = volume.unclean_blocks() == 0 || self.cache.is_held_for_ever(volume);
            if is_written && !is_away {
                // All data is written. The first failure may report an earlier error that has been
                // corrected; after the second the store cannot flush, and further attempts do not
                // help.
                failed_flushes += 1;
                if failed_flushes == 2 {
                    break;
                }
                continue;
            }
            for _ in 0..RETRY_TICKS {
                if report(&error).is_break() {
                    break 'written;
                }
                std::thread::sleep(TICK);
            }
        }
        // No operation is left that `progress` could break off.
        let _last: ControlFlow<()> = report(&error);
        if self.is_given_up(volume) && volume.unclean_bytes() == 0 {
            // A failed flush of its store no longer matters.
            return Ok(());
        }
        error.map_or(Ok(()), |error| Err(format!("cannot {error}")))
    }

    /// Ends the threads of all stores. Dirty data is lost: call [`Engine::drain`] first.
    pub fn shut_down(&self) {
        for mut driver in self.drivers().drain(..) {
            driver.quit();
        }
    }
}
