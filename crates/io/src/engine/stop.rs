//! Stopping: everything dirty is written, however long it takes, and whoever waits is told how far
//! it is.

use super::{ArenaVolume, Engine};
use crate::blocking::BlockingSession;
use crate::fault;
use larder_core::request::{Request, RequestOp};
use larder_core::store::StoreErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// How often progress is told, and how long a failed flush waits for the next try.
const TICK: Duration = Duration::from_millis(100);
const RETRY_TICKS: u32 = 10;

/// How far a stop is.
#[derive(Clone, Debug)]
pub struct StopProgress {
    /// The volume.
    pub volume: String,
    /// Bytes that its store did not have when the stop began.
    pub total_bytes: u64,
    /// Bytes that its store does not have yet.
    pub left_bytes: u64,
    /// Why the last try failed, if it did; the next one comes by itself.
    pub error: Option<String>,
}

impl Engine {
    /// Makes every volume write through from now on.
    pub fn begin_stop(&self) {
        for driver in self.drivers().iter() {
            driver.volume.begin_stop();
        }
    }

    /// Writes and flushes everything, telling `progress` several times a second; returns when all
    /// volumes are on stable storage. A store that fails is tried again for as long as it takes.
    /// Where flushes are ignored, too, everything is written and flushed.
    ///
    /// # Errors
    /// If a store cannot flush: one sentence for each such volume. Then everything has been written
    /// to it but what must not be there before something else is stable, and what it did with that
    /// is not known.
    pub fn drain(&self, mut progress: impl FnMut(&StopProgress)) -> Result<(), Vec<String>> {
        // What all have to write before the first does: a small one is done before its turn.
        let volumes: Vec<_> = {
            let drivers = self.drivers();
            let volumes = drivers.iter().map(|driver| &driver.volume);
            volumes.map(|volume| (volume.unclean_bytes(), Arc::clone(volume))).collect()
        };
        self.begin_stop();
        // A store that does not answer does not delay the data of the other volumes.
        let _flushes = self.start_flushes();
        let mut go_on = |at: &StopProgress| {
            progress(at);
            ControlFlow::Continue(())
        };
        let waits = |(_, volume): &&(u64, Arc<ArenaVolume>)| !self.is_stable_on_server(volume);
        let drained = volumes
            .iter()
            .filter(waits)
            .map(|(total, volume)| self.drain_volume(volume, *total, &mut go_on));
        let failures: Vec<_> = drained.filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Starts to write and flush all volumes at the same time, and returns the sessions that wait.
    pub fn start_flushes(&self) -> Vec<BlockingSession> {
        let volumes: Vec<_> = self.drivers().iter().map(|one| Arc::clone(&one.volume)).collect();
        let start = |volume| {
            // A volume that is closed has been written out.
            let mut session = BlockingSession::open(self, volume).ok()?;
            session.start_flush(Request::uncounted(RequestOp::FlushAlways, 0..0));
            Some(session)
        };
        volumes.iter().filter_map(start).collect()
    }

    /// Returns whether nothing of a volume waits for its server.
    fn is_stable_on_server(&self, volume: &Arc<ArenaVolume>) -> bool {
        let drivers = self.drivers();
        drivers.iter().any(|one| Arc::ptr_eq(&one.volume, volume) && one.is_stable_on_server())
    }

    /// Returns the reason why a volume can never be written out, if there is one.
    fn is_lost(&self, volume: &Arc<ArenaVolume>) -> Option<String> {
        let error = volume.broken()?;
        if self.is_given_up(volume) {
            return None;
        }
        Some(format!("{error}; {}", fault::unwritten(&self.cache, volume)))
    }

    /// Writes and flushes everything of one volume, `total_bytes` when that began, unless
    /// `progress` breaks it off or the volume is broken.
    pub(super) fn drain_volume(
        &self,
        volume: &Arc<ArenaVolume>,
        total_bytes: u64,
        progress: &mut dyn FnMut(&StopProgress) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let session = BlockingSession::open(self, volume);
        let mut session =
            session.map_err(|error| format!("failed to write everything: {error}"))?;
        let mut error = None;
        let mut failed_at_rest = 0;
        let mut tell = |error: &Option<String>| {
            progress(&StopProgress {
                volume: volume.name().to_owned(),
                total_bytes,
                left_bytes: volume.unclean_bytes(),
                error: error.clone(),
            })
        };
        'written: loop {
            if let Some(why) = self.is_lost(volume) {
                error = Some(why);
                break;
            }
            session.start_flush(Request::uncounted(RequestOp::FlushAlways, 0..0));
            let result = loop {
                if tell(&error).is_break() {
                    error = Some("write everything: it was broken off".to_owned());
                    break 'written;
                }
                if let Some(result) = session.poll() {
                    break result;
                }
                session.sleep(TICK);
            };
            let away = match result {
                Ok(()) => {
                    error = None;
                    break;
                }
                Err(failure) => {
                    // A store that is away will be there again, with all that it was given.
                    error = (!self.is_given_up(volume)).then(|| failure.to_string());
                    failure.kind == StoreErrorKind::Away
                }
            };
            let at_rest = volume.unclean_blocks() == 0 || self.cache.is_held_for_ever(volume);
            if at_rest && !away {
                // All is written. The first failure may be the report of one that is made good;
                // after the second the store cannot flush, which no further try can mend.
                failed_at_rest += 1;
                if failed_at_rest == 2 {
                    break;
                }
                continue;
            }
            for _ in 0..RETRY_TICKS {
                if tell(&error).is_break() {
                    break 'written;
                }
                std::thread::sleep(TICK);
            }
        }
        // Nothing is left to be broken off.
        let _last: ControlFlow<()> = tell(&error);
        if self.is_given_up(volume) && volume.unclean_bytes() == 0 {
            // A failed flush of its store no longer matters.
            return Ok(());
        }
        error.map_or(Ok(()), |error| Err(format!("failed to {error}")))
    }

    /// Ends the threads of all stores. What is dirty is lost: call [`Engine::drain`] first.
    pub fn shut_down(&self) {
        for mut driver in self.drivers().drain(..) {
            driver.quit();
        }
    }
}
